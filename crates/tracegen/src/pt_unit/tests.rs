//! Small scripts of events in, packets out.

use packet::{Context, decode};

use super::*;
use crate::clock::{Crystal, ticks};
use crate::options::TscLag;

fn timing(cyc: bool, cyc_threshold: u32, mtc_period: Option<u32>) -> TimingConfig {
    let crystal = Crystal::new(0.0);
    TimingConfig {
        cyc,
        cyc_threshold,
        mtc_period,
        tma: true,
        crystal,
        tsc_lag: TscLag { min: 0, max: 0 },
        skip_mtc: 0.0,
        cbr_delay: 0,
        seed: 1,
    }
}

fn unit(change: impl FnOnce(&mut UnitConfig)) -> TraceUnit {
    let mut config = UnitConfig {
        timing: timing(false, 0, None),
        tsc_packets: true,
        return_compression: true,
        long_tnt: false,
        defer_tip: 0.0,
        late_tnt: false,
        seed: 1,
        cr3: None,
        psb_bytes: 4096,
        whole_psb_ip: false,
        ovf_ip: OverflowIp::Whole,
    };
    change(&mut config);
    let mut unit = TraceUnit::new(config, 30);
    unit.trace_on(false, Time::START);
    unit.take();
    unit
}

/// The packets as text, addresses whole; padding left out.
fn packets(unit: &mut TraceUnit) -> Vec<String> {
    let (_, bytes) = unit.take();
    let mut last_ip = LastIp::default(); // every script starts after a PSB
    let (mut out, mut at) = (vec![], 0);
    while at < bytes.len() {
        let (packet, len) = decode(&bytes[at..], Context::Flow).unwrap();
        at += len;
        let mut ip = |payload| last_ip.expand(payload).map_or(String::new(), |ip| format!("{ip:x}"));
        out.push(match packet {
            Packet::Pad => continue,
            Packet::ModeExec { .. } => "MODE.Exec".into(),
            Packet::ModeTsx { .. } => "MODE.TSX".into(),
            Packet::Tnt(tnt) => tnt.to_string(),
            Packet::Tip(payload) => format!("TIP {}", ip(payload)),
            Packet::TipPge(payload) => format!("PGE {}", ip(payload)),
            Packet::TipPgd(payload) => format!("PGD {}", ip(payload)),
            Packet::Fup(payload) => format!("FUP {}", ip(payload)),
            Packet::Tsc(_) => "TSC".into(),
            Packet::Tma { .. } => "TMA".into(),
            Packet::Cbr(ratio) => format!("CBR {ratio}"),
            Packet::Cyc(cycles) => format!("CYC {cycles}"),
            Packet::Mtc(ctc) => format!("MTC {ctc}"),
            other => format!("{other:?}").to_uppercase(),
        });
    }
    out
}

fn check(unit: &mut TraceUnit, expect: &[&str]) {
    assert_eq!(packets(unit), expect);
}

const T: Time = Time::START;

#[test]
fn six_branches_fill_a_tnt() {
    let mut u = unit(|_| ());
    u.enter(Avma(0x1000), T);
    for taken in [true, false, true, true, false, false, true] {
        u.conditional(taken, T);
    }
    u.leave(None, false, T);
    check(&mut u, &["MODE.Exec", "PGE 1000", "TNTTNN", "T", "PGD "]);
}

#[test]
fn long_tnt_holds_47() {
    let mut u = unit(|config| config.long_tnt = true);
    u.enter(Avma(0x1000), T);
    (0..48).for_each(|_| u.conditional(true, T));
    u.leave(None, false, T);
    check(&mut u, &["MODE.Exec", "PGE 1000", &"T".repeat(47), "T", "PGD "]);
}

