//! The code of a `.ptt` file: bytes and the addresses of labels, by `nasm`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Code at its address.
pub(crate) struct Program {
    /// The address of the first byte.
    pub(crate) start: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) labels: BTreeMap<String, u64>,
}

impl Program {
    /// Assembles `text`, which has one `org`, with files in `directory`.
    pub(crate) fn assemble(text: &str, directory: &Path) -> Result<Self, String> {
        let (source, code, map) = ("code.asm", directory.join("code.bin"), directory.join("code.map"));
        std::fs::write(directory.join(source), format!("[map all code.map]\n{text}\n")).unwrap();
        let mut nasm = Command::new("nasm");
        nasm.current_dir(directory).args(["-f", "bin", "-o", "code.bin", source]);
        let output = nasm.output().map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let map = std::fs::read_to_string(map).unwrap();
        let start = first_line_after(&map, "-- Program origin").and_then(hex).ok_or("no origin")?;
        Ok(Self { start, bytes: std::fs::read(code).unwrap(), labels: labels(&map) })
    }

    /// The code from an address on.
    pub(crate) fn code(&self, ip: u64) -> Option<&[u8]> {
        let at = usize::try_from(ip.checked_sub(self.start)?).ok()?;
        self.bytes.get(at..).filter(|code| !code.is_empty())
    }
}

fn first_line_after<'a>(text: &'a str, heading: &str) -> Option<&'a str> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with(heading)).skip(1);
    lines.find(|line| !line.trim().is_empty())
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim(), 16).ok()
}

/// The table of symbols: real address, virtual address, name.
fn labels(map: &str) -> BTreeMap<String, u64> {
    let table = map.split_once("-- Symbols").map_or("", |(_, table)| table);
    let row = |line: &str| match line.split_whitespace().collect::<Vec<_>>()[..] {
        [_, address, name] => Some((name.to_owned(), hex(address)?)),
        _ => None,
    };
    table.lines().filter_map(row).collect()
}
