//! What to do about a loss.

use analyzer::{CauseLoss, Loss, Untimed};
use model::{Damage, GapCause};

use crate::render::Names;
use crate::render::units::{counted, duration, size};

/// Gaps that no share of time tells of.
pub(crate) fn untimed(loss: &Loss) -> Option<String> {
    let Untimed { count, bytes } = loss.untimed;
    (count > 0).then(|| {
        format!(
            "{} with {} of trace: how long they took, or whose they are, is not known, and --max-loss does not see them \
             (--max-loss 0 does)",
            counted(count, "gap"),
            size(bytes)
        )
    })
}

/// Why the command fails, if more was lost than is allowed: how much was lost, how much was allowed, mostly
/// why, and what helps.
pub(crate) fn too_much_lost(loss: &Loss, allowed_percent: f64, names: &dyn Names) -> Option<String> {
    let lost_percent = loss.percent();
    // None is none: a gap may have bytes and no time.
    let is_too_much = lost_percent > allowed_percent || allowed_percent == 0.0 && !loss.by_cause.is_empty();
    is_too_much.then(|| why(loss, lost_percent, allowed_percent, names))
}

/// Why the command fails if no loss is allowed, and the file is damaged: what the rest of it had is not
/// known.
pub(crate) fn not_all_there(damage: Option<&Damage>, allowed_percent: f64) -> Option<String> {
    let Damage { file_offset, what } = damage.filter(|_| allowed_percent == 0.0)?;
    Some(format!(
        "the recording is damaged at file offset {file_offset:#x} ({what}), and --max-loss allows 0 %: copy it whole, or record \
         again"
    ))
}

fn why(loss: &Loss, lost_percent: f64, allowed_percent: f64, names: &dyn Names) -> String {
    let lost = duration(loss.lost_ns);
    let gaps = counted(loss.by_cause.iter().map(|cause| cause.count).sum(), "gap");
    let text = format!(
        "{lost_percent:.3} % of the time was lost ({lost} in {gaps}); --max-loss allows {allowed_percent} %"
    );
    let Some(most) = CauseLoss::largest(&loss.by_cause) else { return text };
    let object = most.object().map_or_else(String::new, |id| format!(" of {}", names.object(id)));
    let tid = most.first.tid.0;
    let thread = if tid > 0 { format!("thread {tid}") } else { "an unknown thread".to_owned() };
    format!(
        "{text}. Most of it by {}{object} ({} in {}, first at AUX offset {} of {thread}): {}",
        most.cause.name(),
        duration(most.lost_ns),
        counted(most.count, "gap"),
        most.first.at,
        remedy(most.cause)
    )
}

/// What helps against losses of this cause.
const fn remedy(cause: GapCause) -> &'static str {
    match cause {
        GapCause::Overflow => {
            "the processor wrote trace faster than memory takes it: record less, with an IP filter \
             (-i; perf record --filter 'filter FUNC'), or without cyc (--pt_config cyc=0)"
        }
        GapCause::Truncated => {
            "the AUX buffer was full: make it larger (-m 64M; perf record -m,64M), or record fewer threads, or with an IP filter"
        }
        GapCause::DamagedPacket => "the file is damaged there: was it copied whole?",
        GapCause::Desync { .. } => {
            "trace and code contradict each other: is the file on disk the one that ran, and did the program write code \
             of its own (a jitdump with times of the TSC has it: JITDUMP_USE_ARCH_TIMESTAMP=1)?"
        }
        GapCause::MissingCode { .. } => {
            "the code that ran is not here: give the directory that has it (--symfs DIR), or take it along with \
             func_latency bundle; recorded with --pt_config noretcomp=1, calls of it cut nothing"
        }
        GapCause::UnmappedCode { .. } => {
            "the recording has no mapping of the code: record from the program's start, or with perf's own buffers larger \
             (-m 4M)"
        }
        GapCause::NarrowCode { .. } => {
            "code of 32 bits ran, which is not followed: record a program that is built for 64 bits, or leave other code out with \
             an IP filter (perf record --filter 'filter FUNC')"
        }
        GapCause::UnknownInstruction { .. } => {
            "the program has instructions that are newer than this disassembler: use a newer func_latency, or report the bytes there"
        }
        GapCause::Guest => {
            "a virtual machine ran, and only its host's code is followed: record the host alone (perf record -e intel_pt//uH)"
        }
        GapCause::UnknownThread => {
            "the recording does not say who ran: record with --switch-events, and larger buffers for it (-m 4M)"
        }
        GapCause::NoSync => "the trace begins before its first PSB: record for longer",
        GapCause::NotYetAttached => "threads ran before they were traced: record from the program's start",
        GapCause::UntracedCpu => {
            "threads ran on CPUs that were not traced: record without -C, or keep them there (taskset -cp CPUS PID)"
        }
        GapCause::BetweenSnapshots => {
            "snapshots have holes between them: record without -S, or take them more often"
        }
        GapCause::NotDecoded => {
            "decoding could not follow: watch with an IP filter (-i), more workers (-w) or a larger --spool"
        }
        GapCause::FullRing => {
            "calls ended faster than they were read: make the ring larger (-m 256M), or probe a function that is called less often"
        }
    }
}

#[cfg(test)]
mod tests {
    use analyzer::{GapPlace, Place};
    use model::{AuxOffset, FunctionId, Ns, ObjectId, Tid};

    use super::*;

    struct NoNames;

    impl Names for NoNames {
        fn function(&self, _: FunctionId) -> String {
            String::new()
        }

        fn object_of(&self, _: FunctionId) -> Option<String> {
            None
        }

        fn object(&self, _: ObjectId) -> String {
            String::new()
        }

        fn site(&self, _: Place) -> String {
            String::new()
        }

        fn line(&self, _: Place) -> Option<String> {
            None
        }
    }

    /// Bytes of an unknown thread could not be decoded, and `--max-loss 0` was content.
    #[test]
    fn no_gap_is_allowed_by_0_percent() {
        let first = GapPlace { time: Ns(5), tid: Tid(-1), at: AuxOffset(0x20) };
        let gap =
            CauseLoss { cause: GapCause::UnknownThread, count: 3, bytes: 812, lost_ns: 0, calls: 0, first };
        let untimed_gaps = Untimed { count: 3, bytes: 812 };
        let thread = analyzer::ThreadLoss {
            tid: Tid(1),
            window_ns: 100,
            observed_ns: 100,
            lost_ns: 0,
            outside_ns: None,
            by_cause: vec![],
        };
        let loss = Loss {
            threads: vec![thread],
            coverage: 1.0,
            by_cause: vec![gap],
            unowned: vec![gap],
            untimed: untimed_gaps,
            ..Loss::default()
        };
        let text = too_much_lost(&loss, 0.0, &NoNames).unwrap_or_default();
        assert!(
            text.starts_with("0.000 % of the time was lost (0 ns in 3 gaps); --max-loss allows 0 %. Most"),
            "{text}"
        );
        assert!(
            text.contains(
                "by unknown thread (0 ns in 3 gaps, first at AUX offset 0x20 of an unknown thread)"
            ),
            "{text}"
        );
        assert_eq!(too_much_lost(&loss, 0.001, &NoNames), None);
        let text = untimed(&loss).unwrap_or_default();
        assert!(text.starts_with("3 gaps with 812 B of trace: "), "{text}");
        let whole = Loss { coverage: 1.0, ..Loss::default() };
        assert_eq!((untimed(&whole), too_much_lost(&whole, 0.0, &NoNames)), (None, None));
    }
}
