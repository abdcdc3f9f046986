//! The threads that buffers are of.

use model::{
    AuxBuffer, AuxOffset, AuxOwner, AuxPiece, Ns, Pid, Recording, Schedule, Sideband, SidebandRecord, Tid,
};
use packet::Packet;

use super::code::Code;
use crate::Context;
use crate::owner::Owner;

#[test]
fn each_buffer_under_a_number_is_of_the_thread_that_had_it_then() {
    let tid = Tid(9);
    let at = |time, body| SidebandRecord {
        time: Some(Ns(time)),
        cpu: None,
        pid: None,
        tid: None,
        file_offset: 0,
        body,
    };
    let fork = |pid| Sideband::Fork { pid, tid, parent_pid: Pid(5), parent_tid: Tid(5) };
    let exit = |pid| Sideband::Exit { pid, tid };
    let schedule = Schedule::new(&[
        at(10, fork(Pid(5))),
        at(20, exit(Pid(5))),
        at(30, fork(Pid(9))),
        at(40, exit(Pid(9))),
        at(50, fork(Pid(6))),
    ]);
    let recording = Recording { time_span: Some((Ns(0), Ns(100))), ..Recording::default() };
    let code = Code::assemble(&["f: ret"]);
    let context = Context::new(&recording, &schedule, &code, false);
    let owner = |tsc| {
        let mut bytes = Vec::new();
        for packet in [Packet::Psb, Packet::Tsc(tsc), Packet::PsbEnd] {
            packet::encode(&packet, &mut bytes);
        }
        let pieces = vec![AuxPiece { offset: AuxOffset(0), bytes: &bytes, file_offset: 0 }];
        let buffer = AuxBuffer { index: 0, owner: AuxOwner::Thread(tid), pieces, records: vec![] };
        let owner = Owner::new(&context, &buffer);
        let running = owner.at(Ns(0));
        (running.pid, owner.last_of(&context, running))
    };
    let expected = [(Pid(5), Ns(20)), (Pid(9), Ns(40)), (Pid(6), Ns(100))];
    assert_eq!([12, 32, 52].map(owner), expected);
}
