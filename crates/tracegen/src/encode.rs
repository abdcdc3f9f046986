//! A block log becomes a recording and its ground truth.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::path::Path;

use model::{BuildId, Tid};
use perfdata::write::{Features, IntelPtInfo, id_index};

use crate::aux_buffer::AuxBuffer;
use crate::clock::{CLOCK, Crystal, MAX_NONTURBO_RATIO, TSC_CTC_RATIO, Time, ticks};
use crate::error::Error;
use crate::fault::Fault;
use crate::filter::IpFilter;
use crate::kernel::{self, Kernel};
use crate::options::Options;
use crate::program::Program;
use crate::pt_clock::TimingConfig;
use crate::pt_unit::{PacketCounts, TraceUnit, UnitConfig};
use crate::sideband::{PMU_TYPE, Sideband};
use crate::simulate::{Disturbance, Simulation, World};
use crate::slow_calls::SlowCalls;
use crate::timeline::Timeline;
use crate::truth::{Writer, save};

/// Core:bus ratio at the start: 3.6 GHz.
const FIRST_RATIO: u8 = 36;

/// Bytes between the page tables of processes.
const PAGE_TABLES: u64 = 0x2000;

/// What was made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Threads.
    pub threads: usize,
    /// Blocks in the log.
    pub blocks: usize,
    /// Blocks in the log with code that no file mapping explains.
    pub unmapped_blocks: usize,
    /// Instructions that ran.
    pub instructions: u64,
    /// Blocks that ran.
    pub blocks_run: u64,
    /// Simulated time.
    pub simulated_ns: u64,
    /// Bytes of trace; of copies, of one.
    pub aux_bytes: u64,
    /// Packets by kind.
    pub packets: PacketCounts,
    /// How often a buffer was full.
    pub truncated: u64,
    /// Size of the recording.
    pub file_bytes: u64,
    /// IP filters as perf records them.
    pub filter: String,
    /// What the log has and the simulation could not explain; not empty: do not trust the result.
    pub oddities: BTreeMap<&'static str, u64>,
}

/// Simulates the run in `log_dir` and writes the recording to `data` and the ground truth to `truth`.
///
/// # Errors
/// [`Error`]: the log is damaged or incomplete, a filter names nothing, a file cannot be written.
pub fn encode(log_dir: &Path, data: &Path, truth: &Path, options: &Options) -> Result<Summary, Error> {
    let program = Program::open(log_dir)?;
    let kernel = options.traces_kernel().then(|| Kernel::new(options.kernel_patched));
    if let Some(kernel) = &kernel {
        write_kernel(kernel, data, options)?;
    }
    let filter = IpFilter::resolve(options, &program.maps, kernel.as_ref())?;
    let filter_text = filter.text.clone();
    let disturbance = Disturbance {
        fault: Fault::resolve(options, &program.maps)?,
        slow_calls: SlowCalls::resolve(options, &program.maps)?,
    };
    let sideband = Sideband::new(program.pid, tids(&program, options)?, options);
    let timeline = open_timeline(data, &sideband, &filter, options)?;
    let buffers = sideband.buffers();
    let mut world = World::new(&program, kernel.as_ref(), options, (filter, disturbance), sideband, timeline);
    let buffers = (0..buffers).map(|_| aux_buffer(&mut world)).collect();
    let mut simulation = Simulation::new(world, buffers);
    simulation.run().map_err(Error::file(data))?;

    let Simulation { world, threads, buffers, end, .. } = simulation;
    let file_bytes = world.timeline.finish(&features(&program, options)).map_err(Error::file(data))?;
    let truths: Vec<(Tid, &Writer)> = threads.iter().map(|thread| (thread.tid, &thread.truth)).collect();
    save(truth, CLOCK, &truths).map_err(Error::file(truth))?;
    if let Some(prefix) = &options.raw {
        write_raw_maps(prefix, &program)?;
    }
    let mut packets = PacketCounts::default();
    buffers.iter().for_each(|buffer| packets.add(&buffer.unit.counts()));
    Ok(Summary {
        threads: threads.len(),
        blocks: program.blocks.len(),
        unmapped_blocks: program.blocks.iter().filter(|block| !block.mapped).count(),
        instructions: threads.iter().map(|thread| thread.instructions).sum(),
        blocks_run: threads.iter().map(|thread| thread.blocks).sum(),
        simulated_ns: end.ns() - Time::START.ns(),
        aux_bytes: world.aux_bytes,
        packets,
        truncated: world.truncated,
        file_bytes,
        filter: filter_text,
        oddities: world.oddities,
    })
}

