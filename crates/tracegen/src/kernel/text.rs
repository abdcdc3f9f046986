//! The made-up kernel's code: as much of Linux as control flow shows.
//!
//! ```text
//! entry_SYSCALL_64 - do_syscall_64 - (table) - work.. | schedule
//! asm_sysvec_* , asm_exc_* - handler - irqentry_exit - (preempt_schedule_irq)
//! schedule - __schedule - __perf_event_task_sched_out - pt_event_stop    tracing of the thread ends
//!                       - __switch_to_asm - __switch_to
//!                       - finish_task_switch - __perf_event_task_sched_in - pt_event_start   ... and begins
//! ```
//! What real kernels do in between is made up: functions with loops, calls, jump tables and tail calls.

use super::assemble::{Assembled, Assembler, Choice, Mark};
use crate::rng::Rng;

/// Working functions.
pub(super) const WORKERS: usize = 24;

/// Name of a working function.
pub(super) fn worker(number: usize) -> String {
    format!("work_{number}")
}

/// Writes all of the text.
pub(super) fn assemble(base: u64, slide: u64) -> Assembled {
    let mut a = Assembler::default();
    a.function("_text");
    a.plain(20);
    a.ret();
    entries(&mut a);
    scheduler(&mut a);
    perf(&mut a);
    let mut rng = Rng::new(base);
    (0..WORKERS).for_each(|number| work(&mut a, number, &mut rng));
    a.finish(base, slide)
}

fn entries(a: &mut Assembler) {
    a.function("entry_SYSCALL_64");
    a.plain(12);
    a.call("do_syscall_64");
    a.label("exit_to_user");
    a.plain(4);
    a.conditional("slow_exit", Choice::Taken(0.1));
    a.plain(6);
    a.sysret();
    a.label("slow_exit");
    a.plain(9);
    a.iret();

    a.function("ret_from_fork_asm");
    a.plain(2);
    a.call("finish_task_switch");
    a.call("syscall_exit_to_user_mode");
    a.jump("exit_to_user");

    a.function("do_syscall_64");
    a.plain(7);
    a.conditional("do_syscall_64.known", Choice::Taken(0.8));
    a.call(&worker(WORKERS - 1));
    a.label("do_syscall_64.known");
    a.call_indirect(Choice::SystemCall);
    a.plain(2);
    a.call("syscall_exit_to_user_mode");
    a.ret();

    a.function("syscall_exit_to_user_mode");
    a.plain(3);
    a.conditional("syscall_exit_to_user_mode.done", Choice::Taken(0.9));
    a.call(&worker(WORKERS - 2));
    a.label("syscall_exit_to_user_mode.done");
    a.ret();

    for (name, waits) in [("__x64_sys_work", false), ("__x64_sys_wait", true)] {
        a.function(name);
        a.plain(3);
        a.call_indirect(Choice::Work(0));
        if waits {
            a.call("schedule");
            a.plain(5);
        }
        a.call_indirect(Choice::Work(WORKERS / 2));
        a.ret();
    }

    for name in ["asm_sysvec_apic_timer_interrupt", "asm_exc_page_fault"] {
        a.function(name);
        a.plain(14);
        a.call("handle_interrupt");
        a.jump("error_return");
    }
    a.function("error_return");
    a.plain(8);
    a.iret();

    a.function("handle_interrupt");
    a.plain(2);
    a.call_indirect(Choice::Work(WORKERS / 3));
    a.call("irqentry_exit");
    a.ret();

    a.function("irqentry_exit");
    a.plain(3);
    a.conditional("irqentry_exit.reschedule", Choice::TakenToReschedule);
    a.ret();
    a.label("irqentry_exit.reschedule");
    a.call("__schedule");
    a.jump("irqentry_exit.end");
    a.label("irqentry_exit.end");
    a.ret();

    a.function("asm_exc_nmi");
    a.plain(11);
    a.call("perf_event_nmi_handler");
    a.plain(4);
    a.iret();
}

