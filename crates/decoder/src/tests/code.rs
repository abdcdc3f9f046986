//! The code of a case: a few instructions, assembled.
//!
//! ```text
//! .org 0x1000
//! f:  call g          # a label, an instruction
//! .mark               # a region begins or ends at the next instruction
//!     jz f
//! .missing 0x8000     # from there on there is an object with a missing file
//! .uprobes 0x9000     # from there on is the page in which the kernel runs probed instructions
//! .from 2500          # from this time on
//! .org 0x1100         # other code stands here
//!     ret
//! ```
//!
//! A function is 0x100 bytes of addresses; its entry is its first one. Jumps and calls have 32-bit
//! displacements.

use std::collections::{BTreeMap, BTreeSet};

use model::{
    Avma, CodeSource, FileOffset, FunctionAt, FunctionId, FunctionKind, FunctionLookup, NoCode, Ns, ObjectId,
    Pid, SpaceId, Svma,
};

/// By address.
type Sections = BTreeMap<u64, Vec<u8>>;

/// Bytes at addresses, and names for some of them.
#[derive(Default)]
pub(super) struct Code {
    sections: Sections,
    /// What the code was before, and until when, the first first.
    earlier: Vec<(Ns, Sections)>,
    labels: BTreeMap<String, u64>,
    marks: BTreeSet<u64>,
    missing: Option<u64>,
    uprobes: Option<u64>,
}

impl Code {
    /// One section of any bytes.
    pub(super) fn of_bytes(at: u64, bytes: Vec<u8>) -> Self {
        Self { sections: BTreeMap::from([(at, bytes)]), ..Self::default() }
    }

    pub(super) fn assemble(lines: &[&str]) -> Self {
        let mut code = Self::default();
        let mut fixups = vec![];
        let mut org = 0;
        for line in lines {
            let mut rest = line.trim();
            if let Some((label, after)) = rest.split_once(':') {
                let at = org + code.sections.get(&org).map_or(0, Vec::len) as u64;
                assert!(code.labels.insert(label.to_owned(), at).is_none(), "label {label} stands twice");
                rest = after.trim();
            }
            let (name, operand) = rest.split_once(' ').unwrap_or((rest, ""));
            let operand = operand.trim();
            if name == ".org" {
                org = number(operand);
                code.sections.remove(&org);
                continue;
            }
            if name == ".mark" {
                code.marks.insert(org + code.sections.get(&org).map_or(0, Vec::len) as u64);
                continue;
            }
            if name == ".missing" {
                code.missing = Some(number(operand));
                continue;
            }
            if name == ".uprobes" {
                code.uprobes = Some(number(operand));
                continue;
            }
            if name == ".from" {
                code.link(&std::mem::take(&mut fixups));
                code.earlier.push((Ns(number(operand)), code.sections.clone()));
                continue;
            }
            let section = code.sections.entry(org).or_default();
            section.extend(opcode(name, operand));
            if let "call" | "jmp" | "jz" | "xbegin" = name
                && !operand.starts_with('*')
            {
                fixups.push((org, section.len(), operand));
                section.extend([0; 4]);
            }
        }
        code.link(&fixups);
        code
    }

    /// Writes the displacements to labels: section, place, label.
    fn link(&mut self, fixups: &[(u64, usize, &str)]) {
        for &(org, at, target) in fixups {
            let displacement = self.address(target).wrapping_sub(org + at as u64 + 4) as i32;
            if let Some(field) = self.sections.get_mut(&org).and_then(|s| s.get_mut(at..at + 4)) {
                field.copy_from_slice(&displacement.to_le_bytes());
            }
        }
    }

    /// The address that `label`, `label+0x5` or `0x1005` stands for.
    pub(super) fn address(&self, text: &str) -> u64 {
        if text.starts_with("0x") {
            return number(text);
        }
        let (label, offset) =
            text.split_once('+').map_or((text, 0), |(label, offset)| (label, number(offset)));
        self.labels.get(label).unwrap_or_else(|| panic!("no label {label}")) + offset
    }

    /// The nearest label of the same function, and how far after it; else the address.
    pub(super) fn name(&self, ip: Avma) -> String {
        let labels = self.labels.iter().filter(|(_, at)| **at <= ip.0 && **at >> 8 == ip.0 >> 8);
        match labels.max_by_key(|(_, at)| **at) {
            Some((label, at)) if *at == ip.0 => label.clone(),
            Some((label, at)) => format!("{label}+{:#x}", ip.0 - at),
            None => ip.to_string(),
        }
    }
}

