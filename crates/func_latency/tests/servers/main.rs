//! Calls in servers under load, timed by uprobes, against others that count and time the same: `perf stat`,
//! `perf sched`, and the kernel's own sums of each thread.
//!
//! ```text
//! server    a scratch directory, and a server in it that runs as an unprivileged user
//! postgres, mariadb   those servers, their load, and when it rests
//! oracles   those others
//! rate, kept   what the servers still do while they are probed, and whether the command ends in time
//! ```
//! The load rests where a window begins and ends, so that little is in flight at its edges.  Which calls were
//! entered in perf's window their rows say, by one clock, and so counts agree exactly. Where there is no such
//! server, no perf, or no permission, a test says that it is skipped.

#![cfg(feature = "bpf")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod kept;
mod mariadb;
mod oracles;
mod postgres;
#[path = "../probing/mod.rs"]
mod probing;
mod rate;
mod rows;
mod server;

use std::sync::Mutex;
use std::time::Duration;

use mariadb::MariaDb;
use oracles::{Counts, OnCpu, Switches};
use postgres::Postgres;
use probing::Probing;
use rows::Rows;
use serde_json::{Deserializer, Value};
use server::Missing;

/// The number of clients, each with a connection of its own.
const CLIENTS: usize = 8;

/// A server has the machine for itself while its rate is measured.
static ALONE: Mutex<()> = Mutex::new(());

/// How long the load runs.
const LOAD: Duration = Duration::from_millis(1500);

/// Options of a run with a row for each call.  Costs are no matter here.
fn words<'a>(pids: &'a str, functions: &[&'a str], rows: &'a str) -> Vec<&'a str> {
    let mut words = vec!["-p", pids, "--check", "--format", "json", "--rows", rows];
    words.extend(["--max-overhead", "1e9", "--max-probes", "0"]);
    functions.iter().for_each(|function| words.extend(["-f", function]));
    words
}

fn skip(why: &Missing) {
    println!("skipped: {why}");
}

/// Functions of the server, and one of the C library that each connection waits in when the window begins and
/// ends.
#[test]
fn postgres_under_pgbench() {
    const FUNCTIONS: [&str; 5] =
        ["_bt_search", "heap_update", "CommitTransactionCommand", "PortalRun", "epoll_wait"];
    let _alone = ALONE.lock();
    let server = match Postgres::start() {
        Ok(server) => server,
        Err(why) => return skip(&why),
    };
    let mut load = server.pgbench(CLIENTS);
    let pids = load.resting();
    let file = server.scratch("rows.jsonl");
    let Some(probing) = Probing::start(&words(&pids, &FUNCTIONS, &file)) else { return };
    let in_server = FUNCTIONS[..4].iter().map(|function| (Postgres::PROGRAM, *function));
    let counted = in_server.chain([(oracles::C_LIBRARY, FUNCTIONS[4])]).collect::<Vec<_>>();
    let counts = match Counts::start(&counted, &pids) {
        Ok(counts) => counts,
        Err(why) => return skip(&why),
    };
    let switches = Switches::start();
    load.run(LOAD);
    assert_eq!(load.resting(), pids);
    let (switches, counts) = (switches.end(), counts.end());
    probing.interrupt();
    let report = probing.end().report();

    let rows = Rows::read(&file);
    for (function, (name, count)) in FUNCTIONS.iter().zip(counts).enumerate() {
        // A client waits at the gate by a statement: inside of both.
        let waits = if matches!(*name, "PortalRun" | "epoll_wait") { CLIENTS as u64 } else { 0 };
        let calls = &report["functions"][function]["calls"];
        let seen =
            ["complete", "unwound", "cut", "open_start", "open_end"].map(|s| calls[s].as_u64().unwrap());
        // Calls that wait at the beginning were entered before; those at the end, in the window.
        let [_, others @ ..] = seen;
        assert_eq!(others, [0, 0, waits, waits], "{name}: {seen:?}");
        let rows = rows.of(name);
        count.agrees(name, &rows);
        oracles::off_cpu_agrees(&rows, &switches);
    }
}