/// The threads of the recording: those of the program, and the copies of its only one.
fn tids(program: &Program, options: &Options) -> Result<Vec<Tid>, Error> {
    match program.threads.as_slice() {
        [thread] => Ok((0..i32::from(options.copies)).map(|copy| Tid(thread.tid.0 + copy)).collect()),
        threads if options.copies == 1 => Ok(threads.iter().map(|thread| thread.tid).collect()),
        threads => Err(Error::Copies { threads: threads.len() }),
    }
}

/// What a decoder needs of the kernel: `kernel/vmlinux`, and beside it what `perf record --kcore` copies. The
/// kernel is the same for all recordings of a directory, but for the patched one, which has a directory of
/// its own.
fn write_kernel(kernel: &Kernel, data: &Path, options: &Options) -> Result<(), Error> {
    let dir = data.with_file_name(if options.kernel_patched { "kernel-patched" } else { "kernel" });
    std::fs::create_dir_all(&dir).map_err(Error::file(&dir))?;
    let files = [
        ("vmlinux", kernel::vmlinux(kernel)),
        ("kcore", kernel::kcore(kernel)),
        ("kallsyms", kernel::kallsyms(kernel).into_bytes()),
        ("modules", vec![]),
    ];
    for (name, bytes) in &files {
        let path = dir.join(name);
        // Another process may be reading it.
        if std::fs::read(&path).ok().as_ref() != Some(bytes) {
            std::fs::write(&path, bytes).map_err(Error::file(&path))?;
        }
    }
    Ok(())
}

/// The recording's file, up to the first record with a time.
fn open_timeline(
    data: &Path,
    sideband: &Sideband,
    filter: &IpFilter,
    options: &Options,
) -> Result<Timeline, Error> {
    let info = IntelPtInfo {
        pmu_type: PMU_TYPE,
        clock: CLOCK,
        have_sched_switch: sideband.have_sched_switch(),
        snapshots: false,
        per_cpu_buffers: options.per_cpu,
        tsc_ctc_ratio: if options.no_ratios { (0, 0) } else { TSC_CTC_RATIO },
        max_nonturbo_ratio: if options.no_ratios { 0 } else { MAX_NONTURBO_RATIO },
        filter: filter.text.clone(),
    };
    let events = sideband.events(options);
    let mut head = info.time_conv();
    id_index(&events).iter().for_each(|record| head.extend_from_slice(record));
    head.extend(info.auxtrace_info());
    let mut timeline = Timeline::create(data, events).map_err(Error::file(data))?;
    timeline.head(&head).map_err(Error::file(data))?;
    if let Some(prefix) = &options.raw {
        timeline.also_raw(prefix, sideband.buffers()).map_err(Error::file(prefix))?;
    }
    Ok(timeline)
}

