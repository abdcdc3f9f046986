//! `kallsyms` and `modules`: where a kernel's text is.
//!
//! A recording says which addresses were text, and its author can say so of any memory.  From `/proc/kcore`
//! only what the kernel itself calls text is taken: from `_stext` to `_etext`, and its modules.

use std::path::Path;

use model::Avma;

use super::Range;
use super::kallsyms::{self, KernelSymbol};

/// The lists beside a `kcore`.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    pub(super) symbols: Vec<KernelSymbol>,
    /// `None`: there is no list.
    modules: Option<Vec<Module>>,
}

/// A line of `modules`: `name size ... 0xaddress`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Module {
    name: String,
    start: Avma,
    bytes: u64,
}

impl Lists {
    /// Those in a directory, as far as they can be read.
    pub(super) fn read(directory: &Path) -> Self {
        let modules = kallsyms::read_text(&directory.join("modules")).ok();
        Self {
            symbols: kallsyms::read(&directory.join("kallsyms")),
            modules: modules.map(|text| text.lines().filter_map(module).collect()),
        }
    }

    /// The part of a recorded range that is text; `None` if nothing is.
    ///
    /// Where a list is missing, the recording's range counts for a copy, which has only what its maker
    /// chose, and nothing of the memory of a running kernel (`is_live`).
    pub(super) fn text_in(&self, range: &Range, is_live: bool) -> Option<(Avma, Avma)> {
        let unbounded = (!is_live).then_some((Avma(0), Avma(u64::MAX)));
        let (from, to) = match (range.is_core(), &self.modules) {
            (true, _) => self.core_text().or(unbounded)?,
            (false, None) => unbounded?,
            (false, Some(modules)) => {
                let module = modules.iter().find(|module| module.start == range.start)?;
                (module.start, Avma(module.start.0.saturating_add(module.bytes)))
            }
        };
        let end = Avma(range.start.0.saturating_add(range.len));
        let text = (range.start.max(from), end.min(to));
        (text.0 < text.1).then_some(text)
    }

    fn core_text(&self) -> Option<(Avma, Avma)> {
        let address = |name: &str| self.symbols.iter().find(|symbol| symbol.name == name).map(|s| s.address);
        Some((address("_stext").or_else(|| address("_text"))?, address("_etext")?))
    }

    /// The kernel's symbols are not where they were when the recording was made (`nokaslr` apart, each start
    /// moves it).  Where addresses are hidden (`kptr_restrict`) that is not known.
    pub(super) fn is_elsewhere(&self, range: &Range) -> bool {
        let is_start = |symbol: &&KernelSymbol| matches!(&*symbol.name, "_text" | "_stext");
        let mut starts = self.symbols.iter().filter(is_start).peekable();
        range.is_core() && starts.peek().is_some() && starts.all(|symbol| symbol.address != range.reference)
    }

    /// The files of these lists, by name.
    pub(crate) fn files(&self) -> Vec<(&'static str, String)> {
        let lines = |modules: &Vec<Module>| {
            let line = |m: &Module| format!("{} {} 0 - Live {:#x}\n", m.name, m.bytes, m.start.0);
            ("modules", modules.iter().map(line).collect())
        };
        let symbols = (!self.symbols.is_empty()).then(|| ("kallsyms", kallsyms::write(&self.symbols)));
        symbols.into_iter().chain(self.modules.as_ref().map(lines)).collect()
    }
}

/// `nf_tables 385024 0 - Live 0xffffffffc0a00000`.
fn module(line: &str) -> Option<Module> {
    let mut words = line.split_ascii_whitespace();
    let (name, bytes) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
    let start = u64::from_str_radix(words.find_map(|word| word.strip_prefix("0x"))?, 16).ok()?;
    Some(Module { name, start: Avma(start), bytes })
}

#[cfg(test)]
mod tests {
    use super::super::CORE;
    use super::*;

    fn range(name: &str, start: u64, len: u64) -> Range {
        Range { name: name.to_owned(), build_id: None, start: Avma(start), len, reference: Avma(start) }
    }

    fn symbol(name: &str, address: u64) -> KernelSymbol {
        KernelSymbol { address: Avma(address), size: 1, name: name.to_owned() }
    }

    #[test]
    fn a_kernel_that_was_started_again_is_elsewhere() {
        let core = range(CORE, 0xffff_ffff_9a00_0000, 0x1000);
        let check = |symbols: &[(&str, u64)], expect: bool| {
            let symbols = symbols.iter().map(|(name, address)| symbol(name, *address)).collect();
            assert_eq!(Lists { symbols, modules: None }.is_elsewhere(&core), expect);
        };
        check(&[], false);
        check(&[("_text", 0xffff_ffff_9a00_0000)], false);
        check(&[("_text", 0xffff_ffff_8100_0000)], true);
        check(&[("_text", 0xffff_ffff_99f0_0000), ("_stext", 0xffff_ffff_9a00_0000)], false);
    }

    /// The bundle once had all of a kernel mapping that was as long as all memory.
    #[test]
    fn of_a_running_kernel_only_text_is_taken() {
        let text = 0xffff_ffff_8100_0000;
        let list =
            "nf_tables 385024 0 - Live 0xffffffffc0a00000\nxfs 4096 1 a, Live 0xffffffffc0200000 (E)\n";
        let lists = Lists {
            symbols: vec![symbol("_stext", text), symbol("_etext", text + 0x20_0000)],
            modules: Some(list.lines().filter_map(module).collect()),
        };
        let nothing = Lists::default();
        let check = |lists: &Lists, range: Range, live: Option<(u64, u64)>, copy: Option<(u64, u64)>| {
            let of = |is_live| lists.text_in(&range, is_live).map(|(from, to)| (from.0, to.0));
            assert_eq!((of(true), of(false)), (live, copy), "{range:x?}");
        };
        let all = range(CORE, 0xffff_8000_0000_0000, u64::MAX);
        let of_text = Some((text, text + 0x20_0000));
        check(&lists, all.clone(), of_text, of_text);
        check(&nothing, all, None, Some((0xffff_8000_0000_0000, u64::MAX)));
        let module = range("[xfs]", 0xffff_ffff_c020_0000, u64::MAX);
        let of_module = Some((0xffff_ffff_c020_0000, 0xffff_ffff_c020_1000));
        check(&lists, module.clone(), of_module, of_module);
        check(&nothing, module, None, Some((0xffff_ffff_c020_0000, u64::MAX)));
        check(&lists, range("[moved]", 0xffff_ffff_c030_0000, 0x1000), None, None);
        check(&lists, range(CORE, text + 0x20_0000, 0x1000), None, None);
    }

    #[test]
    fn lists_are_written_as_they_are_read() {
        let directory = tempfile::tempdir().unwrap();
        let lists = Lists {
            symbols: vec![symbol("_stext", 0xffff_ffff_8100_0000), symbol("_etext", 0xffff_ffff_8100_0001)],
            modules: Some(vec![Module {
                name: "xfs".into(),
                start: Avma(0xffff_ffff_c020_0000),
                bytes: 4096,
            }]),
        };
        for (name, text) in lists.files() {
            std::fs::write(directory.path().join(name), text).unwrap();
        }
        let read = Lists::read(directory.path());
        assert_eq!(read.modules, lists.modules);
        assert_eq!(read.core_text(), lists.core_text());
    }
}