fn scheduler(a: &mut Assembler) {
    a.function("schedule");
    a.plain(3);
    a.call("__schedule");
    a.plain(2);
    a.ret();

    a.function("__schedule");
    a.plain(17);
    a.conditional("__schedule.picked", Choice::Taken(0.5));
    a.plain(6);
    a.label("__schedule.picked");
    a.call("__perf_event_task_sched_out");
    a.plain(4);
    a.call("__switch_to_asm");
    a.call("finish_task_switch");
    a.plain(3);
    a.ret();

    a.function("__switch_to_asm");
    a.plain(9);
    a.jump("__switch_to");

    a.function("__switch_to");
    a.plain(22);
    a.ret();

    a.function("finish_task_switch");
    a.plain(5);
    a.call("__perf_event_task_sched_in");
    a.plain(2);
    a.ret();
}

fn perf(a: &mut Assembler) {
    const WRMSR: &[u8] = &[0x0f, 0x30];
    a.function("__perf_event_task_sched_out");
    a.plain(4);
    a.conditional("__perf_event_task_sched_out.record", Choice::Taken(0.5));
    a.plain(2);
    a.label("__perf_event_task_sched_out.record");
    a.mark(Mark::SwitchOut);
    a.plain(30);
    a.call("pt_event_stop");
    a.ret();

    a.function("pt_event_stop");
    a.plain(5);
    a.mark(Mark::TraceOff);
    a.instruction(WRMSR);
    a.plain(3);
    a.ret();

    a.function("__perf_event_task_sched_in");
    a.plain(5);
    a.call("pt_event_start");
    a.mark(Mark::SwitchIn);
    a.plain(25);
    a.conditional("__perf_event_task_sched_in.end", Choice::Taken(0.5));
    a.plain(3);
    a.label("__perf_event_task_sched_in.end");
    a.ret();

    a.function("pt_event_start");
    a.plain(8);
    a.instruction(WRMSR);
    a.mark(Mark::TraceOn);
    a.plain(2);
    a.ret();

    a.function("perf_event_nmi_handler");
    a.plain(6);
    a.call("pt_event_stop");
    a.plain(40);
    a.call("pt_event_start");
    a.ret();
}

/// A function of a few parts.  It calls only those with higher numbers, so that every walk ends.
fn work(a: &mut Assembler, number: usize, rng: &mut Rng) {
    let name = worker(number);
    let last = number + 1 == WORKERS;
    a.function(&name);
    a.plain(2);
    for part in 0..2 + rng.bits() as usize % 4 {
        let label = |what: &str| format!("{name}.{part}.{what}");
        let later = number + 1 + rng.bits() as usize % (WORKERS - number).max(1);
        let later = worker(later.min(WORKERS - 1));
        match rng.bits() % 6 {
            0 | 1 => {
                a.conditional(&label("else"), Choice::Taken(0.4));
                a.plain(3 + rng.bits() as usize % 9);
                a.jump(&label("end"));
                a.label(&label("else"));
                a.plain(2);
                a.label(&label("end"));
            }
            2 => {
                a.label(&label("loop"));
                a.plain(5);
                a.conditional(&label("loop"), Choice::Taken(0.7));
            }
            3 if !last => a.call(&later),
            4 if !last => a.call_indirect(Choice::Work(number + 1)),
            5 if !last && part > 0 => {
                a.patched_jump(&label("patched"));
                a.conditional(&label("patched"), Choice::Taken(0.5));
                a.plain(4);
                a.label(&label("patched"));
            }
            _ => a.plain(6),
        }
        a.plain(1);
    }
    match rng.bits() % 4 {
        0 if !last => a.jump(&worker(number + 1)), // tail calls
        1 if !last => a.jump_indirect(Choice::Work(number + 1)),
        _ => a.ret(),
    }
}
