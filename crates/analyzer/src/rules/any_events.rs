//! Whatever the events say, nothing panics and the sums hold.

use std::fmt::Write as _;

use super::script::{analyse, id};
use crate::{Ancestor, LatencyRange, Request};

/// A small generator of random numbers (xorshift64*): the same events on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len() as u64) as usize]
    }

    fn address(&mut self) -> String {
        let function = self.pick(&["main", "f", "g", "h", "plt", "loader", "handler", "lib", "unnamed"]);
        // Few addresses, so that returns meet the calls.
        let offset = self.pick(&["", "+10", "+15", "+20", "+25"]);
        format!("{function}{offset}")
    }
}

fn random_script(seed: u64, with_filter: bool) -> String {
    let mut random = Random(seed);
    let mut script = String::from(if with_filter { "filter\noff 100 140\noff 300\n" } else { "off 50 60\n" });
    let (mut now, mut earliest) = (0, 0);
    for _ in 0..400 {
        now += random.below(4);
        let lo = earliest.max(now - random.below(3).min(now));
        let (from, to) = (random.address(), random.address());
        let word = random.pick(&[
            "call", "call", "call", "icall", "ret", "ret", "ret", "jmp", "ijmp", "jcc", "syscall", "async",
            "start", "start", "resume", "gap", "out.call", "out.ret", "out.jmp", "out.fall",
        ]);
        let line = match word {
            "gap" if random.below(8) != 0 => continue,
            "gap" => format!("{now} gap {}", now + random.below(3)),
            "start" | "resume" => format!("{lo}/{now}/{now} {word} {to}"),
            "syscall" | "async" => format!("{now} {word} {from}"),
            _ => format!("{lo}/{now}/{} {word} {from} {to}", now + 1),
        };
        earliest = if matches!(word, "gap" | "syscall" | "async") { now } else { lo };
        writeln!(script, "{line}").unwrap();
    }
    script
}

#[test]
fn sums_hold_for_any_sequence_of_events() {
    for seed in 1..=400 {
        let script = random_script(seed, seed % 2 == 0);
        let mut request = Request { functions: vec![id("f"), id("g")], ..Request::default() };
        if seed % 3 == 0 {
            let latency = LatencyRange { min_ns: 3, max_ns: 100 };
            request.ancestor = Some(Ancestor { function: id("h"), latency });
        }
        let report = analyse(&script, request); // which checks it
        for f in &report.functions {
            let mut ids: Vec<_> = f.rows.iter().map(|r| r.id).collect();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), f.rows.len(), "seed {seed}: ids are unique");
        }
    }
}
