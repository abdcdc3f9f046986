//! Where an exception would go: which frames stand on a stack, and which objects have handlers.
//!
//! An exception passes through the frames that the unwinder of the program finds, by the tables of
//! `.eh_frame`, and through no others: code without an entry there ends its way.  So the same tables say
//! which frames it can reach.

use std::cell::RefCell;
use std::rc::Rc;

use model::{Avma, FunctionId, FunctionLookup, ObjectId, SpaceId, Svma};
use rustc_hash::FxHashMap;

use crate::elf::Elf;
use crate::elf::unwind_table::{Caller, ReadStack, UnwindRegisters, UnwindTable};
use crate::image::Image;
use crate::object::object_file::is_loader;

/// Frames of a stack that are followed.
const FRAMES_MAX: usize = 1024;

/// A frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackFrame {
    /// Its function.
    pub function: FunctionId,
    /// The object of its code.
    pub object: ObjectId,
    /// Its own code has a handler: for exceptions, or for clean-up before they pass.
    pub has_handler: bool,
}

/// Where the way up a stack has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackEnd {
    /// Where a thread or the program begins: these are all frames.
    Start,
    /// At code that no table has.
    NoTable(Avma),
    /// At code with an unknown caller: the part of the stack that was kept does not have it, or the table
    /// contradicts it.
    Unknown(Avma),
}

/// The way up a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackWalk {
    /// Innermost first.
    pub frames: Vec<StackFrame>,
    /// Whether there are more.
    pub end: StackEnd,
}

/// What the objects of an image have for exceptions; each table is read when it is asked for first.
pub struct Unwinding<'i> {
    image: &'i Image,
    tables: RefCell<FxHashMap<ObjectId, Option<Rc<UnwindTable<'i>>>>>,
}

impl<'i> Unwinding<'i> {
    /// Of an image.
    #[must_use]
    pub fn new(image: &'i Image) -> Self {
        Self { image, tables: RefCell::default() }
    }

    /// Some code of the object has a handler, or its table is damaged, so that some may have.
    #[must_use]
    pub fn has_handlers(&self, object: ObjectId) -> bool {
        self.elf(object).is_none_or(|elf| elf.has_section(".gcc_except_table"))
            || self.table(object).is_some_and(|table| table.has_handlers)
    }

    /// A function's own code has a handler.
    #[must_use]
    pub fn is_handler(&self, function: FunctionId) -> bool {
        let Some(object) = self.image.object(function) else { return true };
        let Some(table) = self.table(object) else { return false };
        let parts = self.image.function_parts(function).into_iter();
        parts
            .map(|(Svma(start), _)| start)
            .any(|start| table.at(start).is_some_and(|entry| entry.has_handler))
    }

    /// The first of these functions that an object imports.
    #[must_use]
    pub fn imported(&self, object: ObjectId, names: &[&'static str]) -> Option<&'static str> {
        let elf = self.elf(object)?;
        names.iter().copied().find(|name| elf.imports(&[name]))
    }

    /// The C library or the dynamic loader: threads and the program begin there.  Its handlers stop no
    /// exception; they release what its own functions hold when a thread is cancelled.
    #[must_use]
    pub fn is_c_library(&self, object: ObjectId) -> bool {
        let name = self.image.object_basename(object);
        ["libc.so.", "libc-", "libpthread.so.", "libpthread-"].iter().any(|start| name.starts_with(start))
            || is_loader(name)
    }

    /// The frame of a function at an instruction, if its table tells: the address above its return address
    /// (CFA) as an offset, from `rbp` if the flag is set, else from `rsp`.
    #[must_use]
    pub fn frame_at(&self, object: ObjectId, svma: Svma) -> Option<(bool, u64)> {
        self.table(object)?.cfa(svma.0)
    }

    /// The frames of a stack, from the one with these registers on, which is at an instruction that is about
    /// to be executed.
    #[must_use]
    pub fn walk(&self, space: SpaceId, registers: UnwindRegisters, stack: ReadStack<'_>) -> StackWalk {
        let mut frames = Vec::new();
        let mut registers = registers;
        // After a call stands the next instruction, which may be another function's.
        let mut back = 0;
        let end = loop {
            let here = Avma(registers.instruction());
            let at = Avma(here.0.wrapping_sub(back));
            let Some((object, svma)) = self.image.place(space, at) else { break StackEnd::NoTable(here) };
            let Some(table) = self.table(object) else { break StackEnd::NoTable(here) };
            let Some(entry) = table.at(svma.0) else { break StackEnd::NoTable(here) };
            let function = self.image.function_at_place(object, svma).id;
            frames.push(StackFrame { function, object, has_handler: entry.has_handler });
            let caller = match table.caller(entry, svma.0, &registers, stack) {
                Some(Caller::Frame(caller)) => caller,
                Some(Caller::None) if self.is_start(object, svma) => break StackEnd::Start,
                Some(Caller::None) | None => break StackEnd::Unknown(here),
            };
            // Handlers of signals may have a stack of their own.
            let goes_up = entry.is_signal || caller.stack_pointer() > registers.stack_pointer();
            if !goes_up || frames.len() >= FRAMES_MAX {
                break StackEnd::Unknown(here);
            }
            back = u64::from(!entry.is_signal);
            registers = caller;
        };
        StackWalk { frames, end }
    }

    /// A thread or the program begins here, and not a stack that the program has made.
    fn is_start(&self, object: ObjectId, svma: Svma) -> bool {
        let is_entry = |elf: Elf<'_>| {
            let start = self.image.function_at_place(object, Svma(elf.start())).id;
            start == self.image.function_at_place(object, svma).id
        };
        self.is_c_library(object) || self.elf(object).is_some_and(is_entry)
    }

    fn elf(&self, object: ObjectId) -> Option<Elf<'i>> {
        self.image.loaded(object).and_then(|loaded| Elf::parse(&loaded.contents).ok())
    }

    fn table(&self, object: ObjectId) -> Option<Rc<UnwindTable<'i>>> {
        let read = || self.elf(object).and_then(|elf| UnwindTable::of(&elf)).map(Rc::new);
        self.tables.borrow_mut().entry(object).or_insert_with(read).clone()
    }
}
