//! Stacks of calls that were counted: `bpf/stacks.h`.

use std::cell::RefCell;
use std::rc::Rc;

use libbpf_rs::{RingBuffer, RingBufferBuilder};
use model::{Pid, Tid};

use crate::error::BpfError;
use crate::programs::Programs;
use crate::wire::{long, word};

/// The stack at the entry of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackSeen {
    /// Which of the probed functions, by its place among them.
    pub function: usize,
    /// Process.
    pub pid: Pid,
    /// Thread.
    pub tid: Tid,
    /// Registers, by their numbers in unwind tables; the last is the address of the function's first
    /// instruction.
    pub registers: [u64; REGISTERS],
    /// Address of the first byte that was kept.
    base: u64,
    /// What was kept: up to [`KEPT_BYTES`], or to where memory ends.
    bytes: Vec<u8>,
}

const REGISTERS: usize = 17;
const BASE_AT: usize = 8 * REGISTERS;
const FUNCTION_AT: usize = BASE_AT + 8;
const BYTES_AT: usize = FUNCTION_AT + 12;
const KEPT_AT: usize = BYTES_AT + 4;
/// What is kept of a stack, at most.
const KEPT_BYTES: usize = 9 * 4096;
/// Bytes of a `struct seen_stack`.
const STACK_BYTES: usize = KEPT_AT + KEPT_BYTES;

/// Bytes of all stacks that are kept of a run.
const ALL_BYTES_MAX: usize = 32 << 20;

/// The ring.
pub(crate) struct Stacks {
    ring: RingBuffer<'static>,
    kept: Rc<RefCell<Vec<StackSeen>>>,
}

impl Stacks {
    /// Of these programs.
    pub(crate) fn of(programs: &Programs) -> Result<Self, BpfError> {
        let failed = BpfError::other("cannot read the ring of stacks");
        let kept = Rc::new(RefCell::new(Vec::new()));
        let (keep, mut all_bytes) = (Rc::clone(&kept), 0);
        let map = programs.map("stacks")?;
        let mut builder = RingBufferBuilder::new();
        let take = move |bytes: &[u8]| {
            if let Some(stack) = StackSeen::of(bytes).filter(|_| all_bytes < ALL_BYTES_MAX) {
                all_bytes += stack.len();
                keep.borrow_mut().push(stack);
            }
            0
        };
        builder.add(&map, take).map_err(&failed)?;
        let ring = builder.build().map_err(&failed)?;
        Ok(Self { ring, kept })
    }

    /// Those that were kept since the last time.
    pub(crate) fn read(&self) -> Result<Vec<StackSeen>, BpfError> {
        self.ring.consume().map_err(BpfError::other("cannot read the ring of stacks"))?;
        Ok(self.kept.take())
    }
}

impl StackSeen {
    /// Of a record of the ring.
    pub(crate) fn of(record: &[u8]) -> Option<Self> {
        let record = record.get(..STACK_BYTES)?;
        let mut registers = [0; REGISTERS];
        for (at, register) in (0..).step_by(8).zip(&mut registers) {
            *register = long(record, at);
        }
        let bytes = (word(record, BYTES_AT) as usize).min(KEPT_BYTES);
        Some(Self {
            function: word(record, FUNCTION_AT) as usize,
            pid: Pid(word(record, FUNCTION_AT + 4) as i32),
            tid: Tid(word(record, FUNCTION_AT + 8) as i32),
            registers,
            base: long(record, BASE_AT),
            bytes: record.get(KEPT_AT..KEPT_AT + bytes)?.to_vec(),
        })
    }

    /// Bytes that were kept.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The eight bytes at an address; `None`: they were not kept.
    #[must_use]
    pub fn word(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.base)?).ok()?;
        Some(u64::from_ne_bytes(*self.bytes.get(at..)?.first_chunk()?))
    }
}

#[cfg(test)]
mod tests {
    use libbpf_rs::btf::types::{MemberAttr, Struct};
    use libbpf_rs::btf::{Btf, HasSize};

    use super::*;

    #[test]
    fn the_object_has_this_structure() {
        let btf = Btf::from_raw("probes", crate::programs::OBJECT).unwrap().unwrap();
        let of: Struct<'_> = btf.type_by_name("seen_stack").unwrap();
        assert_eq!(of.size(), STACK_BYTES);
        for (field, at) in
            [("base", BASE_AT), ("function", FUNCTION_AT), ("bytes", BYTES_AT), ("kept", KEPT_AT)]
        {
            let member = of.iter().find(|m| m.name.is_some_and(|name| name == field)).unwrap();
            let MemberAttr::Normal { offset } = member.attr else { panic!("{field}") };
            assert_eq!(offset as usize / 8, at, "{field}");
        }
    }

    #[test]
    fn words_are_those_that_were_kept() {
        let mut record = vec![0; STACK_BYTES];
        record[BASE_AT..BASE_AT + 8].copy_from_slice(&0x7000u64.to_ne_bytes());
        record[BYTES_AT..BYTES_AT + 4].copy_from_slice(&4096u32.to_ne_bytes());
        record[KEPT_AT + 8] = 7;
        let stack = StackSeen::of(&record).unwrap();
        assert_eq!((stack.word(0x7008), stack.word(0x7ff8), stack.len()), (Some(7), Some(0), 4096));
        assert_eq!((stack.word(0x6fff), stack.word(0x7ff9), stack.word(u64::MAX)), (None, None, None));
        assert_eq!(StackSeen::of(&record[1..]), None);
    }
}
