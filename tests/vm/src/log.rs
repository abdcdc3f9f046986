//! The module's log becomes a ground truth file, as `tracegen` writes them.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use model::{Avma, Ns, Tid, Tsc, TscClock};
use tracegen::truth::{File, Flags, Kind, Writer, save};

/// `struct event` of `module/soft_pt.h`.
const EVENT_BYTES: usize = 32;

/// Reads the log, writes it as `truth` by the recording's clock, and opens that.
///
/// # Errors
/// A file cannot be read or written, or is none.
pub fn convert(log: &Path, clock: TscClock, truth: &Path) -> Result<File> {
    convert_parts(log, clock, truth, &|tid, _| Some(tid))
}

/// Converts a log in which a thread may stand for several, or for none: `part` says for which, from thread
/// and time.
///
/// # Errors
/// As [`convert`].
pub fn convert_parts(
    log: &Path,
    clock: TscClock,
    truth: &Path,
    part: &dyn Fn(Tid, Ns) -> Option<Tid>,
) -> Result<File> {
    let bytes = std::fs::read(log).with_context(|| log.display().to_string())?;
    let mut threads: BTreeMap<Tid, Writer> = BTreeMap::new();
    for (number, event) in bytes.chunks(EVENT_BYTES).enumerate() {
        let Some((kind, flags, tsc, from, to, tid)) = parse(event) else {
            bail!("{}: event {number} is none", log.display());
        };
        if let Some(tid) = part(Tid(tid), clock.to_ns(tsc)) {
            threads.entry(tid).or_default().event(kind, flags, tsc, from, to);
        }
    }
    let threads: Vec<(Tid, &Writer)> = threads.iter().map(|(tid, writer)| (*tid, writer)).collect();
    save(truth, clock, &threads).with_context(|| truth.display().to_string())?;
    Ok(File::load(truth)?)
}

/// `u64 tsc, from, to; u32 tid; u16 cpu; u8 kind, flags`.
fn parse(event: &[u8]) -> Option<(Kind, Flags, Tsc, Avma, Avma, i32)> {
    let number = |at: usize| Some(u64::from_le_bytes(*event.get(at..)?.first_chunk()?));
    let tid = i32::from_le_bytes(*event.get(24..)?.first_chunk()?);
    let kind = Kind::from_byte(*event.get(30)?)?;
    let flags = Flags::from_byte(*event.get(31)?);
    Some((kind, flags, Tsc(number(0)?), Avma(number(8)?), Avma(number(16)?), tid))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn an_event_is_where_the_module_puts_it() {
        let mut event = Vec::new();
        for number in [5_u64, 0x1000, 0x2000] {
            event.extend(number.to_le_bytes());
        }
        event.extend(77_u32.to_le_bytes());
        event.extend(1_u16.to_le_bytes());
        event.extend([4, 0x20]);
        let parsed = parse(&event).unwrap();
        assert_eq!(parsed, (Kind::Jump, Flags::FILTER_OUT, Tsc(5), Avma(0x1000), Avma(0x2000), 77));
        assert_eq!(parse(&event[..31]), None);
        event[30] = 31;
        assert_eq!(parse(&event), None);
    }

    #[test]
    fn a_log_is_sorted_into_threads() {
        let dir = tempfile::tempdir().unwrap();
        let (log, truth) = (dir.path().join("log"), dir.path().join("truth"));
        let mut bytes = Vec::new();
        for tid in [7_u32, 8, 7] {
            bytes.extend([0_u8; 24]);
            bytes.extend(tid.to_le_bytes());
            bytes.extend([0, 0, 8, 0]);
        }
        std::fs::write(&log, &bytes).unwrap();
        let file = convert(&log, TscClock { shift: 0, mult: 1, zero: 0 }, &truth).unwrap();
        let events: Vec<_> = file.threads().iter().map(|thread| (thread.tid, thread.events)).collect();
        assert_eq!(events, [(Tid(7), 2), (Tid(8), 1)]);
        std::fs::write(&log, &bytes[..40]).unwrap();
        let error = convert(&log, TscClock { shift: 0, mult: 1, zero: 0 }, &truth).unwrap_err();
        assert!(error.to_string().ends_with("event 1 is none"), "{error}");
    }
}
