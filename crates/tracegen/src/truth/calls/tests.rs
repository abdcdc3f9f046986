//! The oracle's rules, each as what a thread does and the calls that it has made by that.
//!
//! Functions stand in slots of 0x1000 bytes; `f` is the entry of f, `f+1c` an address inside (hexadecimal).
//! Calls are 5 bytes long, so a call at `main+10` returns to `main+15`; system calls are 2.
//!
//! ```text
//!   born                   the thread is seen from its first instruction
//!   code h+10              there is a call instruction
//!   100 call main+10 f     time, kind of event as `tracegen truth` lists it, from, to; `-`: nowhere
//! ```
//!
//! A row is its start, latency, status and call site, and what else is said of it.

use model::{Avma, Ns, Tid, Tsc, TscClock};

use super::code::Code;
use super::symbols::{FunctionSymbol, Object};
use super::{Entered, Oracle, Row};
use crate::truth::{File, Flags, Kind, Writer, save};

const SLOT: u64 = 0x1000;
const NAMES: [&str; 9] = ["?", "main", "f", "g", "h", "k", "handler", "restorer", "throw"];
const TID: Tid = Tid(7);

fn address(text: &str) -> Avma {
    let (name, offset) = text.split_once('+').unwrap_or((text, "0"));
    let slot = NAMES.iter().position(|n| *n == name && text != "-").unwrap_or(0) as u64;
    Avma(slot * SLOT + u64::from_str_radix(offset, 16).unwrap_or(0))
}

fn place(ip: Avma) -> String {
    let (name, offset) = (NAMES[(ip.0 / SLOT) as usize], ip.0 % SLOT);
    if offset == 0 { name.to_owned() } else { format!("{name}+{offset:x}") }
}

fn kind(name: &str) -> Kind {
    (0..0x20).filter_map(Kind::from_byte).find(|kind| kind.name() == name).unwrap()
}

fn object(script: &str) -> Object {
    const RESTORER: [u8; 7] = [0xb8, 15, 0, 0, 0, 0x0f, 0x05];
    const CALL: [u8; 5] = [0xe8, 0, 0, 0, 0];
    let mut bytes = vec![0x90; NAMES.len() * SLOT as usize];
    let mut put = |at: Avma, code: &[u8]| bytes[at.0 as usize..][..code.len()].copy_from_slice(code);
    put(address("restorer"), &RESTORER);
    let calls = script.lines().filter_map(|line| line.trim().strip_prefix("code "));
    calls.for_each(|at| put(address(at), &CALL));
    let symbol = |name: &&str| FunctionSymbol { address: address(name).0, size: SLOT, name: (*name).into() };
    Object::of(bytes, NAMES.iter().skip(1).map(symbol).collect())
}

fn truth(script: &str) -> File {
    let mut writer = Writer::new();
    for line in script.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [time, what, from, to] = words[..] else { continue };
        let (name, flags) = what.split_once(',').unwrap_or((what, ""));
        let flag = |flag: &str| match flag {
            "fout" => Flags::FILTER_OUT,
            "lost" => Flags::LOST,
            "sig" => Flags::SIGNAL,
            _ => Flags::NONE,
        };
        let flags = flags.split(',').map(flag).fold(Flags::NONE, |all, flag| all | flag);
        writer.event(kind(name), flags, Tsc(time.parse().unwrap()), address(from), address(to));
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    save(file.path(), TscClock { shift: 0, mult: 1, zero: 0 }, &[(TID, &writer)]).unwrap();
    File::load(file.path()).unwrap()
}

fn row_text(row: &Row) -> String {
    let Ns(start) = row.start;
    let site = match row.entered {
        Entered::Signal => "[signal]".to_owned(),
        _ if row.caller_ip == Avma(0) => "[unknown]".to_owned(),
        Entered::Tail => format!("jump {}", place(row.caller_ip)),
        _ => place(row.caller_ip),
    };
    let mut text = format!("{start} +{} {} {site}", row.latency_ns, row.status.name());
    let mut add = |is_so: bool, what: &str| text += if is_so { what } else { "" };
    add(row.depth > 0, &format!(" depth {}", row.depth));
    add(row.by_jump, " ended by a jump");
    add(row.entry_lost, " entry lost");
    add(row.unsure, " unsure");
    text
}

/// Checks the rows of `f`.
#[track_caller]
fn check(script: &str, expect: &str) {
    check_of("f", script, expect);
}

