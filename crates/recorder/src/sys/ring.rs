//! An event's ring buffers, mapped: records, and trace (AUX).
//!
//! ```text
//! mapping of the records          mapping of the trace
//! +--------+------------------+   +--------------------------+
//! | page 0 | 2^n bytes        |   | 2^m bytes                |
//! +--------+------------------+   +--------------------------+
//!   data_head, data_tail            aux_head, aux_tail (they stand in page 0, too)
//! ```
//!
//! Heads are the kernel's, tails are ours; both only grow. From tail to head the bytes are ours to read, and
//! stay as they are until we move the tail (Documentation: `perf_event_mmap_page` in
//! include/uapi/linux/perf_event.h).

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering, fence};

use memmap2::{MmapOptions, MmapRaw};
use model::{AuxOffset, TscClock};
use perf_event_open_sys::bindings::perf_event_mmap_page;

use super::EventFd;

const PAGE_BYTES: usize = 4096;
/// `cap_user_time_zero` in `capabilities`.
const CAP_USER_TIME_ZERO: u64 = 1 << 4;

/// The mapped buffers of one event.
#[derive(Debug)]
pub(crate) struct Ring {
    records: MmapRaw,
    records_bytes: usize,
    trace: Option<MmapRaw>,
}

/// Trace that waits to be written to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending<'a> {
    /// Where in the buffer's stream it starts.
    pub(crate) offset: AuxOffset,
    /// The bytes; the second part is what has wrapped to the start of the buffer.
    pub(crate) pieces: [&'a [u8]; 2],
}

impl Pending<'_> {
    /// Bytes.
    pub(crate) fn len(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.len() as u64).sum()
    }
}

impl Ring {
    /// Maps the buffers of an event.  Sizes are powers of two, a page or more; `trace_bytes` 0: records only.
    /// The kernel writes over the trace for ever if that `is_overwritten`, which it takes from the mapping.
    pub(crate) fn map(
        event: &EventFd,
        records_bytes: usize,
        trace_bytes: usize,
        is_overwritten: bool,
    ) -> io::Result<Self> {
        let fd = event.as_fd().as_raw_fd();
        let records = MmapOptions::new().len(PAGE_BYTES + records_bytes).map_raw(fd)?;
        let mut ring = Self { records, records_bytes, trace: None };
        if trace_bytes > 0 {
            let start = (PAGE_BYTES + records_bytes) as u64;
            let page = ring.page();
            // SAFETY: the page is mapped and writable. The kernel reads the two fields when the trace is
            // mapped, below.
            unsafe {
                (&raw mut (*page).aux_offset).write_volatile(start);
                (&raw mut (*page).aux_size).write_volatile(trace_bytes as u64);
            }
            let mut options = MmapOptions::new();
            options.offset(start).len(trace_bytes);
            ring.trace =
                Some(if is_overwritten { options.map_raw_read_only(fd)? } else { options.map_raw(fd)? });
        }
        Ok(ring)
    }

    fn page(&self) -> *mut perf_event_mmap_page {
        self.records.as_mut_ptr().cast()
    }

    fn data_head(&self) -> &AtomicU64 {
        // SAFETY: mapped for as long as `self` lives, aligned, and written by others only as a whole.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.page()).data_head) }
    }

