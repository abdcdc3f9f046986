//! Words of command lines that are printed for the user to run.

/// A word for a shell.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./:,@%+=".contains(c);
    if word.chars().all(is_plain) { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_one_word_for_a_shell() {
        let words = ["a/b-c_d.e:f,g@h%i+j=k", "my calls", "it's", "$(x)", "[fe80::1]"];
        let quoted = words.map(quoted);
        assert_eq!(quoted, ["a/b-c_d.e:f,g@h%i+j=k", "'my calls'", r"'it'\''s'", "'$(x)'", "'[fe80::1]'"]);
    }
}
