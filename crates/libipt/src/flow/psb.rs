//! PSBs: where libipt starts, and what the one after a segment says.

use decoder::{Context, Segment};
use model::{Avma, GapCause, Ns, SpaceId};

use super::{Flow, State};
use crate::abi;
use crate::config::config;
use crate::memory::Memory;
use crate::runs::{Run, tail};
use crate::sys::{InsnDecoder, Status};
use crate::when::Clock;

/// What the PSB+ after a segment says.
pub(super) struct NextPsb {
    /// Where execution is; `None`: tracing is off.
    pub(super) ip: Option<Avma>,
    /// When.
    pub(super) time: Option<Ns>,
}

/// Reads the PSB+ after a segment; `None` if there is none that is whole.
pub(super) fn after(context: &Context<'_>, segment: &Segment<'_>) -> Option<NextPsb> {
    if segment.last {
        return None;
    }
    let bytes = tail(segment);
    let memory = Memory::new(context.code, SpaceId::default());
    let mut decoder = InsnDecoder::new(config(context.recording), &bytes, memory)?;
    let mut status = decoder.sync_forward();
    if status.error().is_some() || decoder.sync_offset() != 0 {
        return None;
    }
    let time = decoder.time().map(|tsc| Clock::new(context).ns(tsc));
    if !status.is_enabled() {
        return Some(NextPsb { ip: None, time });
    }
    while status.event_pending() {
        let (event, next) = decoder.event();
        let [_, ip, _] = event.variant;
        match event.kind {
            abi::event::EXEC_MODE if event.bits & abi::event_bits::IP_SUPPRESSED == 0 => {
                return Some(NextPsb { ip: Some(Avma(ip)), time });
            }
            abi::event::OVERFLOW => return None, // PSB+ ends with it
            _ => status = next,
        }
    }
    // Known also where there is no code.
    let (insn, _) = decoder.next();
    (insn.ip != 0).then_some(NextPsb { ip: Some(Avma(insn.ip)), time })
}

/// Bytes of padding (PAD) at the beginning, which are no trace.
fn padding(run: &Run<'_>) -> usize {
    run.bytes.iter().take_while(|byte| **byte == 0).count()
}

impl Flow<'_> {
    /// libipt stands after a PSB+.
    pub(super) fn synchronise(&mut self, decoder: &mut InsnDecoder<'_>, run: &Run<'_>, status: Status) {
        let psb = run.start.plus(decoder.sync_offset());
        let skipped = usize::try_from(decoder.sync_offset()).unwrap_or(usize::MAX);
        let is_first = run.start == self.segment.start();
        let padding = padding(run);
        if !matches!(self.state, State::Lost(_)) && is_first && padding < skipped {
            self.read_clock(decoder);
            self.lose(GapCause::NoSync, run.start.plus(padding as u64), true);
        }
        self.read_clock(decoder);
        self.attribute(decoder);
        match &mut self.state {
            State::Lost(lost) => {
                lost.psb = lost.psb.or(Some(psb));
                lost.synchronised = true;
                if !status.is_enabled() {
                    self.close_gap(self.running, self.now);
                    self.state = State::Off;
                }
            }
            _ if status.is_enabled() => {
                self.state = State::Synchronised { seen: !self.segment.first };
            }
            state => *state = State::Off,
        }
    }

    /// There is no PSB (any more).
    pub(super) fn no_psb(&mut self, run: &Run<'_>) {
        let padding = padding(run);
        if padding < run.bytes.len() {
            self.lose(GapCause::NoSync, run.start.plus(padding as u64), true);
        }
    }

    /// The segment is over: holds the state against what the PSB after it says.
    pub(super) fn finish(&mut self, next: Option<&NextPsb>) {
        let Some(next) = next else {
            return self.finish_stream();
        };
        let contradiction = match (self.state, next.ip) {
            (State::Lost(_), _) | (State::Off, None) => None,
            (State::Off, Some(ip)) => Some(ip),
            (State::On(_) | State::Synchronised { .. }, _) if self.at_goal => None,
            (State::On(Some(left)), _) => Some(Avma(left.insn.ip)),
            (State::On(None) | State::Synchronised { .. }, ip) => ip.or(Some(Avma(0))),
        };
        if let Some(ip) = contradiction {
            self.lose(GapCause::Desync { ip }, self.segment.end, false);
        }
        if let State::Lost(lost) = &mut self.state {
            lost.psb = lost.psb.or(Some(self.segment.end));
            self.attribute_at(next.time.unwrap_or(self.now));
            match next.ip {
                Some(ip) => self.arrive(ip, self.segment.end),
                None => self.close_gap(self.running, self.now),
            }
        }
    }
}
