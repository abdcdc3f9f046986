//! Probes in processes: they are there as long as their links. The kernel takes them away with the process
//! that holds the links, however that ends.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use libbpf_rs::{ErrorKind, Link, ProgramMut, UprobeMultiOpts, UprobeOpts};
use model::Pid;

use crate::error::BpfError;
use crate::probe_points::{Ends, ProbePoint, ProbePoints};
use crate::programs::Programs;

/// A function to probe.
#[derive(Clone, Debug)]
pub struct ProbedFunction {
    /// Its probes.
    pub points: ProbePoints,
    /// It is called by others of them, and its calls count as their children.
    pub is_child: bool,
    /// In which processes, and by which file there.
    pub places: Vec<ProbedPlace>,
}

/// Where a function is mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbedPlace {
    /// Process.
    pub pid: Pid,
    /// Its file, by a path that we can open.
    pub file: PathBuf,
}

/// Which of a function's probes are placed in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Those at the first instructions: calls can be counted.
    Entries,
    /// Those that see calls end: calls can be timed.
    Ends,
    /// All.
    Both,
}

impl Part {
    /// What is placed, in this order: where both are, each call that is seen to begin is seen to end.
    pub(crate) const fn kinds(self) -> &'static [Which] {
        match self {
            Self::Entries => &[Which::Entries],
            Self::Ends => &[Which::Exits, Which::Returns],
            Self::Both => &[Which::Exits, Which::Returns, Which::Entries],
        }
    }
}

/// Probes of one kind: a link has no others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// Those at the first instruction.
    Entries,
    /// The others.
    Exits,
    /// Those at return addresses, where these are rewritten.
    Returns,
}

impl Which {
    /// Offsets and cookies.
    fn of(self, function: &ProbedFunction, index: usize) -> Vec<(usize, u64)> {
        let points = &function.points;
        let is_rewritten = points.ends == Ends::ByReturnAddress;
        let taken = |point: &ProbePoint| match self {
            Self::Entries => point.is_entry().then_some(*point),
            Self::Exits => (!point.is_entry()).then_some(*point),
            Self::Returns => (point.is_entry() && is_rewritten).then(|| point.returned()),
        };
        let probe = |point: ProbePoint| (point.offset.0 as usize, point.cookie(index, function.is_child));
        points.points.iter().filter_map(taken).map(probe).collect()
    }
}

/// Places the probes of all functions: one link for each process and file.
#[cfg(test)]
pub(crate) fn attach(
    programs: &Programs,
    program: &str,
    functions: &[ProbedFunction],
    which: Which,
) -> Result<Vec<Link>, BpfError> {
    attach_group(programs, program, functions.iter().enumerate(), which)
}

/// Places the probes of some functions, each with its number: one link for each process and file.
pub(crate) fn attach_group<'f>(
    programs: &Programs,
    program: &str,
    functions: impl Iterator<Item = (usize, &'f ProbedFunction)>,
    which: Which,
) -> Result<Vec<Link>, BpfError> {
    let program = programs.program(program)?;
    let mut probes: BTreeMap<(Pid, &Path), Vec<(usize, u64)>> = BTreeMap::new();
    for (index, function) in functions {
        for place in &function.places {
            probes.entry((place.pid, &place.file)).or_default().extend(which.of(function, index));
        }
    }
    let retprobe = which == Which::Returns;
    let mut links = Vec::new();
    for ((pid, file), probes) in probes.into_iter().filter(|(_, probes)| !probes.is_empty()) {
        let placed = match programs.has_multi {
            true => together(&program, pid, file, &probes, retprobe),
            false => one_by_one(&program, pid, file, &probes, retprobe),
        };
        match placed {
            Ok(placed) => links.extend(placed),
            // It has ended meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound || !process_lives(pid) => (),
            Err(error) => {
                return Err(BpfError::Attach { pid, file: file.to_path_buf(), what: format!("{error:#}") });
            }
        }
    }
    Ok(links)
}

fn process_lives(pid: Pid) -> bool {
    Path::new("/proc").join(pid.0.to_string()).exists()
}

fn together(
    program: &ProgramMut<'_>,
    pid: Pid,
    file: &Path,
    probes: &[(usize, u64)],
    retprobe: bool,
) -> libbpf_rs::Result<Vec<Link>> {
    let (offsets, cookies) = probes.iter().copied().unzip();
    let options = UprobeMultiOpts { offsets, cookies, retprobe, ..UprobeMultiOpts::default() };
    Ok(vec![program.attach_uprobe_multi_with_opts(pid.0, file, "", options)?])
}

fn one_by_one(
    program: &ProgramMut<'_>,
    pid: Pid,
    file: &Path,
    probes: &[(usize, u64)],
    retprobe: bool,
) -> libbpf_rs::Result<Vec<Link>> {
    let attach = |&(offset, cookie): &(usize, u64)| {
        let options = UprobeOpts { cookie, retprobe, ..UprobeOpts::default() };
        program.attach_uprobe_with_opts(pid.0, file, offset, options)
    };
    probes.iter().map(attach).collect()
}