fn opcode(name: &str, operand: &str) -> Vec<u8> {
    match (name, operand) {
        ("", _) => vec![],
        ("nop", "") => vec![0x90],
        ("nop", count) => vec![0x90; usize::try_from(number(count)).unwrap()],
        ("call", "*rax") => vec![0xff, 0xd0],
        ("call", _) => vec![0xe8],
        ("jmp", "*rax") => vec![0xff, 0xe0],
        ("jmp", _) => vec![0xe9],
        ("jz", _) => vec![0x0f, 0x84],
        ("ret", _) => vec![0xc3],
        ("syscall", _) => vec![0x0f, 0x05],
        ("sysret", _) => vec![0x48, 0x0f, 0x07],
        ("iret", _) => vec![0x48, 0xcf],
        ("int", vector) => vec![0xcd, number(vector) as u8],
        ("vmlaunch", _) => vec![0x0f, 0x01, 0xc2],
        ("vmresume", _) => vec![0x0f, 0x01, 0xc3],
        ("xbegin", _) => vec![0xc7, 0xf8],
        ("xend", _) => vec![0x0f, 0x01, 0xd5],
        ("xabort", _) => vec![0xc6, 0xf8, 0x00],
        ("ptwrite", "rax") => vec![0xf3, 0x48, 0x0f, 0xae, 0xe0],
        (".byte", bytes) => bytes.split_whitespace().map(|b| u8::from_str_radix(b, 16).unwrap()).collect(),
        _ => panic!("no instruction {name:?}"),
    }
}

/// Decimal, or hexadecimal after `0x`.
pub(super) fn number(text: &str) -> u64 {
    let parsed = text.strip_prefix("0x").map_or_else(|| text.parse(), |hex| u64::from_str_radix(hex, 16));
    parsed.unwrap_or_else(|_| panic!("{text:?} is no number"))
}

impl CodeSource for Code {
    fn space(&self, _: Pid, time: Ns) -> SpaceId {
        let changes = self.earlier.iter().filter(|(until, _)| *until <= time).count();
        SpaceId(1 + changes as u32)
    }

    fn space_until(&self, _: Pid, time: Ns) -> Ns {
        self.earlier.iter().map(|(until, _)| *until).find(|until| *until > time).unwrap_or(Ns::MAX)
    }

    fn code(&self, space: SpaceId, ip: Avma) -> Result<&[u8], NoCode> {
        let generation = self.earlier.get(space.0.saturating_sub(1) as usize);
        let sections = generation.map_or(&self.sections, |(_, sections)| sections);
        let section = sections.range(..=ip.0).next_back();
        let rest = section.and_then(|(at, bytes)| bytes.get(usize::try_from(ip.0 - at).ok()?..));
        let unmapped = match self.missing {
            _ if ip.is_kernel() => NoCode::Kernel,
            Some(missing) if missing <= ip.0 => NoCode::MissingObject(ObjectId(1)),
            _ => NoCode::Unmapped,
        };
        rest.filter(|rest| !rest.is_empty()).ok_or(unmapped)
    }

    fn has_uprobes_pages(&self) -> bool {
        self.uprobes.is_some()
    }

    fn is_in_uprobes_page(&self, _: SpaceId, ip: Avma) -> bool {
        self.uprobes.is_some_and(|page| page <= ip.0)
    }

    fn file_place(&self, _: SpaceId, ip: Avma) -> Option<(&str, FileOffset)> {
        Some(("code", FileOffset(ip.0)))
    }
}

impl FunctionLookup for Code {
    fn function_at(&self, _: SpaceId, ip: Avma) -> FunctionAt {
        FunctionAt { id: FunctionId((ip.0 >> 8) as u32), at_entry: ip.0 & 0xff == 0 }
    }

    fn place(&self, _: SpaceId, ip: Avma) -> Option<(ObjectId, Svma)> {
        Some((ObjectId(0), Svma(ip.0)))
    }

    fn next_mark(&self, _: SpaceId, ip: Avma) -> Option<Avma> {
        self.marks.range(ip.0..).next().copied().map(Avma)
    }

    fn kind(&self, _: FunctionId) -> FunctionKind {
        FunctionKind::Symbol
    }

    fn object(&self, _: FunctionId) -> Option<ObjectId> {
        Some(ObjectId(0))
    }
}
