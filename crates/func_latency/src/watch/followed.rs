//! A recording in pieces, and the thread that follows it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use anyhow::Result;
use recorder::{Interrupts, Piece, Pieces, RingCopies};

use crate::exit::Exit;
use crate::prepared::Prepared;
use crate::record_config::RecordConfig;
use crate::{output, record_command};

/// How a watch records what runs now.
pub(super) struct LiveWatch<'a> {
    pub(super) record: &'a RecordConfig,
    /// Where pieces wait; `None`: the directory for temporary files.
    pub(super) directory: Option<PathBuf>,
    /// All pieces together take no more.
    pub(super) most_bytes: u64,
    pub(super) interval: Duration,
    /// The terminal has a view.
    pub(super) on_screen: bool,
    /// By which the recording is ended.
    pub(super) interrupts: &'a Interrupts,
}

/// What the thread that follows a recording gets.
pub(super) struct Arriving<'r> {
    pub(super) pieces: Receiver<Piece>,
    /// Bytes of all pieces that are there: those of a piece that it lets go of are taken off.
    pub(super) waiting_bytes: Arc<AtomicU64>,
    /// By which the recording is ended.
    pub(super) interrupts: &'r Interrupts,
}

/// Records while `follow` takes the pieces, in a thread of its own. `copies`: by which it asks for the trace.
pub(super) fn run(
    live: &LiveWatch<'_>,
    copies: Option<Arc<RingCopies>>,
    follow: impl FnOnce(Arriving<'_>) -> Result<Exit> + Send,
) -> Result<Exit> {
    let interrupts = live.interrupts;
    if live.on_screen {
        // A signal must not leave the terminal as the view has it.
        interrupts.keep();
    }
    let prepared = Prepared::new(live.record, interrupts)?;
    record_command::announce(live.record, &prepared);
    let spool = PieceDirectory::create(live.directory.as_deref())?;
    let (reader, pieces) = mpsc::channel();
    let waiting_bytes = Arc::new(AtomicU64::new(0));
    let how = Pieces {
        directory: spool.0.clone(),
        length: live.interval,
        most_bytes: live.most_bytes,
        waiting_bytes: Arc::clone(&waiting_bytes),
        reader,
        copies,
    };
    std::thread::scope(|scope| {
        let arriving = Arriving { pieces, waiting_bytes, interrupts };
        // Where decoding fails the recording ends, too.
        let follower = scope.spawn(move || follow(arriving).inspect_err(|_| interrupts.end_early()));
        let first = spool.0.join("0.data");
        let recorded = prepared.record_in_pieces(&first, live.record.window, interrupts, Some(&how));
        // The follower ends when no more pieces can come.
        drop(how);
        interrupts.give_back();
        if recorded.is_err() {
            interrupts.end_early();
        }
        recorded.iter().for_each(|summary| record_command::tell(live.record, summary));
        let followed = follower.join().map_err(|_| anyhow::anyhow!("the thread that decodes failed"))?;
        // Where decoding has failed the recording ends, too, and only says that nothing follows it.
        followed.and_then(|exit| recorded.map(|_| exit))
    })
}

/// The directory of the pieces; removed in the end.
struct PieceDirectory(PathBuf);

impl PieceDirectory {
    fn create(directory: Option<&Path>) -> Result<Self> {
        let within = directory.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let path = within.join(format!("func_latency-watch-{}", std::process::id()));
        output::create_empty_directory("--spool-dir", &path)?;
        Ok(Self(path))
    }
}

impl Drop for PieceDirectory {
    fn drop(&mut self) {
        // What cannot be removed is left in a directory for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}