#[test]
fn deferred_tips_stand_after_the_tnt_that_spans_them() {
    let mut u = unit(|config| config.defer_tip = 1.0);
    u.enter(Avma(0x1000), T);
    u.indirect(Avma(0x2000), T); // no bits to wait for
    u.conditional(true, T);
    u.indirect(Avma(0x3000), T);
    u.call(Avma(0x2007));
    u.conditional(false, T);
    u.ret(Avma(0x2007), T); // compressed, inside
    u.indirect(Avma(0x4000), T);
    for taken in [true, false, false] {
        u.conditional(taken, T); // full
    }
    u.conditional(true, T);
    u.indirect(Avma(0x5000), T);
    u.leave_async(Avma(0x5004), None, T); // forces them out
    let first = ["MODE.Exec", "PGE 1000", "TIP 2000", "TNTTNN", "TIP 3000", "TIP 4000"];
    check(&mut u, &[&first[..], &["T", "TIP 5000", "FUP 5004", "PGD "]].concat());
    assert_eq!((u.counts().tip, u.counts().deferred_tip), (4, 2));
}

#[test]
fn a_return_forces_out_what_was_deferred() {
    for return_compression in [true, false] {
        let mut u = unit(|config| {
            config.defer_tip = 1.0;
            config.return_compression = return_compression;
        });
        u.enter(Avma(0x1000), T);
        u.conditional(true, T);
        u.indirect(Avma(0x3000), T);
        u.ret(Avma(0x2000), T);
        u.conditional(true, T);
        u.leave(None, false, T);
        check(&mut u, &["MODE.Exec", "PGE 1000", "T", "TIP 3000", "TIP 2000", "T", "PGD "]);
    }
}

#[test]
fn returns_are_compressed_only_after_their_call() {
    let mut u = unit(|_| ());
    u.enter(Avma(0x1000), T);
    u.call(Avma(0x1005));
    u.indirect(Avma(0x3000), T);
    u.call(Avma(0x2007));
    u.ret(Avma(0x2007), T); // compressed
    u.ret(Avma(0x9999), T); // not where the call was: popped all the same
    u.ret(Avma(0x1005), T); // nothing left
    u.leave(None, false, T);
    check(&mut u, &["MODE.Exec", "PGE 1000", "TIP 3000", "T", "TIP 9999", "TIP 1005", "PGD "]);
}

#[test]
fn the_stack_survives_the_end_of_tracing_unless_dropped() {
    for (dropped, expect) in [(false, "T"), (true, "TIP 1005")] {
        let mut u = unit(|_| ());
        u.enter(Avma(0x1000), T);
        u.call(Avma(0x1005));
        u.leave_async(Avma(0x2000), None, T);
        if dropped {
            u.drop_returns();
        }
        u.enter(Avma(0x2000), T);
        u.ret(Avma(0x1005), T);
        u.leave(None, false, T);
        let start = ["MODE.Exec", "PGE 1000", "FUP 2000", "PGD ", "MODE.Exec", "PGE 2000"];
        check(&mut u, &[&start[..], &[expect, "PGD "]].concat());
    }
}

#[test]
fn a_return_out_of_the_filter_pops() {
    let mut u = unit(|_| ());
    u.enter(Avma(0x1000), T);
    u.call(Avma(0x1005));
    u.leave(Some(Avma(0x8000)), true, T);
    u.enter(Avma(0x1100), T);
    u.ret(Avma(0x1005), T);
    u.leave(None, false, T);
    let expect = ["MODE.Exec", "PGE 1000", "PGD 8000", "MODE.Exec", "PGE 1100", "TIP 1005", "PGD "];
    check(&mut u, &expect);
}

#[test]
fn without_return_compression_every_return_is_a_tip() {
    let mut u = unit(|config| config.return_compression = false);
    u.enter(Avma(0x1000), T);
    u.call(Avma(0x1005));
    u.ret(Avma(0x1005), T);
    u.leave(None, false, T);
    check(&mut u, &["MODE.Exec", "PGE 1000", "TIP 1005", "PGD "]);
}