/// Functions of the server and of the C library, and whole threads: they are born and rest again in the
/// window, all of their lives in one call.
#[test]
fn mariadb_under_its_own_clients() {
    const FUNCTIONS: [&str; 4] = ["dispatch_command", "mysql_parse", "handle_one_connection", "poll"];
    let _alone = ALONE.lock();
    let server = match MariaDb::start() {
        Ok(server) => server,
        Err(why) => return skip(&why),
    };
    let pid = server.pid().to_string();
    let file = server.scratch("rows.jsonl");
    let Some(probing) = Probing::start(&words(&pid, &FUNCTIONS, &file)) else { return };
    let in_server = FUNCTIONS[..3].iter().map(|function| (MariaDb::PROGRAM, *function));
    let counted = in_server.chain([(oracles::C_LIBRARY, FUNCTIONS[3])]).collect::<Vec<_>>();
    let counts = match Counts::start(&counted, &pid) {
        Ok(counts) => counts,
        Err(why) => return skip(&why),
    };
    let (switches, on_cpu) = (Switches::start(), OnCpu::start());
    let clients = server.load(CLIENTS);
    let (on_cpu, switches, counts) = (on_cpu.end(server.pid()), switches.end(), counts.end());
    probing.interrupt();
    let report = probing.end().report();
    drop(clients);

    let rows = Rows::read(&file);
    for (function, (name, count)) in FUNCTIONS.iter().zip(counts).enumerate() {
        let calls = &report["functions"][function]["calls"];
        assert_eq!([&calls["unwound"], &calls["cut"]], [0, 0], "{name}: {calls}");
        let rows = rows.of(name);
        count.agrees(name, &rows);
        oracles::off_cpu_agrees(&rows, &switches);
    }
    let lives = rows.of("handle_one_connection");
    assert_eq!(lives.len(), CLIENTS, "each is still open");
    on_cpu.agrees(&lives, &switches);
}

/// Functions of each statement and of each row that is changed, with the default options.
#[test]
fn postgres_keeps_its_rate_and_windows_end_in_time() {
    let _alone = ALONE.lock();
    let server = match Postgres::start() {
        Ok(server) => server,
        Err(why) => return skip(&why),
    };
    let (load, pids) = server.rate(CLIENTS);
    for function in ["heap_update", "PortalRun"] {
        if !kept::keeps_its_rate(&load, &pids, function) {
            return;
        }
        kept::ends_in_time(&pids, function);
    }
}

/// Functions of each statement and of each read of a row, with the default options.  InnoDB exports nothing
/// of its read path; `ha_index_read_map` calls it.
#[test]
fn mariadb_keeps_its_rate_and_windows_end_in_time() {
    let _alone = ALONE.lock();
    let server = match MariaDb::start() {
        Ok(server) => server,
        Err(why) => return skip(&why),
    };
    let load = match server.rate(CLIENTS) {
        Ok(load) => load,
        Err(why) => return skip(&why),
    };
    let pid = server.pid().to_string();
    for function in ["dispatch_command", "handler::ha_index_read_map"] {
        if !kept::keeps_its_rate(&load, &pid, function) {
            return;
        }
        kept::ends_in_time(&pid, function);
    }
}

/// A watch with the default options: its intervals have the calls that perf counts in the same time, and all
/// together cost no more than is allowed.
#[test]
fn a_watch_of_postgres_has_the_calls_that_perf_counts() {
    const FUNCTION: &str = "heap_update";
    const MINUTE: Duration = Duration::from_secs(60);
    let _alone = ALONE.lock();
    let server = match Postgres::start() {
        Ok(server) => server,
        Err(why) => return skip(&why),
    };
    let (_load, pids) = server.rate(CLIENTS);
    let words = ["-f", FUNCTION, "-p", &pids, "--format", "json", "-n", "0.25"];
    let Some(probing) = Probing::start_as(&["watch"], &words) else { return };
    let counts = match Counts::start(&[(Postgres::PROGRAM, FUNCTION)], &pids) {
        Ok(counts) => counts,
        Err(why) => return skip(&why),
    };
    std::thread::sleep(MINUTE);
    let [count] = counts.end().try_into().unwrap();
    probing.interrupt();
    let ended = probing.end();
    assert_eq!(ended.code, Some(0), "{}", ended.said);

    let documents: Vec<Value> =
        Deserializer::from_str(&ended.stdout).into_iter().map(Result::unwrap).collect();
    let (report, intervals) = documents.split_last().unwrap();
    let calls = |interval: &Value| interval["functions"][0]["calls"].as_u64().unwrap();
    let all: u64 = intervals.iter().map(calls).sum();
    assert_eq!(report["functions"][0]["calls"]["complete"], all);
    if ended.said.contains("nothing more was recorded") {
        // Of perf's minute the watch has a part then.
        return println!(
            "skipped: probes cost more than is allowed here, and the guard ended the watch: {}",
            ended.said
        );
    }
    let [least, most] = [true, false].map(|inside| {
        let counts = |interval: &&Value| {
            let [end_ns, length_ns] = ["time_ns", "interval_ns"].map(|key| interval[key].as_u64().unwrap());
            count.has((end_ns - length_ns, end_ns), inside)
        };
        intervals.iter().filter(counts).map(calls).sum::<u64>()
    });
    let cost = |interval: &Value| interval["probes"]["cost_percent"].as_f64().unwrap();
    let dearest = intervals.iter().map(cost).fold(0.0, f64::max);
    let mean = intervals.iter().map(cost).sum::<f64>() / intervals.len() as f64;
    println!(
        "{FUNCTION}: {least} to {most} calls, {} by perf; {mean:.1} % more CPU time, {dearest:.1} % in one interval: {}",
        count.calls, ended.said
    );
    assert!((least..=most).contains(&count.calls) && most - least < count.calls / 20);
    assert!(mean <= 20.0, "{mean} %");
}
