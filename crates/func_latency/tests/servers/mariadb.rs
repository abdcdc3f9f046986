//! MariaDB, and clients that rest when they have been told nothing, as before and behind each load.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use crate::rate::Rate;
use crate::server::{self, Missing, Running, is_asleep, until};

/// What each client does: statements that wait for the disk, for a row that another one has locked, for a
/// CPU, and for time.
const LOAD: &str = "\
INSERT INTO test.t (v) VALUES (1);
UPDATE test.t SET v = v + 1 WHERE id = 1;
SELECT COUNT(*) FROM test.t WHERE v > 0;
";
/// How often.
const ROUNDS: usize = 20;
const AT_THE_END: &str = "SELECT SLEEP(0.02);\nSELECT BENCHMARK(400000, MD5('x'));\nSELECT 'done';\n";

/// A server.
pub(crate) struct MariaDb {
    server: Running,
    directory: TempDir,
}

impl MariaDb {
    /// Its program.
    pub(crate) const PROGRAM: &'static str = "/usr/sbin/mariadbd";
    const CLIENT: &'static str = "/usr/bin/mariadb";
    const SYSBENCH: &'static str = "/usr/bin/sysbench";

    /// With one table.
    pub(crate) fn start() -> Result<Self, Missing> {
        server::need(Self::PROGRAM, "mariadb-server-core")?;
        server::need(Self::CLIENT, "mariadb-client-core")?;
        let directory = server::directory()?;
        let mut server = server::command(Self::PROGRAM, &directory);
        // Without tables of users there is no need to make any.  A thread that ends does not wait for the
        // next connection.
        server.args(["--no-defaults", "--skip-grant-tables", "--skip-networking", "--thread-cache-size=0"]);
        server.args(["--innodb-buffer-pool-size=32M", "--innodb-log-file-size=8M", "--performance-schema=0"]);
        let path = |name: &str, of: &str| format!("--{name}={}", directory.path().join(of).display());
        server.args([path("datadir", "."), path("socket", "socket"), path("pid-file", "pid")]);
        let server = Self { server: Running(server.spawn().unwrap()), directory };
        until("MariaDB answers", || server.client().args(["-e", "SELECT 1"]).status().unwrap().success());
        let table = "CREATE DATABASE test; CREATE TABLE test.t (id INT PRIMARY KEY AUTO_INCREMENT, v INT) ENGINE=InnoDB; \
                     INSERT INTO test.t (v) VALUES (0)";
        assert!(server.client().args(["-e", table]).status().unwrap().success());
        Ok(server)
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.server.0.id()
    }

    /// A file of the test.
    pub(crate) fn scratch(&self, name: &str) -> String {
        self.directory.path().join(name).to_str().unwrap().to_owned()
    }

    /// Connects `clients` clients, which do all that they are told, and rest.  They stay until they are
    /// dropped.
    pub(crate) fn load(&self, clients: usize) -> Vec<Running> {
        let told = LOAD.repeat(ROUNDS) + AT_THE_END;
        let mut clients: Vec<Running> = (0..clients).map(|_| Running(self.talking())).collect();
        for client in &mut clients {
            client.0.stdin.as_mut().unwrap().write_all(told.as_bytes()).unwrap();
        }
        for client in &mut clients {
            let lines = BufReader::new(client.0.stdout.take().unwrap()).lines();
            assert!(lines.map_while(Result::ok).any(|line| line == "done"), "a client has ended");
        }
        self.rests();
        clients
    }

    /// Starts `clients` clients that read, each transaction 14 statements.
    pub(crate) fn rate(&self, clients: usize) -> Result<Rate, Missing> {
        server::need(Self::SYSBENCH, "sysbench")?;
        let sysbench = |words: &[&str]| {
            let mut command = server::command(Self::SYSBENCH, &self.directory);
            command.args(["oltp_read_only", "--mysql-user=root", "--mysql-db=test", "--db-ps-mode=disable"]);
            command.args(["--tables=1", "--table-size=10000", "--time=600", "--report-interval=1"]);
            command.arg(format!("--mysql-socket={}", self.directory.path().join("socket").display()));
            command.arg(format!("--threads={clients}")).args(words);
            command
        };
        assert!(sysbench(&["--threads=1", "prepare"]).status().unwrap().success());
        let mut load = sysbench(&["run"]).stdout(Stdio::piped()).spawn().unwrap();
        let said = load.stdout.take().unwrap();
        // [ 1s ] thds: 8 tps: 3603.17 qps: ...
        let tps = |line: &str| line.split(" tps: ").nth(1)?.split(' ').next()?.parse().ok();
        Ok(Rate::of(load, said, tps).served_by(&self.pid().to_string()))
    }

    fn rests(&self) {
        let tasks = format!("/proc/{}/task", self.pid());
        until("all threads are asleep", || {
            std::fs::read_dir(&tasks).unwrap().map_while(Result::ok).all(|task| is_asleep(&task.path()))
        });
    }

    fn talking(&self) -> Child {
        let mut client = self.client();
        client.args(["--batch", "--unbuffered", "--skip-column-names"]);
        client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
    }

    fn client(&self) -> Command {
        let mut command = server::command(Self::CLIENT, &self.directory);
        command.args(["--no-defaults", "--user=root", "--socket"]).arg(self.directory.path().join("socket"));
        command
    }
}
