//! Any packets over any code, any bytes: no panic, no hang, time runs forward.

use super::*;
use model::EventTime;
use proptest::prelude::*;

#[derive(Default)]
struct Ordered(EventTime);

impl EventSink for Ordered {
    fn events(&mut self, _: Pid, _: Tid, _: SpaceId, events: &[TraceEvent]) {
        for event in events {
            let time = event.time();
            assert!(time.lo <= time.point && time.point <= time.hi, "{event:?}");
            assert!(self.0.point <= time.point, "{event:?} is before {:?}", self.0);
            self.0 = time;
        }
    }
}

fn packet() -> impl Strategy<Value = P> {
    let ip = BASE..BASE + 0x400;
    prop_oneof![
        ip.clone().prop_map(P::PsbAt),
        Just(P::PsbOff),
        ip.clone().prop_map(P::Pge),
        prop::option::of(ip.clone()).prop_map(P::Pgd),
        ip.clone().prop_map(P::Tip),
        ip.prop_map(P::Fup),
        prop::sample::select(vec!["T", "N", "TN", "NNTT", "TTTTTT", "NTNTNTNTNTNT"]).prop_map(P::Tnt),
        (0..5000u64).prop_map(|n| P::Raw(Packet::Cyc(n))),
        (0..1u64 << 56).prop_map(|n| P::Raw(Packet::Tsc(n))),
        any::<u8>().prop_map(|n| P::Raw(Packet::Mtc(n))),
        any::<u8>().prop_map(|n| P::Raw(Packet::Cbr(n))),
        Just(P::Raw(Packet::Ovf)),
        Just(P::Raw(Packet::Ptw { value: 3, wide: true, ip: true })),
        Just(P::Bytes(&[0xd9, 0x05])),
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
        let aux = bytes_of(&packets);
        let record = |size| AuxRecord { offset: AuxOffset(0), size, flags: AuxRecord::TRUNCATED, time: None };
        let records: Vec<_> = truncated.map(record).into_iter().collect();
        run(&Code(code), &aux, records, 100, &mut Ordered::default());
    }

    #[test]
    fn any_bytes(aux in prop::collection::vec(any::<u8>(), 0..2000)) {
        run(&program(), &[&packet::PSB[..], &aux].concat(), vec![], 100, &mut Ordered::default());
    }
}
