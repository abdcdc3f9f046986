//! How near a function's name is to what a user wrote.

use strsim::levenshtein;

/// Longer names are not compared letter by letter.
const MAX_COMPARED_BYTES: usize = 128;

/// How far apart the names are, the smaller the nearer; `None` if they have nothing in common.
///
/// First names that contain the given one, then those that differ in few letters.
pub(crate) fn distance(wanted: &str, name: &str) -> Option<(u8, usize)> {
    let (wanted, name) = (wanted.to_lowercase(), name.to_lowercase());
    if wanted.is_empty() {
        return None;
    }
    if name.contains(&wanted) {
        return Some((0, name.len() - wanted.len()));
    }
    let whole = close(&wanted, &name);
    // `vm_rnu` is near to `Vm::vm_run` also without the class.
    let last = name.rsplit("::").next().unwrap_or(&name);
    let component = close(&wanted, last).map(|d| d + usize::from(last.len() < name.len()));
    let letters = [whole, component].into_iter().flatten().min()?;
    Some((1, letters))
}

/// Letters to change, if that is no more than every third.
fn close(wanted: &str, name: &str) -> Option<usize> {
    let most = wanted.len().div_ceil(3);
    if name.len() > MAX_COMPARED_BYTES || wanted.len().abs_diff(name.len()) > most {
        return None;
    }
    Some(levenshtein(wanted, name)).filter(|d| *d <= most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containing_is_nearer_than_similar() {
        assert_eq!(distance("search", "row_search_mvcc"), Some((0, 9)));
        assert_eq!(distance("row_serach_mvcc", "row_search_mvcc"), Some((1, 2)));
        assert_eq!(distance("comit", "mtr_t::commit"), Some((1, 2)));
        assert_eq!(distance("commit", "rollback"), None);
        assert_eq!(distance("", "f"), None);
    }
}
