//! Any bytes as a section of debugging or unwinding information in an object that is sound otherwise.

use std::sync::OnceLock;

use image::{Image, ImageOptions};
use model::{CodeSource as _, FunctionLookup as _, Ns, ObjectId, Svma};

use crate::input::Input;
use crate::program::{self, START};
use crate::scratch;

const SECTIONS: [&[u8]; 8] = [
    b".debug_line\0",
    b".debug_info\0",
    b".debug_abbrev\0",
    b".debug_str\0",
    b".debug_line_str\0",
    b".debug_rnglists\0",
    b".debug_aranges\0",
    b".eh_frame\0",
];
const LEN: u64 = 0x1000;
/// Addresses that are asked for are so far apart.
const STRIDE: usize = 13;

/// Every address has a line or none, and every name is inlined somewhere or nowhere.
///
/// # Panics
/// If an answer contradicts itself.
pub fn lines(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let name = SECTIONS[usize::from(input.byte()) % SECTIONS.len()];
    let object = with_section(program(), name, input.rest());
    let path = scratch::file("lines", &object);
    let image = Image::load(&[program::mapping(&path, START, LEN)], &ImageOptions::default());
    let space = image.space(program::PID, Ns(0));
    for address in (START..START + LEN).step_by(STRIDE) {
        if let Some(line) = image.source_line_at(ObjectId(0), Svma(address)) {
            assert!(!line.file.contains(char::from(0)) || line.line < u32::MAX);
        }
        let function = image.function_at(space, model::Avma(address)).id;
        assert!(!image.function_name(function).is_empty());
    }
    for function in ["leaf", "round_of", "guarded"] {
        let _ = image.inlined_sites(function, None);
    }
}

fn program() -> &'static [u8] {
    static PROGRAM: OnceLock<Vec<u8>> = OnceLock::new();
    PROGRAM.get_or_init(|| std::fs::read(program::directory().join("tiny")).unwrap())
}

/// The object with other bytes in its section of that name, or where it has none, in its last one: they
/// stand at its end.
fn with_section(object: &[u8], name: &[u8], content: &[u8]) -> Vec<u8> {
    let word = |at: usize| u64::from_le_bytes(object[at..at + 8].try_into().unwrap()) as usize;
    let half = |at: usize| usize::from(u16::from_le_bytes([object[at], object[at + 1]]));
    let (headers, size, count, names) = (word(40), half(58), half(60), half(62));
    let header = |index: usize| headers + index * size;
    let names = word(header(names) + 24);
    let name_at = |at: usize| names + u32::from_le_bytes(object[at..at + 4].try_into().unwrap()) as usize;
    let found = (0..count).map(header).find(|at| object[name_at(*at)..].starts_with(name));
    let header = found.unwrap_or(header(count - 1));
    let mut changed = object.to_vec();
    changed[header + 24..header + 32].copy_from_slice(&(object.len() as u64).to_le_bytes());
    changed[header + 32..header + 40].copy_from_slice(&(content.len() as u64).to_le_bytes());
    changed.extend_from_slice(content);
    changed
}
