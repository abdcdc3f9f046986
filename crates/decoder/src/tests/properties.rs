//! Any packets over any code, any bytes: no panic, no hang, time runs forward.

use std::collections::BTreeMap;

use model::{EventSink, EventTime, Pid, SpaceId, Tid, TraceEvent};
use proptest::prelude::*;

use super::case::{Setup, run};
use super::code::Code;
use super::trace::Trace;
use crate::OwnDecoder;

const BASE: u64 = 0x1000;

/// The last time of each thread.
#[derive(Default)]
struct Ordered(BTreeMap<Tid, EventTime>);

impl EventSink for Ordered {
    fn events(&mut self, _: Pid, tid: Tid, _: SpaceId, events: &[TraceEvent]) {
        let last = self.0.entry(tid).or_default();
        for event in events {
            let time = event.time();
            assert!(time.lo <= time.point && time.point <= time.hi, "{event:?}");
            assert!(last.point <= time.point, "{event:?} is before {last:?}");
            *last = time;
        }
    }
}

fn packet() -> impl Strategy<Value = String> {
    let at = |name: &'static str| (BASE..BASE + 0x400).prop_map(move |ip| format!("{name} {ip:#x}"));
    let fixed = vec![
        "PSB+ off",
        "TIP.PGD",
        "OVF",
        "TraceStop",
        "PTW 0x3 size 4 FUP",
        "EXSTOP FUP",
        "MODE.Exec 64",
        "MODE.Exec 32",
        "MODE.TSX InTX",
        "MODE.TSX abort",
        "MODE.TSX",
        "PIP cr3 0x1000",
        "PIP cr3 0x1000 non-root",
        "BBP type 0x1 size 8",
        "BBP type 0x1 size 4",
        "BEP",
        "BEP FUP",
        "CFE INTR vector 14",
        "CFE INTR vector 200 FUP",
        "CFE IRET vector 0 FUP",
        "EVD CR2 0x10",
        "TRIG 0x1 FUP instructions 0",
        "TNT T",
        "TNT N",
        "TNT TN",
        "TNT NNTT",
        "TNT TTTTTT",
        "TNT NTNTNTNTNTNT",
        "raw c9",
        "raw 05",
    ];
    prop_oneof![
        4 => at("PSB+ at"),
        4 => at("TIP.PGE"),
        4 => at("TIP.PGD"),
        4 => at("TIP"),
        4 => at("FUP"),
        10 => prop::sample::select(fixed).prop_map(str::to_owned),
        2 => (0..5000u64).prop_map(|n| format!("CYC {n}")),
        2 => (0..1u64 << 56).prop_map(|n| format!("TSC {n}")),
        1 => any::<u8>().prop_map(|n| format!("MTC {n}")),
        1 => any::<u8>().prop_map(|n| format!("CBR {n}")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_packets_over_any_code(
        code in prop::collection::vec(any::<u8>(), 0x400),
        packets in prop::collection::vec(packet(), 0..200),
        truncated in prop::option::of(0..2000u64),
    ) {
        let code = Code::of_bytes(BASE, code);
        let lines: Vec<&str> = packets.iter().map(String::as_str).collect();
        let mut trace = Trace::assemble(&lines, &code);
        trace.truncations.extend(truncated);
        run(&Setup::default(), &code, &[trace], None, 100, OwnDecoder::default(), &mut Ordered::default());
    }

    #[test]
    fn any_bytes(aux in prop::collection::vec(any::<u8>(), 0..2000)) {
        let code = Code::assemble(&[".org 0x1000", "f: call g", "jz f", "syscall", ".org 0x1100", "g: jmp *rax"]);
        let trace = Trace::of_bytes(vec![(0, [&packet::PSB[..], &aux].concat())]);
        run(&Setup::default(), &code, &[trace], None, 100, OwnDecoder::default(), &mut Ordered::default());
    }

    /// The second piece has other bytes for offsets of the first, as in a damaged file.
    #[test]
    fn pieces_that_contradict_each_other(
        first in prop::collection::vec(packet(), 0..40),
        second in prop::collection::vec(packet(), 0..40),
        at in 0..400u64,
    ) {
        let code = Code::assemble(&[".org 0x1000", "f: call g", "jz f", "syscall", ".org 0x1100", "g: ret"]);
        let bytes = |packets: &[String]| {
            let lines: Vec<&str> = packets.iter().map(String::as_str).collect();
            Trace::assemble(&lines, &code).pieces.remove(0).1
        };
        let trace = Trace::of_bytes(vec![(0, bytes(&first)), (at, bytes(&second))]);
        run(&Setup::default(), &code, &[trace], None, 1, OwnDecoder::default(), &mut Ordered::default());
    }
}