#[track_caller]
fn check_of(function: &str, script: &str, expect: &str) {
    let born: &[Tid] = if script.trim().starts_with("born") { &[TID] } else { &[] };
    let truth = truth(script);
    let mut oracle = Oracle { truth: &truth, code: Code::of(object(script), born), scheduler: None };
    let rows: Vec<String> = oracle.calls(function).unwrap().rows.iter().map(row_text).collect();
    let expect: Vec<&str> = expect.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(rows, expect);
}

#[test]
fn a_call_lasts_until_control_is_back() {
    let script = "
        0 enter - main+4
        100 call main+10 f
        110 call f+10 g
        120 ret g+20 f+15
        200 ret f+40 main+15
        210 calli main+20 f";
    check(script, "100 +100 complete main+10\n210 +0 open_end main+20");
    check_of("g", script, "110 +10 complete f+10");
}

#[test]
fn a_tail_callee_returns_for_the_function_that_jumped() {
    let script = "
        0 enter - main+4
        100 call main+10 f
        110 jmp f+10 g
        120 ret g+20 main+15";
    check(script, "100 +20 complete main+10");
    check_of("g", script, "110 +10 complete jump f+10");
}

#[test]
fn a_jump_back_into_the_function_that_jumped_ends_what_it_called() {
    let script = "
        0 enter - main+4
        100 call main+10 f
        110 jmp f+10 g
        120 jcc g+20 f+20
        130 ret f+40 main+15";
    check(script, "100 +30 complete main+10");
    check_of("g", script, "110 +10 complete jump f+10");
}

#[test]
fn a_jump_to_the_own_entry_is_a_loop_and_a_call_inside_is_none() {
    let script = "
        0 enter - main+4
        100 call main+10 f
        110 jmp f+10 f
        120 call f+10 f+80
        130 ret f+90 f+15
        140 ret f+40 main+15";
    check(script, "100 +40 complete main+10");
}

#[test]
fn a_return_to_a_first_address_is_a_jump() {
    let script = "
        0 enter - main+4
        100 call main+10 f
        110 ret f+10 g
        120 ret g+20 main+15";
    check(script, "100 +20 complete main+10");
    check_of("g", script, "110 +10 complete jump f+10");
}

#[test]
fn a_landing_unwinds_what_is_above() {
    let script = "
        born
        0 enter - main
        100 call main+10 f
        110 call f+10 g
        120 call g+10 throw
        130 jmpi throw+20 main+40";
    check(script, "100 +30 unwound main+10");
    check_of("g", script, "110 +20 unwound f+10");
}

#[test]
fn the_returns_after_a_landing_tell_in_which_activation_it_was() {
    let script = "
        born
        0 enter - main
        100 call main+10 f
        110 call f+10 f
        120 call f+20 throw
        130 jmpi throw+20 f+40
        140 ret f+50 main+15";
    check(script, "100 +40 complete main+10\n110 +20 unwound f+10 depth 1");
    // Of the inner one.
    let inner = script.replace("140 ret f+50 main+15", "140 ret f+50 f+15\n150 ret f+50 main+15");
    check(&inner, "100 +50 complete main+10\n110 +30 complete f+10 depth 1");
    // Of none.
    let none = script.replace("140 ret f+50 main+15", "");
    check(&none, "100 +30 open_end main+10 unsure\n110 +20 open_end f+10 depth 1 unsure");
}

/// `h` calls `g`, which calls `f`, which calls `h`; three deep there is an exception, which an older `f`
/// catches. From there `h` goes on with a jump to `g`. Only the last returns tell where the first one landed.
#[test]
fn a_return_past_open_calls_is_one_more_landing() {
    let deeper = "call g+10 f, call f+10 h, call h+10 g, ";
    let throw =
        |deep| deeper.repeat(deep) + "call g+10 f, call f+10 h, call h+10 throw, jmpi throw+20 f+40, ";
    let (deep, less_deep) = (throw(2), throw(1));
    let (up, goes_on) = ("ret f+50 g+15, ", "ret g+15 h+15, jmp h+20 g, ");
    let all_up = "ret g+15 f+15, ret f+50 g+15, ".repeat(2) + "ret g+15 main+15";
    let events = format!("call main+10 g, {deep}{up}{goes_on}{deep}{up}{goes_on}{less_deep}{up}{all_up}");
    let timed = events.split(", ").zip(1..).map(|(event, time)| format!("{time} {event}\n"));
    let script: String = std::iter::once("0 enter - main\n".to_owned()).chain(timed).collect();
    check(
        &script,
        "2 +37 complete g+10
         5 +7 complete g+10 depth 1
         8 +3 unwound g+10 depth 2
         15 +22 complete g+10 depth 1
         18 +7 complete g+10 depth 2
         21 +3 unwound g+10 depth 3
         28 +7 complete g+10 depth 2
         31 +3 unwound g+10 depth 3",
    );
}

