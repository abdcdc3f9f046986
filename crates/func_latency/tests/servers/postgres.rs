//! PostgreSQL, and `pgbench` with transactions that begin at a gate: an advisory lock, closed while our
//! session holds it.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::probing::signal;
use crate::rate::Rate;
use crate::server::{self, Missing, Running, is_asleep, until};

/// What pgbench does by itself ("TPC-B (sort of)"), behind the gate.
const TRANSACTION: &str = "\\set aid random(1, 100000)
\\set tid random(1, 10)
\\set delta random(-5000, 5000)
BEGIN;
SELECT pg_advisory_xact_lock_shared(7);
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = 1;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, 1, :aid, :delta, CURRENT_TIMESTAMP);
END;
";

/// Behind which all of its programs are.
const DIRECTORY: &str = "/usr/lib/postgresql/15/bin";

/// A server.
pub(crate) struct Postgres {
    postmaster: Child,
    directory: TempDir,
}

/// Clients of it.
pub(crate) struct Load {
    gate: Session,
    clients: usize,
    _pgbench: Running,
}

impl Postgres {
    /// Its program.
    pub(crate) const PROGRAM: &'static str = "/usr/lib/postgresql/15/bin/postgres";

    /// With the tables of pgbench.
    pub(crate) fn start() -> Result<Self, Missing> {
        server::need(Self::PROGRAM, "postgresql-15")?;
        let directory = server::directory()?;
        let path = directory.path().to_str().unwrap().to_owned();
        let mut initdb = server::command(&format!("{DIRECTORY}/initdb"), &directory);
        initdb.args(["-D", "data", "-A", "trust", "-U", "test", "-N", "--no-locale"]);
        assert!(initdb.status().unwrap().success(), "{initdb:?}");
        let mut postgres = server::command(Self::PROGRAM, &directory);
        // A client that waits for a lock would look for deadlocks after a second, and not rest.
        for setting in
            ["listen_addresses=", "deadlock_timeout=10min", "autovacuum=off", "shared_buffers=32MB"]
        {
            postgres.args(["-c", setting]);
        }
        let postmaster = postgres.args(["-D", "data", "-k", &path]).spawn().unwrap();
        let server = Self { postmaster, directory };
        until("PostgreSQL answers", || server.client("pg_isready").status().unwrap().success());
        let tables = server.client("pgbench").args(["-i", "-s", "1", "-q", "postgres"]).status();
        assert!(tables.unwrap().success());
        Ok(server)
    }

    /// A file of the test.
    pub(crate) fn scratch(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    /// Starts `clients` clients, which wait at the gate.
    pub(crate) fn pgbench(&self, clients: usize) -> Load {
        let mut gate = Session::new(self);
        gate.ask("SELECT pg_advisory_lock(7)");
        let script = self.scratch("transaction.sql");
        std::fs::write(&script, TRANSACTION).unwrap();
        let clients_text = clients.to_string();
        let mut pgbench = self.client("pgbench");
        pgbench.args(["-n", "-c", &clients_text, "-T", "300", "-f", &script, "postgres"]);
        Load { gate, clients, _pgbench: Running(pgbench.spawn().unwrap()) }
    }

    /// Starts `clients` clients that work; their rate, and the processes that serve them.
    pub(crate) fn rate(&self, clients: usize) -> (Rate, String) {
        let mut pgbench = self.client("pgbench");
        pgbench.args(["-n", "-c", &clients.to_string(), "-T", "600", "-P", "1", "postgres"]);
        let mut pgbench = pgbench.stderr(Stdio::piped()).spawn().unwrap();
        let said = pgbench.stderr.take().unwrap();
        // progress: 1.0 s, 2345.6 tps, lat ...
        let tps = |line: &str| line.split(", ").nth(1)?.strip_suffix(" tps")?.parse().ok();
        let load = Rate::of(pgbench, said, tps);
        let mut session = Session::new(self);
        let serving = "SELECT string_agg(pid::text, ',' ORDER BY pid) FROM pg_stat_activity \
                       WHERE application_name = 'pgbench'";
        let mut pids = String::new();
        until("all clients are connected", || {
            pids = session.ask(serving);
            pids.split(',').count() == clients
        });
        (load.served_by(&pids), pids)
    }

    fn client(&self, program: &str) -> Command {
        let mut command = server::command(&format!("{DIRECTORY}/{program}"), &self.directory);
        command.args(["-U", "test", "-h"]).arg(self.directory.path());
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // It takes its processes along.
        signal(self.postmaster.id(), "QUIT");
        let _ = self.postmaster.wait();
    }
}

impl Load {
    /// Waits until all clients wait at the gate; the processes that serve them, by number.
    pub(crate) fn resting(&mut self) -> String {
        let waiting = "SELECT string_agg(pid::text, ',' ORDER BY pid) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
        let mut pids = String::new();
        until("all clients wait at the gate", || {
            pids = self.gate.ask(waiting);
            pids.split(',').count() == self.clients
        });
        let asleep = |pid: &str| is_asleep(&Path::new("/proc").join(pid));
        until("all clients are asleep", || pids.split(',').all(asleep));
        pids
    }

    /// Opens the gate for so long.
    pub(crate) fn run(&mut self, time: Duration) {
        self.gate.ask("SELECT pg_advisory_unlock(7)");
        std::thread::sleep(time);
        self.gate.ask("SELECT pg_advisory_lock(7)");
    }
}

/// A client that is asked one thing after the other.
struct Session {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    _psql: Running,
}

impl Session {
    fn new(server: &Postgres) -> Self {
        let mut psql = server.client("psql");
        psql.args(["-q", "-t", "-A", "postgres"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut psql = psql.spawn().unwrap();
        let (input, output) = (psql.stdin.take().unwrap(), psql.stdout.take().unwrap());
        Self { input, output: BufReader::new(output), _psql: Running(psql) }
    }

    /// The first row of the answer.
    fn ask(&mut self, what: &str) -> String {
        writeln!(self.input, "{what};").unwrap();
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}
