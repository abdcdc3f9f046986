//! `demo`: from nothing to a report of a real program, in one command.

use std::process::Command;

use crate::extent::Extent;
use crate::fixtures::{self, Recording};
use crate::process::{self, Result};
use crate::{layout, setup};

const FUNCTION: &str = "sqlite3VdbeExec";

/// Traces SQLite in software and prints the report of its interpreter loop.
pub(crate) fn run() -> Result {
    setup::run(Extent::Quick)?;
    println!("demo: building func_latency, SQLite and the emulator's plugin; tracing queries in software");
    let recording = Recording { name: "demo-sqlite", log: "sqdemo", options: Vec::new(), full_only: false };
    fixtures::make(&[recording], fixtures::Logs::DropBig, &["--package", "func_latency"])?;
    let data = layout::fixtures().join("demo-sqlite.data");
    let binary = layout::target().join("release").join("func_latency");
    println!("\n$ func_latency report -i target/fixtures/demo-sqlite.data -f {FUNCTION}");
    process::run(Command::new(binary).arg("report").arg("-i").arg(data).args(["-f", FUNCTION]))
}
