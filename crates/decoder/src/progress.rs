//! How far between two packets an event was: by instructions.
//!
//! A packet has one time, but many branches may share it, and direct branches have no packet at all.  Each event
//! lies somewhere between the packet before and its own; the estimate shares that time out by the instructions that
//! were executed, the bounds stay those of the packets.
//!
//! ```text
//!   packet A ---- 12 instructions ---- call ---- 36 instructions ---- packet B
//!   t = 100                            t = 105                        t = 120      bounds [100, 120]
//! ```

use model::{EventTime, Ns};

/// The instructions passed when each flow packet came.
#[derive(Default)]
pub(crate) struct Progress {
    packets: Vec<Packet>,
    /// The work done when the last packet of each packet's group was followed to its end.
    until: Vec<u32>,
}

#[derive(Clone, Copy)]
struct Packet {
    /// Instructions passed before it was followed, wrapping.
    work: u32,
    /// It forced out the one before: both have one time, and the work of both led there.
    with_previous: bool,
}

impl Progress {
    /// The next packet, met when `work` instructions had passed.
    #[inline]
    pub(crate) fn packet(&mut self, work: u32) {
        self.packets.push(Packet { work, with_previous: false });
    }

    /// The last packet forced out the one before it.
    #[inline]
    pub(crate) fn forced_out_previous(&mut self) {
        if let Some(last) = self.packets.last_mut() {
            last.with_previous = true;
        }
    }

    /// There are no more packets; `work` instructions have passed.
    pub(crate) fn finish(&mut self, work: u32) {
        let mut until = work;
        self.until = vec![work; self.packets.len()];
        for (packet, end) in self.packets.iter().zip(&mut self.until).rev() {
            *end = until;
            if !packet.with_previous {
                until = packet.work;
            }
        }
    }

    /// The estimate for an event behind packet number `lo` and not behind number `packet`, when `work` instructions had
    /// passed; `from` and `to` are the packets' own times.
    pub(crate) fn share(&self, lo: usize, packet: usize, work: u32, from: Ns, to: EventTime) -> Ns {
        let (Some(start), Some(&end)) = (self.packets.get(lo + 1), self.until.get(packet)) else {
            return to.point;
        };
        let all = u64::from(end.wrapping_sub(start.work));
        let done = u64::from(work.wrapping_sub(start.work)).min(all);
        let span = to.point.since(from);
        let share = match span.checked_mul(done) {
            Some(product) => product.checked_div(all).unwrap_or(span),
            None => span / all.max(1) * done, // centuries
        };
        Ns(from.0 + share).min(to.point)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_shared_out_by_instructions() {
        let mut progress = Progress::default();
        progress.packet(1000);
        progress.packet(1000); // the first is followed without work: tracing starts
        progress.packet(1048);
        progress.finish(1048);
        let share = |work| progress.share(0, 1, work, Ns(100), EventTime::exact(Ns(120))).0;
        assert_eq!((share(1000), share(1012), share(1048)), (100, 105, 120));
    }

    #[test]
    fn what_a_packet_forced_out_shares_its_time() {
        let mut progress = Progress::default();
        progress.packet(0);
        progress.packet(0); // a TNT, followed over 10 instructions
        progress.packet(10); // the TIP that forced it out: 10 more
        progress.forced_out_previous();
        progress.finish(20);
        let share = |packet, work| progress.share(0, packet, work, Ns(100), EventTime::exact(Ns(120))).0;
        assert_eq!((share(1, 5), share(1, 10), share(2, 20)), (105, 110, 120));
    }

    #[test]
    fn the_count_may_wrap() {
        let mut progress = Progress::default();
        progress.packet(u32::MAX - 1);
        progress.packet(u32::MAX - 1);
        progress.finish(2);
        assert_eq!(progress.share(0, 1, 0, Ns(100), EventTime::exact(Ns(108))), Ns(104));
    }
}
