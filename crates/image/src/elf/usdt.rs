//! USDT probes (`sys/sdt.h`): a `nop` in the code, and a note that says where it is.
//!
//! ```text
//!   .note.stapsdt   name "stapsdt", type 3; description: address of the nop, that of .stapsdt.base when
//!                   linked, that of the semaphore (or 0); then provider, name and arguments, each with a 0
//! ```
//! prelink moves code and leaves notes as they are: where `.stapsdt.base` is tells by how much.
//! <https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation>

use model::Svma;

use crate::elf::Elf;

const NOTE_TYPE: u32 = 3;

/// The most notes that are read: those of the largest servers are some hundreds.
const MAX_PROBES: usize = 1 << 16;

/// One place of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    pub(crate) provider: String,
    pub(crate) name: String,
    /// The `nop`.
    pub(crate) at: Svma,
    pub(crate) has_semaphore: bool,
}

/// The probes of an object.
pub(crate) fn probes(file: &[u8]) -> Vec<Probe> {
    let Ok(elf) = Elf::parse(file) else { return Vec::new() };
    let notes = elf.section(".note.stapsdt").unwrap_or_default();
    probes_of(notes, elf.section_address(".stapsdt.base"))
}

/// The probes of notes; `base`: where `.stapsdt.base` is now.
fn probes_of(mut notes: &[u8], base: Option<u64>) -> Vec<Probe> {
    let mut probes = Vec::new();
    while let Some((note, rest)) = first_note(notes)
        && probes.len() < MAX_PROBES
    {
        if note.kind == NOTE_TYPE && note.name == b"stapsdt\0" {
            probes.extend(probe(note.description, base));
        }
        notes = rest;
    }
    probes
}

struct Note<'n> {
    kind: u32,
    name: &'n [u8],
    description: &'n [u8],
}

/// The first note, and the bytes after it.
fn first_note(bytes: &[u8]) -> Option<(Note<'_>, &[u8])> {
    let (name_len, rest) = word(bytes)?;
    let (len, rest) = word(rest)?;
    let (kind, rest) = word(rest)?;
    let (name, rest) = aligned(rest, name_len)?;
    let (description, rest) = aligned(rest, len)?;
    Some((Note { kind, name, description }, rest))
}

fn word(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (word, rest) = bytes.split_first_chunk()?;
    Some((u32::from_le_bytes(*word), rest))
}

/// The first `len` bytes, and the rest from the next multiple of four on.
fn aligned(bytes: &[u8], len: u32) -> Option<(&[u8], &[u8])> {
    let len = usize::try_from(len).ok()?;
    let taken = bytes.get(..len)?;
    Some((taken, bytes.get(len.next_multiple_of(4)..).unwrap_or_default()))
}

fn probe(description: &[u8], base: Option<u64>) -> Option<Probe> {
    let (at, rest) = address(description)?;
    let (linked_base, rest) = address(rest)?;
    let (semaphore, rest) = address(rest)?;
    let mut texts = rest.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let moved = base.filter(|_| linked_base != 0).map_or(0, |base| base.wrapping_sub(linked_base));
    Some(Probe {
        provider: texts.next()?.into_owned(),
        name: texts.next()?.into_owned(),
        at: Svma(at.wrapping_add(moved)),
        has_semaphore: semaphore != 0,
    })
}

fn address(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (address, rest) = bytes.split_first_chunk()?;
    Some((u64::from_le_bytes(*address), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note_of(at: u64, base: u64, semaphore: u64, texts: &str) -> Vec<u8> {
        let description =
            [&at.to_le_bytes()[..], &base.to_le_bytes(), &semaphore.to_le_bytes(), texts.as_bytes()].concat();
        let mut note = [8, description.len() as u32, NOTE_TYPE].map(u32::to_le_bytes).concat();
        note.extend(b"stapsdt\0");
        note.extend(&description);
        note.resize(note.len().next_multiple_of(4), 0);
        note
    }

    fn probe(provider: &str, name: &str, at: u64, has_semaphore: bool) -> Probe {
        Probe { provider: provider.to_owned(), name: name.to_owned(), at: Svma(at), has_semaphore }
    }

    #[test]
    fn notes_say_where_probes_are() {
        let notes = [
            note_of(0x1010, 0x3000, 0, "db\0query__start\0-4@%edi\0"),
            note_of(0x1020, 0x3000, 0x5000, "db\0query__done\0\0"),
        ];
        let expected = [probe("db", "query__start", 0x1010, false), probe("db", "query__done", 0x1020, true)];
        assert_eq!(probes_of(&notes.concat(), Some(0x3000)), expected);
        // Prelinked by 0x100.
        assert_eq!(probes_of(&notes[0], Some(0x3100))[0].at, Svma(0x1110));
        assert_eq!(probes_of(&notes[0], None)[0].at, Svma(0x1010));
    }

    #[test]
    fn what_is_damaged_ends_the_list() {
        let note = note_of(1, 2, 0, "a\0b\0\0");
        for len in 0..note.len() - 3 {
            assert_eq!(probes_of(&note[..len], None), [], "{len}");
        }
        assert_eq!(probes_of(&[0xff; 64], None), []);
    }
}
