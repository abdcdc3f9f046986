//! Any bytes as an object that was mapped.

use image::{Image, ImageOptions, Query};
use model::{Avma, CodeSource as _, FunctionId, FunctionLookup as _, Ns, ObjectId, Svma};

use crate::{program, scratch};

const START: u64 = 0x10_0000;
const LEN: u64 = 0x10_0000;
/// Addresses that are asked for are so far apart; functions that are shown are at most so many.
const STRIDE: usize = 37;
const MAX_FUNCTIONS: usize = 64;

/// It is refused for a reason that can be shown, or answers every question.
///
/// # Panics
/// If neither, or if answers contradict each other.
pub fn elf(bytes: &[u8]) {
    let path = scratch::file("object", bytes);
    let image = Image::load(&[program::mapping(&path, START, LEN)], &ImageOptions::default());
    image.problems().iter().for_each(|problem| assert!(!problem.what.is_empty()));
    let space = image.space(program::PID, Ns(0));
    let mut functions = vec![];
    for ip in (START..START + LEN).step_by(STRIDE).map(Avma).take(bytes.len()) {
        let at = image.function_at(space, ip);
        match image.code(space, ip) {
            Ok(code) => assert!(!code.is_empty()),
            Err(_) => continue,
        }
        assert!(!image.site_name(space, ip).is_empty());
        if at.id != FunctionId::UNKNOWN && functions.len() < MAX_FUNCTIONS && !functions.contains(&at.id) {
            functions.push(at.id);
        }
    }
    functions.iter().for_each(|id| describe(&image, *id));
    ask(&image, functions.first().copied());
}

/// All that is shown of one function.
fn describe(image: &Image, id: FunctionId) {
    assert!(!image.function_name(id).is_empty() && !image.function_full_name(id).is_empty());
    assert_eq!(image.object(id), Some(ObjectId(0)));
    let _ = image.kind(id);
    let _ = image.function_symbols(id);
    let _ = image.function_size(id);
    let _ = image.function_parts(id);
    let Some(entry) = image.function_entry(id) else { return };
    let _ = image.source_line_at(ObjectId(0), entry);
    let _ = image.source_line_at(ObjectId(0), Svma(entry.0.wrapping_add(5)));
}

/// All ways to ask for a function.
fn ask(image: &Image, any: Option<FunctionId>) {
    let symbol = any.and_then(|id| image.function_symbols(id).into_iter().next()).unwrap_or_default();
    let entry = any.and_then(|id| image.function_entry(id)).unwrap_or_default();
    let by_place = format!("object+{:#x}", entry.0);
    for text in [&symbol, "main", "f*", "[a-g]?*", "guarded", "object:leaf", "0x100400", &by_place] {
        let query = Query { text: text.to_owned(), object: None };
        match image.find(&query) {
            Ok(found) => assert!(!found.is_empty(), "{text}"),
            Err(error) => assert!(!error.to_string().is_empty(), "{text}"),
        }
    }
    let _ = image.stack_switchers();
    let _ = image.inlined_sites(&symbol, None);
}
