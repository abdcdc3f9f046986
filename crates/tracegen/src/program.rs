//! What ran: a block log, with blocks classified and moved to the recording's addresses.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use model::{Avma, Pid};

use crate::block::{Block, Signals, Terminator, classify};
use crate::elf::Place;
use crate::error::Error;
use crate::log::{BlockRecord, Entry, Log, ThreadLog, syscall};
use crate::maps::Maps;

/// A logged run.
#[derive(Debug)]
pub struct Program {
    /// The process.
    pub pid: Pid,
    /// Its mappings.
    pub maps: Maps,
    /// Its blocks, by id.
    pub blocks: Vec<Block>,
    /// What its threads did, by thread id.
    pub threads: Vec<ThreadLog>,
    by_start: HashMap<Avma, u32>,
    after_calls: HashSet<Avma>,
}

impl Program {
    /// Opens a log directory.
    ///
    /// # Errors
    /// [`Error::File`], [`Error::Log`].
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let log = Log::open(dir)?;
        let maps = Maps::new(&log);
        let handlers = signal_handlers(&log.threads);
        let mut functions = FunctionNumbers::default();
        let blocks: Vec<Block> = log
            .blocks
            .iter()
            .zip(0..)
            .map(|(record, id)| {
                let block = block(record, id, &maps, &mut functions);
                Block { signal_handler: handlers.get(&record.start).copied(), ..block }
            })
            .collect();
        let mut by_start = HashMap::new();
        for (id, block) in blocks.iter().enumerate() {
            by_start.entry(block.start).or_insert(id as u32);
        }
        check_threads(dir, &log.threads, blocks.len())?;
        // After a call that never returns another function may stand.
        let returns = |block: &Block| {
            let next = by_start.get(&block.end).and_then(|&id| blocks.get(id as usize));
            next.is_none_or(|next: &Block| next.first_function == block.last_function)
        };
        let is_call = |block: &&Block| {
            use Terminator::{Call, IndirectCall, Syscall};
            matches!(block.terminator, Call | IndirectCall | Syscall) && returns(block)
        };
        let after_calls = blocks.iter().filter(is_call).map(|block| block.end).collect();
        Ok(Self { pid: Pid(log.pid), maps, blocks, threads: log.threads, by_start, after_calls })
    }

    /// A block that starts here.
    pub(crate) fn block_at(&self, start: Avma) -> Option<Block> {
        self.by_start.get(&start).and_then(|&id| self.blocks.get(id as usize)).copied()
    }

    /// A call or a system call returns to there.
    pub(crate) fn is_after_call(&self, at: Avma) -> bool {
        self.after_calls.contains(&at)
    }

    /// The program's name as the kernel has it: at most 15 bytes.
    pub(crate) fn comm(&self) -> String {
        let name = Path::new(&self.maps.executable).file_name().unwrap_or_default();
        name.to_string_lossy().chars().take(15).collect()
    }
}

/// All blocks that the logs name exist.
fn check_threads(dir: &Path, threads: &[ThreadLog], blocks: usize) -> Result<(), Error> {
    for thread in threads {
        let unknown = |entry| matches!(entry, Entry::Block(id) if id as usize >= blocks);
        if let Some(record) = thread.entries(0).position(unknown) {
            let path = dir.join(format!("t{}.log", thread.tid.0));
            return Err(Error::Log { path, record: record + 1, what: "no such block" });
        }
    }
    Ok(())
}

/// What any thread gave to `rt_sigaction`: the handlers' addresses, and their signals.
fn signal_handlers(threads: &[ThreadLog]) -> HashMap<u64, Signals> {
    /// `SIGILL`, `SIGTRAP`, `SIGBUS`, `SIGFPE`, `SIGSEGV`.
    const FAULTS: [u8; 5] = [4, 5, 7, 8, 11];
    let mut handlers = HashMap::new();
    for entry in threads.iter().flat_map(|thread| thread.entries(0)) {
        let Entry::Syscall { number: syscall::RT_SIGACTION, argument, .. } = entry else { continue };
        let (signal, handler) = ((argument >> 56) as u8, argument & (u64::MAX >> 8));
        // Neither SIG_DFL nor SIG_IGN.
        if handler > 1 {
            let signals = if FAULTS.contains(&signal) { Signals::Faults } else { Signals::Events };
            let all = handlers.entry(handler).or_insert(signals);
            if *all != signals {
                *all = Signals::Both;
            }
        }
    }
    handlers
}

fn block(record: &BlockRecord, id: u32, maps: &Maps, functions: &mut FunctionNumbers) -> Block {
    let (mut end, mut instructions) = (record.end, record.instructions);
    let (terminator, displacement) = classify(record.last_bytes()).unwrap_or_else(|| {
        end = record.last; // not translated
        instructions = instructions.saturating_sub(1);
        (Terminator::FallThrough, 0)
    });
    let mapping = maps.find(record.start, id).and_then(|index| maps.mappings.get(index));
    let moved_by = mapping.map_or(0, |mapping| mapping.moved_by);
    let moved = |address: u64| Avma(address.wrapping_add(moved_by));
    Block {
        start: moved(record.start),
        last: moved(record.last),
        end: moved(end),
        target: moved(end.wrapping_add(displacement as u64)),
        instructions,
        first_function: functions.number(record.start, id, maps),
        last_function: functions.number(record.last, id, maps),
        terminator,
        signal_handler: None,
        mapped: mapping.is_some(),
    }
}

/// Numbers the functions, to see which jumps leave theirs.
#[derive(Default)]
struct FunctionNumbers {
    objects: HashMap<String, usize>,
    places: HashMap<(usize, Place), u32>,
    /// By mapping and address.
    addresses: HashMap<(usize, u64), u32>,
}

impl FunctionNumbers {
    fn number(&mut self, qemu_address: u64, block: u32, maps: &Maps) -> u32 {
        let Some(index) = maps.find(qemu_address, block) else { return 0 };
        if let Some(&number) = self.addresses.get(&(index, qemu_address)) {
            return number;
        }
        let Some(mapping) = maps.mappings.get(index) else { return 0 };
        let objects = self.objects.len() + 1;
        let object = *self.objects.entry(mapping.path.clone()).or_insert(objects);
        let place = maps.elf(&mapping.path).and_then(|elf| {
            let address = elf.address_of(mapping.file_offset_of(qemu_address))?;
            Some(elf.place(address))
        });
        let places = self.places.len() as u32 + 1;
        let number = *self.places.entry((object, place.unwrap_or(Place::Unnamed(0)))).or_insert(places);
        self.addresses.insert((index, qemu_address), number);
        number
    }
}