fn aux_buffer(world: &mut World<'_>) -> AuxBuffer {
    let options = world.options;
    let config = UnitConfig {
        timing: TimingConfig {
            cyc: !options.no_cyc,
            cyc_threshold: u32::from(options.cyc_thresh),
            mtc_period: (!options.no_mtc).then_some(u32::from(options.mtc_period)),
            tma: !options.no_tma,
            crystal: Crystal::new(options.tsc_skew),
            tsc_lag: options.tsc_lag,
            skip_mtc: options.skip_mtc,
            cbr_delay: ticks(options.late_cbr_us),
            seed: options.seed,
        },
        tsc_packets: !options.no_tsc_packets,
        return_compression: !options.noretcomp,
        long_tnt: options.long_tnt,
        defer_tip: options.defer_tip,
        late_tnt: options.late_tnt,
        seed: options.seed,
        cr3: options.traces_kernel().then(|| world.program.pid.0 as u64 * PAGE_TABLES),
        psb_bytes: 2048 << options.psb_period,
        whole_psb_ip: options.whole_psb_ip,
        ovf_ip: options.ovf_ip,
    };
    let first_overflow = if options.ovf_ms > 0.0 {
        Time::START.plus_us(1000.0 * world.rng.exponential(options.ovf_ms))
    } else {
        Time::NEVER
    };
    AuxBuffer::new(TraceUnit::new(config, FIRST_RATIO), first_overflow)
}

fn features(program: &Program, options: &Options) -> Features {
    let mapped: BTreeSet<&String> = program.maps.mappings.iter().map(|mapping| &mapping.path).collect();
    let build_id = |path: &String| {
        let build_id = program.maps.objects.get(path)?.as_ref()?.build_id.clone()?;
        Some((path.clone(), BuildId(build_id)))
    };
    let event = if options.traces_kernel() { "intel_pt/cyc,mtc/" } else { "intel_pt/cyc,mtc/u" };
    let kernel_build_id =
        options.traces_kernel().then(|| ("[kernel.kallsyms]".to_owned(), kernel::build_id()));
    let mut command_line: Vec<String> = ["perf", "record", "-e", event, "-p"].map(str::to_owned).to_vec();
    command_line.push(program.pid.0.to_string());
    Features {
        hostname: "tracegen".to_owned(),
        os_release: "6.1.0".to_owned(),
        version: "6.1".to_owned(),
        cpus: u32::from(options.ncpu) * u32::from(options.copies),
        cpuid: "GenuineIntel,6,85,7".to_owned(),
        command_line,
        pmus: [(4, "cpu"), (PMU_TYPE, "intel_pt"), (1, "software")]
            .map(|(number, name)| (number, name.to_owned()))
            .to_vec(),
        build_ids: mapped.into_iter().filter_map(build_id).chain(kernel_build_id).collect(),
        tracing_data: None,
    }
}

/// `PREFIX.maps`: address, length, file offset, path.
fn write_raw_maps(prefix: &Path, program: &Program) -> Result<(), Error> {
    let mut text = String::new();
    for mapping in &program.maps.mappings {
        let (start, len, offset) = (mapping.start(), mapping.len, mapping.file_offset);
        // writing to a string does not fail
        let _ = writeln!(text, "{start} {len:#x} {offset:#x} {}", mapping.path);
    }
    let mut path = prefix.as_os_str().to_owned();
    path.push(".maps");
    let path = Path::new(&path);
    std::fs::write(path, text).map_err(Error::file(path))
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "threads {}, blocks {} ({} without mapping), executed {} blocks, {} instructions; simulated {:.3} ms",
            self.threads,
            self.blocks,
            self.unmapped_blocks,
            self.blocks_run,
            self.instructions,
            self.simulated_ns as f64 / 1e6
        )?;
        let p = &self.packets;
        writeln!(
            f,
            "trace {} bytes ({:.2} bits an instruction): psb {} tnt {} tip {} ({} deferred) fup {} pge {} cyc {} mtc {} ovf {}, \
             compressed returns {}, truncated {}",
            self.aux_bytes,
            self.aux_bytes as f64 * 8.0 / self.instructions.max(1) as f64,
            p.psb,
            p.tnt,
            p.tip,
            p.deferred_tip,
            p.fup,
            p.pge,
            p.cyc,
            p.mtc,
            p.ovf,
            p.compressed_returns,
            self.truncated
        )?;
        write!(f, "perf.data {} bytes", self.file_bytes)?;
        if !self.filter.is_empty() {
            write!(f, "; {}", self.filter)?;
        }
        if !self.oddities.is_empty() {
            write!(f, "; not explained: {:?}", self.oddities)?;
        }
        Ok(())
    }
}