#[test]
fn control_that_no_frame_explains_is_on_another_stack() {
    let script = "
        born
        0 enter - main
        100 call main+10 f
        110 ret f+10 g+15
        120 ret g+20 k+15";
    check(script, "100 +10 cut main+10");
    let older = script.replace("born", "").replace("- main\n", "- main+4\n");
    check(&older, "100 +10 unwound main+10");
}

#[test]
fn a_handler_lasts_until_its_sigreturn() {
    let script = "
        0 enter - main+4
        100 call main+10 g
        110 async g+10 -
        120 enter,sig - f
        130 ret f+20 restorer
        131 syscall,sig restorer+5 -
        140 enter - g+10
        150 ret g+20 main+15";
    check(script, "120 +10 complete [signal]");
    check_of("g", script, "100 +50 complete main+10");
}

#[test]
fn only_a_handler_returns_to_the_restorer() {
    let script = "
        born
        0 enter - main
        100 call main+10 f
        110 async f -
        120 enter,sig - handler
        130 call handler+10 g
        140 ret g+20 restorer
        141 syscall,sig restorer+5 -
        150 enter - f
        200 ret f+40 main+15";
    check(script, "100 +100 complete main+10");
    check_of("handler", script, "120 +20 complete [signal]");
}

#[test]
fn a_loss_cuts_what_is_open_and_hides_what_is_in_it() {
    let script = "
        0 enter - main+4
        100 call main+10 f
        110 ovf f+10 -
        120 call,lost f+20 g
        130 ret,lost g+20 f+25
        140 call,lost f+30 g
        150 resume - g+8
        160 ret g+20 f+35
        170 ret f+40 main+15";
    check(script, "100 +70 cut main+10");
    check_of("g", script, "140 +20 cut f+30 entry lost");
}

#[test]
fn what_a_handler_returns_to_that_came_unseen_may_be_no_handler() {
    // The handler of 130 was pending when one returned that was entered in a loss: where both came is not
    // seen, and f may as well be that.
    let script = "
        0 enter - main+4
        10 async main+10 -
        20 enter,sig - handler
        30 ret handler+20 restorer
        31 syscall,sig restorer+5 -
        40 enter - main+10
        50 ovf main+10 -
        60 async,lost main+20 -
        70 enter,lost,sig - handler
        80 resume - handler+8
        110 ret handler+20 restorer
        111 syscall,sig restorer+5 -
        130 enter,sig - handler
        140 ret handler+20 restorer
        141 syscall,sig restorer+5 -
        150 enter,sig - f
        160 ret f+20 restorer
        161 syscall,sig restorer+5 -
        170 enter - main+20";
    check(script, "150 +10 cut [signal] entry lost");
    let seen = script.replace("50 ovf main+10 -", "").replace(",lost", "").replace("80 resume", "80 enter");
    check(&seen, "150 +10 complete [signal]");
}

#[test]
fn with_a_filter_the_return_tells_the_caller() {
    let script = "
        code h+10
        100 filtin k+10 f
        110 call,fout f+20 g
        120 filtin g+30 f+25
        130 ret,fout f+40 h+15";
    check(script, "100 +30 complete h+10");
    check_of("g", script, "110 +10 complete f+20");
    let by_jump = script.replace("130 ret,fout f+40 h+15", "130 jmp,fout f+40 k");
    check(&by_jump, "100 +30 complete k+10 ended by a jump");
}

#[test]
fn a_return_out_of_sight_that_no_call_in_sight_makes_is_of_a_call_from_outside() {
    // What k called has thrown to k, out of sight: the calls of 120 and 130 are gone.
    let script = "
        born
        code h+10
        100 filtin h+10 f
        110 call,fout f+30 k
        120 filtin h+10 f
        130 call f+10 f
        140 call,fout f+30 k
        150 filtin k+40 f+35
        160 ret,fout f+40 h+15
        170 filtin k+40 f+35
        180 ret,fout f+40 h+15";
    let rows = "
        100 +80 complete h+10 unsure
        120 +40 complete h+10 depth 1 unsure
        130 +30 unwound f+10 depth 2 unsure";
    check(script, rows);
}