#[test]
fn a_low_address_in_a_psb_is_short_or_whole() {
    for (whole_psb_ip, ip_bytes) in [(false, 2), (true, 3)] {
        let mut u = unit(|config| config.whole_psb_ip = whole_psb_ip);
        u.enter(Avma(0x7f52_0040_0000), T);
        u.psb(Some(Avma(0x40_1000)), T);
        u.indirect(Avma(0x40_2000), T);
        let (_, bytes) = u.take();
        let fup = Packet::Fup(packet::IpPayload { ip_bytes, value: 0x40_1000 });
        let tip = Packet::Tip(packet::IpPayload { ip_bytes: 1, value: 0x2000 });
        let found = |wanted| (0..bytes.len()).any(|at| decode(&bytes[at..], Context::Flow) == Ok(wanted));
        assert!(found((fup, 1 + [4, 6][usize::from(whole_psb_ip)])), "{bytes:x?}");
        assert!(found((tip, 3)), "{bytes:x?}");
    }
}

#[test]
fn the_first_address_after_an_overflow_is_whole_or_refers_to_the_last_one_or_to_zero() {
    let (low, high) = (0x40_1000, 0x7f52_0040_1000);
    for (ovf_ip, ip, ip_bytes) in [
        (OverflowIp::Whole, high, 3),
        (OverflowIp::Kept, high, 2),
        (OverflowIp::Kept, low, 3),
        (OverflowIp::Zero, high, 3),
        (OverflowIp::Zero, low, 2),
    ] {
        let mut u = unit(|config| config.ovf_ip = ovf_ip);
        u.enter(Avma(0x7f52_1234_0000), T);
        u.begin_overflow(T);
        u.end_overflow(Some(Avma(ip)), T);
        let (_, bytes) = u.take();
        let stored = packet::IpPayload::stored_len(ip_bytes).unwrap();
        let value = ip & (u64::MAX >> (64 - 8 * stored));
        let fup = Packet::Fup(packet::IpPayload { ip_bytes, value });
        let found = (0..bytes.len()).any(|at| decode(&bytes[at..], Context::Flow) == Ok((fup, 1 + stored)));
        assert!(found, "{ovf_ip:?} {ip:x}: {bytes:x?}");
    }
}

#[test]
fn a_psb_tells_all_and_forgets_calls() {
    let mut u = unit(|config| config.timing.mtc_period = Some(3));
    u.enter(Avma(0x1000), T);
    u.call(Avma(0x1005));
    u.conditional(true, T);
    u.psb(Some(Avma(0x2000)), T);
    u.ret(Avma(0x1005), T);
    u.leave(None, false, T);
    let psb = ["PSB", "TSC", "TMA", "CBR 30", "MODE.Exec", "MODE.TSX", "FUP 2000", "PSBEND"];
    let expect = [&["MODE.Exec", "PGE 1000", "T"][..], &psb, &["TIP 1005", "PGD "]].concat();
    check(&mut u, &expect);
}

#[test]
fn an_overflow_loses_packets_and_the_stack() {
    let mut u = unit(|_| ());
    u.enter(Avma(0x1000), T);
    u.call(Avma(0x1005));
    u.conditional(true, T);
    u.begin_overflow(T);
    u.conditional(true, T);
    u.indirect(Avma(0x5000), T);
    u.psb(Some(Avma(0x5000)), T);
    u.end_overflow(Some(Avma(0x6000)), T);
    u.ret(Avma(0x1005), T);
    u.leave(None, false, T);
    let expect = ["MODE.Exec", "PGE 1000", "T", "OVF", "TSC", "CBR 30", "FUP 6000", "TIP 1005", "PGD "];
    check(&mut u, &expect);
    assert_eq!(u.counts().ovf, 1);
}

#[test]
fn an_overflow_that_ends_in_the_kernel_has_no_address() {
    let mut u = unit(|_| ());
    u.enter(Avma(0x1000), T);
    u.begin_overflow(T);
    u.leave(None, false, T);
    u.end_overflow(None, T);
    assert!(!u.enabled());
    u.enter(Avma(0x1000), T);
    check(&mut u, &["MODE.Exec", "PGE 1000", "OVF", "TSC", "CBR 30", "MODE.Exec", "PGE 1000"]);
}

#[test]
fn a_switched_off_unit_is_silent_but_knows_where_the_program_is() {
    let mut u = unit(|_| ());
    u.enter(Avma(0x1000), T);
    u.leave_async(Avma(0x1000), None, T);
    u.switch_off();
    u.enter(Avma(0x1000), T);
    assert!(u.enabled());
    u.conditional(true, T);
    u.trace_on(true, T);
    u.leave(None, false, T);
    assert!(!u.enabled());
    u.switch_on();
    u.enter(Avma(0x2000), T);
    check(&mut u, &["MODE.Exec", "PGE 1000", "FUP 1000", "PGD ", "MODE.Exec", "PGE 2000"]);
}

