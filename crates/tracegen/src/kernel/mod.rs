//! A made-up kernel below the real program: code to walk for each system call, interrupt and switch.
//!
//! The log has user code only. What the kernel does in between is a random walk over a small text with
//! Linux's entries, scheduler and perf hooks ([`text`]); its packets and its truth are as exact as the
//! program's. The text is also written as the file that a decoder needs, `vmlinux` ([`elf`]), linked at the
//! usual address and run elsewhere.

mod assemble;
mod elf;
mod stay;
mod text;

use std::collections::HashMap;

use model::Avma;

use crate::block::{Block, Terminator};
use crate::rng::Rng;
use assemble::Assembled;
use assemble::Choice;
use text::{WORKERS, worker};

pub(crate) use assemble::Mark;
pub(crate) use elf::{build_id, kallsyms, kcore, vmlinux};
pub(crate) use stay::{KernelEntry, Plan, Stay};

/// Where the kernel is linked (`__START_KERNEL` in arch/x86/kernel/vmlinux.lds.S).
const LINKED_AT: u64 = 0xffff_ffff_8100_0000;
/// How much further up it runs: what KASLR chose.
const SLIDE: u64 = 0x1b40_0000;

/// The kernel.
#[derive(Debug)]
pub(crate) struct Kernel {
    text: Assembled,
    by_start: HashMap<Avma, u32>,
    workers: Vec<u32>,
}

impl Kernel {
    /// `patched`: it has switched static keys on since it was loaded, so that its code is not what `vmlinux`
    /// has.
    pub(crate) fn new(patched: bool) -> Self {
        let mut text = text::assemble(LINKED_AT, SLIDE);
        if !patched {
            text.linked_bytes.clone_from(&text.bytes);
        }
        let by_start = text.blocks.iter().enumerate().map(|(id, block)| (block.start, id as u32)).collect();
        let mut kernel = Self { text, by_start, workers: vec![] };
        kernel.workers = (0..WORKERS).map(|number| kernel.entry(&worker(number))).collect();
        kernel
    }

    /// Address and size of the text as it runs.
    pub(crate) fn range(&self) -> (Avma, u64) {
        (Avma(LINKED_AT + SLIDE), self.text.bytes.len() as u64)
    }

    /// Address and size of a function as it runs.
    pub(crate) fn function(&self, name: &str) -> Option<(Avma, u64)> {
        let function = self.text.functions.iter().find(|function| function.name == name)?;
        Some((Avma(function.start + SLIDE), function.size))
    }

    /// The first block of a function.
    fn entry(&self, name: &str) -> u32 {
        self.function(name).and_then(|(start, _)| self.by_start.get(&start).copied()).unwrap_or(0)
    }

    fn block(&self, id: u32) -> Block {
        self.text.blocks[id as usize]
    }

    fn mark(&self, id: u32) -> Option<Mark> {
        self.text.marks[id as usize]
    }

    /// The block at the target of a direct branch.
    fn target(&self, block: &Block) -> u32 {
        self.by_start.get(&block.target).copied().unwrap_or(0)
    }

    /// The block that runs after `id`; `None` if its end leaves the kernel.
    fn next(&self, id: u32, stay: &mut Stay, rng: &mut Rng) -> Option<u32> {
        let block = self.block(id);
        let choice = self.text.choices[id as usize];
        let gives_way = stay.plan == Plan::GiveWay;
        let chosen = match choice {
            Choice::Work(first) => self.workers[first + rng.bits() as usize % (WORKERS - first)],
            Choice::SystemCall => self.entry(if gives_way { "__x64_sys_wait" } else { "__x64_sys_work" }),
            Choice::None | Choice::Taken(_) | Choice::TakenToReschedule => self.target(&block),
        };
        Some(match block.terminator {
            Terminator::Conditional => {
                let taken = match choice {
                    Choice::Taken(probability) => rng.happens(probability),
                    _ => gives_way,
                };
                if taken { chosen } else { id + 1 }
            }
            Terminator::Call | Terminator::IndirectCall => {
                stay.callers.push(id + 1);
                chosen
            }
            Terminator::Return => stay.callers.pop()?,
            Terminator::Jump | Terminator::IndirectJump => chosen,
            Terminator::FallThrough => id + 1,
            Terminator::Syscall | Terminator::FarReturn | Terminator::Invalid => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_where_the_one_before_leads() {
        let kernel = Kernel::new(false);
        for (id, block) in kernel.text.blocks.iter().enumerate() {
            assert!(block.start <= block.last && block.last < block.end, "{block:x?}");
            match block.terminator {
                Terminator::Conditional | Terminator::Jump | Terminator::Call => {
                    assert!(kernel.by_start.contains_key(&block.target), "{block:x?}");
                }
                Terminator::FallThrough => assert_eq!(kernel.block(id as u32 + 1).start, block.end),
                _ => (),
            }
        }
    }

    #[test]
    fn a_system_call_comes_back_and_a_waiting_one_passes_the_scheduler() {
        let kernel = Kernel::new(false);
        let mut rng = Rng::new(1);
        for (plan, switches) in [(Plan::GoOn, 0), (Plan::GiveWay, 1)] {
            for _ in 0..200 {
                let mut stay = Stay::new(kernel.entry("entry_SYSCALL_64"), plan);
                let mut marks = vec![];
                let mut steps = 0;
                while let Some(next) = kernel.next(stay.at, &mut stay, &mut rng) {
                    stay.at = next;
                    marks.extend(kernel.mark(next));
                    steps += 1;
                    assert!(steps < 100_000);
                }
                assert!(stay.callers.is_empty());
                assert_eq!(kernel.block(stay.at).terminator, Terminator::FarReturn);
                assert_eq!(marks.iter().filter(|mark| **mark == Mark::SwitchOut).count(), switches);
                assert_eq!(marks.iter().filter(|mark| **mark == Mark::TraceOn).count(), switches);
            }
        }
    }
}