    fn data_tail(&self) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.page()).data_tail) }
    }

    fn aux_head(&self) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.page()).aux_head) }
    }

    fn aux_tail(&self) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.page()).aux_tail) }
    }

    /// What a TSC value is in perf's clock; `None` where the kernel cannot say, because its own clock is not
    /// the TSC.
    pub(crate) fn clock(&self) -> Option<TscClock> {
        let page = self.page();
        // SAFETY: all fields are in the mapped page, plain numbers, and aligned; the kernel may write them
        // meanwhile, which `lock` tells (it is odd, or changes).
        let read = || unsafe {
            let capabilities = (&raw const (*page).__bindgen_anon_1.capabilities).read_volatile();
            let clock = TscClock {
                shift: (&raw const (*page).time_shift).read_volatile(),
                mult: (&raw const (*page).time_mult).read_volatile(),
                zero: (&raw const (*page).time_zero).read_volatile(),
            };
            (capabilities & CAP_USER_TIME_ZERO != 0).then_some(clock)
        };
        // SAFETY: as above.
        let lock = || unsafe { (&raw const (*page).lock).read_volatile() };
        loop {
            let before = lock();
            fence(Ordering::Acquire);
            let clock = read();
            fence(Ordering::Acquire);
            if before % 2 == 0 && lock() == before {
                return clock;
            }
            std::hint::spin_loop();
        }
    }

    /// Moves all records that there are to the end of `to`.
    pub(crate) fn take_records(&mut self, to: &mut Vec<u8>) {
        let (head, tail) =
            (self.data_head().load(Ordering::Acquire), self.data_tail().load(Ordering::Relaxed));
        // SAFETY: records_bytes bytes are mapped after the first page, for as long as `self` lives.
        let start = unsafe { self.records.as_ptr().add(PAGE_BYTES) };
        for piece in pieces(start, self.records_bytes, tail, head) {
            to.extend_from_slice(piece);
        }
        self.data_tail().store(head, Ordering::Release);
    }

    /// How far the trace has come. The kernel writes the records about it first: those that are taken after
    /// this tell of all of it.
    pub(crate) fn trace_head(&self) -> u64 {
        self.aux_head().load(Ordering::Acquire)
    }

    /// The trace up to `head`, which [`Self::trace_head`] has said.
    pub(crate) fn trace(&self, head: u64) -> Pending<'_> {
        let tail = self.aux_tail().load(Ordering::Relaxed);
        let pieces = match &self.trace {
            Some(trace) => pieces(trace.as_ptr(), trace.len(), tail, head),
            None => [&[][..]; 2],
        };
        Pending { offset: AuxOffset(tail), pieces }
    }

    /// Copies all of the trace's buffer, which is written over for ever, and whose events are disabled.
    /// Returns where in it the newest byte ends; `None`: it was written meanwhile, by a thread that was born
    /// as its creator's event was disabled.
    pub(crate) fn copy_trace(&self, to: &mut Vec<u8>) -> Option<usize> {
        to.clear();
        let trace = self.trace.as_ref()?;
        to.reserve(trace.len());
        let head = self.trace_head();
        // SAFETY: the buffer is mapped for as long as `self` lives, `to` has room for all of it, and they do
        // not overlap. Whatever is written meanwhile, bytes are bytes, and each is read once.
        unsafe {
            std::ptr::copy_nonoverlapping(trace.as_ptr(), to.as_mut_ptr(), trace.len());
            to.set_len(trace.len());
        }
        fence(Ordering::Acquire);
        (self.trace_head() == head).then_some((head % trace.len() as u64) as usize)
    }

    /// Lets the kernel write over the first `bytes` bytes of what [`Self::trace`] returned.
    pub(crate) fn release_trace(&mut self, bytes: u64) {
        let tail = self.aux_tail().load(Ordering::Relaxed);
        self.aux_tail().store(tail + bytes, Ordering::Release);
    }

    /// Size of the trace's buffer.
    pub(crate) fn trace_bytes(&self) -> u64 {
        self.trace.as_ref().map_or(0, |trace| trace.len() as u64)
    }
}

/// The bytes from `tail` to `head` of a ring of `size` bytes at `start`, in order.
fn pieces<'a>(start: *const u8, size: usize, tail: u64, head: u64) -> [&'a [u8]; 2] {
    // Never more than there is, whatever the kernel says.
    let len = head.saturating_sub(tail).min(size as u64) as usize;
    let from = (tail % size as u64) as usize;
    let first = len.min(size - from);
    // SAFETY: both are inside of the ring, which is mapped for as long as its `Ring` lives; the callers hand
    // out its borrow with them. And the kernel writes from `head` on only, until the tail is moved, which
    // takes `&mut Ring`.
    unsafe {
        [std::slice::from_raw_parts(start.add(from), first), std::slice::from_raw_parts(start, len - first)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_wraps() {
        let ring = [0u8, 1, 2, 3, 4, 5, 6, 7];
        let check = |tail, head, expect: [&[u8]; 2]| {
            assert_eq!(pieces(ring.as_ptr(), 8, tail, head), expect, "{tail} to {head}");
        };
        check(0, 0, [&[], &[]]);
        check(2, 5, [&[2, 3, 4], &[]]);
        check(6, 8, [&[6, 7], &[]]);
        check(6, 11, [&[6, 7], &[0, 1, 2]]);
        check(8, 16, [&[0, 1, 2, 3, 4, 5, 6, 7], &[]]);
        check(13, 21, [&[5, 6, 7], &[0, 1, 2, 3, 4]]);
        check(5, 3, [&[], &[]]);
    }
}
