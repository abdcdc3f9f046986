//! What `bpf/sched.bpf.c` writes, byte by byte: `bpf/sched.h`.
//!
//! A test holds the sizes and places against the types that the compiled object has.

use model::{Cpu, Pid, SchedBody, SchedEvent, SchedTask, Tid};

use crate::waker_stack::WakerStack;
use crate::wire::{long, stack, word};

/// Bytes of a `struct sched_event`, without the user's stack, which is there if it was asked for.
const EVENT_BYTES: usize = 344;
/// `USER_STACK_LEN`.
const USER_STACK_LEN: usize = 16;
const FIRST_AT: usize = 32;
const SECOND_AT: usize = 56;
const STACK_AT: usize = 88;
/// `STACK_LEN`.
const STACK_LEN: usize = 32;

/// `enum by`: what the numbers in the map `wanted` are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Process = 0,
    Thread = 1,
    Cpu = 2,
}

/// A `struct settings`.
pub(crate) fn settings(by: By, follow: bool, stack: WakerStack) -> [u8; 12] {
    let words = [by as u32, u32::from(follow), u32::from(stack == WakerStack::User)];
    let mut bytes = [0; 12];
    bytes.chunks_exact_mut(4).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_ne_bytes()));
    bytes
}

/// A record of the ring; `None`: it is none of ours.
pub(crate) fn event(bytes: &[u8]) -> Option<SchedEvent> {
    let (bytes, user_stack) = bytes.split_at_checked(EVENT_BYTES)?;
    let (first, second) = (task(bytes, FIRST_AT), task(bytes, SECOND_AT));
    let body = match bytes.get(84)? {
        0 => SchedBody::Switch {
            prev: first,
            state: long(bytes, 8),
            syscall: u32::try_from(word(bytes, 28) as i32).ok(),
            next: second,
        },
        _ => SchedBody::Waking {
            woken: first,
            target: Cpu(word(bytes, 80)),
            is_interrupt: *bytes.get(85)? != 0,
            waker_name: second.name,
        },
    };
    Some(SchedEvent {
        monotonic_ns: long(bytes, 0),
        cpu: Cpu(word(bytes, 24)),
        pid: Pid(word(bytes, 16) as i32),
        tid: Tid(word(bytes, 20) as i32),
        stack: stack(bytes, STACK_AT, STACK_LEN),
        user_stack: stack(user_stack, 0, USER_STACK_LEN),
        body,
    })
}

fn task(bytes: &[u8], at: usize) -> SchedTask {
    let mut name = [0; 16];
    // What is after the zero was there before.
    let text = bytes.get(at + 8..at + 24).unwrap_or_default().iter().take_while(|byte| **byte != 0);
    name.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
    SchedTask { tid: Tid(word(bytes, at) as i32), name, priority: word(bytes, at + 4) as i32 }
}

#[cfg(test)]
mod tests {
    use libbpf_rs::btf::types::{MemberAttr, Struct};
    use libbpf_rs::btf::{Btf, HasSize};

    use super::*;

    #[test]
    fn the_object_has_these_structures() {
        let btf = Btf::from_raw("sched", crate::sched::OBJECT).unwrap().unwrap();
        let check = |name: &str, bytes: usize, fields: &[(&str, usize)]| {
            let of: Struct<'_> = btf.type_by_name(name).unwrap_or_else(|| panic!("struct {name}"));
            assert_eq!(of.size(), bytes, "{name}");
            for (field, at) in fields {
                let member = of.iter().find(|m| m.name.is_some_and(|n| n == *field)).unwrap();
                let MemberAttr::Normal { offset } = member.attr else { panic!("{field}") };
                assert_eq!(offset as usize / 8, *at, "{name}.{field}");
            }
        };
        check("settings", 12, &[("by", 0), ("follow", 4), ("waker_stacks", 8)]);
        check("sched_task", 24, &[("tid", 0), ("priority", 4), ("comm", 8)]);
        let event = [
            ("time", 0),
            ("state", 8),
            ("pid", 16),
            ("tid", 20),
            ("cpu", 24),
            ("syscall", 28),
            ("first", FIRST_AT),
            ("second", SECOND_AT),
            ("target", 80),
            ("is_waking", 84),
            ("is_interrupt", 85),
            ("stack", STACK_AT),
            ("user_stack", EVENT_BYTES),
        ];
        check("sched_event", EVENT_BYTES + 8 * USER_STACK_LEN, &event);
    }

    #[test]
    fn a_name_ends_at_its_zero() {
        let mut bytes = vec![0; EVENT_BYTES];
        bytes[FIRST_AT + 8..FIRST_AT + 24].copy_from_slice(b"ab\0cdefghijklmno");
        let SchedBody::Switch { prev, .. } = event(&bytes).unwrap().body else { panic!("no switch") };
        assert_eq!(prev.name, *b"ab\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
        assert_eq!(event(&bytes[1..]), None);
    }
}
