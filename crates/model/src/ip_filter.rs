//! IP filters as perf writes them down (`perf record --filter`, AUXTRACE_INFO).

use crate::address::FileOffset;

/// The ranges that were traced: `filter 0x1180/0x58@/usr/bin/x,filter 0x40/0x8@/usr/lib/y.so`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IpFilter {
    ranges: Vec<Range>,
}

/// Part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Range {
    path: String,
    start: u64,
    /// Exclusive.
    end: u64,
}

impl IpFilter {
    /// Reads perf's text.  Kernel ranges, which name no file, and what does not read as a range are left out.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        Self { ranges: text.split(',').filter_map(parse_range).collect() }
    }

    /// Whether code of a file was traced; `None` if the filter says nothing of any file.
    ///
    /// The kernel compares files, not paths. A container's program says its own path when it maps the file,
    /// while the filter has that of the host: `/usr/bin/x`, and
    /// `/var/lib/docker/overlay2/1/merged/usr/bin/x`.
    #[must_use]
    pub fn covers(&self, path: &str, offset: FileOffset) -> Option<bool> {
        self.has(|r| r.path.ends_with(path) && (r.start..r.end).contains(&offset.0))
    }

    /// Whether any code of a file was traced; `None` if the filter says nothing of any file. Paths are
    /// compared as by [`Self::covers`].
    #[must_use]
    pub fn has_file(&self, path: &str) -> Option<bool> {
        self.has(|r| r.path.ends_with(path))
    }

    fn has(&self, is_it: impl Fn(&Range) -> bool) -> Option<bool> {
        (!self.ranges.is_empty()).then(|| self.ranges.iter().any(is_it))
    }
}

fn parse_range(text: &str) -> Option<Range> {
    let (range, path) = text.trim().strip_prefix("filter ")?.split_once('@')?;
    let (start, size) = range.split_once('/')?;
    let hex = |text: &str| u64::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok();
    let start = hex(start)?;
    Some(Range { path: path.trim().to_owned(), start, end: start.checked_add(hex(size)?)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_files() {
        let filter = IpFilter::parse("filter 0x1180/0x58@/usr/bin/x, filter 0x40/0x8@/usr/lib/y.so");
        let covers = |path, offset| filter.covers(path, FileOffset(offset));
        assert_eq!(covers("/usr/bin/x", 0x1180), Some(true));
        assert_eq!(covers("/usr/bin/x", 0x11d7), Some(true));
        assert_eq!(covers("/usr/bin/x", 0x11d8), Some(false));
        assert_eq!(covers("/usr/lib/y.so", 0x47), Some(true));
        assert_eq!(covers("/usr/bin/z", 0x1180), Some(false));
        assert_eq!(filter.has_file("/usr/lib/y.so"), Some(true));
        assert_eq!(filter.has_file("/usr/lib/z.so"), Some(false));
        let of_container = IpFilter::parse("filter 0x40/0x8@/var/lib/docker/overlay2/1/merged/usr/bin/x");
        assert_eq!(of_container.covers("/usr/bin/x", FileOffset(0x40)), Some(true));
        assert_eq!(of_container.covers("/usr/bin/y", FileOffset(0x40)), Some(false));
        for nothing in ["", "filter 0xffffffff81000000/0x100", "filter x/y@z", "tracestop 0x1/0x2@/z"] {
            let filter = IpFilter::parse(nothing);
            assert_eq!(
                (filter.covers("/z", FileOffset(1)), filter.has_file("/z")),
                (None, None),
                "{nothing}"
            );
        }
    }
}