#[test]
fn cycles_and_crystal_ticks() {
    let mut u = unit(|config| {
        config.timing = timing(true, 0, Some(3));
    });
    // an MTC every 1000 TSC ticks: one falls into the next 1100, at 30/30 one cycle per tick
    let at = Time::from_tsc(T.tsc().0.next_multiple_of(1000) + 10);
    u.trace_on(false, at);
    u.take();
    u.timer(at.plus(ticks(1100.0 / 3000.0)));
    u.indirect(Avma(0x4000), at.plus(ticks(1100.0 / 3000.0)));
    let text = packets(&mut u);
    assert_eq!(text.len(), 4, "{text:?}");
    let mtc = (at.tsc().0 / 1000 + 1) as u8;
    assert_eq!(text[..3], ["CYC 990".to_owned(), format!("MTC {mtc}"), "CYC 110".to_owned()]);
}

#[test]
fn a_tnt_has_the_time_of_its_first_branch_and_mtc_forces_it_out() {
    let mut u = unit(|config| config.timing = timing(true, 0, Some(3)));
    let at = Time::from_tsc(T.tsc().0.next_multiple_of(1000) + 10);
    u.trace_on(false, at);
    u.take();
    let after = |tsc: u64| Time::from_tsc(at.tsc().0 + tsc);
    u.conditional(true, after(100));
    u.conditional(false, after(300));
    u.timer(after(1100));
    let mtc = (at.tsc().0 / 1000 + 1) as u8;
    check(&mut u, &["CYC 100", "TN", "CYC 890", &format!("MTC {mtc}")]);
}

#[test]
fn sleep_stops_the_clocks_and_tsc_follows() {
    let mut u = unit(|config| config.timing = timing(true, 0, Some(3)));
    let at = Time::from_tsc(T.tsc().0.next_multiple_of(1000) + 10);
    u.trace_on(false, at);
    u.take();
    let after = |tsc: u64| Time::from_tsc(at.tsc().0 + tsc);
    u.sleep(after(100), after(5400));
    u.indirect(Avma(0x4000), after(5600));
    let mtc = (at.tsc().0 / 1000 + 5) as u8;
    let expect = ["CYC 100", &format!("MTC {mtc}"), "TSC", "TMA", "CBR 30", "CYC 200", "TIP 4000"];
    check(&mut u, &expect);
}

#[test]
fn a_late_cbr_is_said_nowhere_before() {
    let mut u = unit(|config| {
        config.timing = TimingConfig { cbr_delay: ticks(1.0), ..timing(true, 0, None) };
    });
    u.set_cbr(36, T);
    u.psb(None, T.plus_us(0.9));
    u.timer(T.plus_us(1.1));
    assert_eq!(
        packets(&mut u).iter().filter(|p| p.starts_with("CBR")).collect::<Vec<_>>(),
        ["CBR 30", "CBR 36"]
    );
}

#[test]
fn a_threshold_holds_cycles_back() {
    let mut u = unit(|config| {
        config.timing = timing(true, 8, None);
    });
    u.trace_on(false, T);
    u.take();
    u.indirect(Avma(0x4000), T.plus(ticks(100.0 / 3000.0)));
    u.indirect(Avma(0x4000), T.plus(ticks(200.0 / 3000.0)));
    assert_eq!(packets(&mut u).iter().filter(|packet| packet.starts_with("CYC")).count(), 1);
}

#[test]
fn the_stream_is_padded_to_eight_bytes_and_counted() {
    let mut u = unit(|_| ());
    let (start, _) = u.take();
    u.set_cbr(33, T);
    let (again, bytes) = u.take();
    assert_eq!((again, bytes), (start, vec![0x02, 0x03, 33, 0, 0, 0, 0, 0]));
    assert_eq!(u.take(), (start + 8, vec![]));
}
