//! Probes in processes: they are there as long as their links.  The kernel takes them away with the process that holds the
//! links, however that ends.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use libbpf_rs::{ErrorKind, Link, ProgramMut, UprobeMultiOpts, UprobeOpts};
use model::Pid;

use crate::error::BpfError;
use crate::probe_points::{ProbePoint, ProbePoints};
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

/// Which of a function's probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// Those at the first instruction.
    Entries,
    /// The others.
    Exits,
}

impl Which {
    fn takes(self, point: &ProbePoint) -> bool {
        point.is_entry() == (self == Self::Entries)
    }
}

/// Places the probes of all functions.
pub(crate) fn attach(
    programs: &Programs,
    program: &str,
    functions: &[ProbedFunction],
    which: Which,
) -> Result<Vec<Link>, BpfError> {
    let program = programs.program(program)?;
    let mut probes: BTreeMap<(Pid, &Path), Vec<(usize, u64)>> = BTreeMap::new();
    for (index, function) in functions.iter().enumerate() {
        for place in &function.places {
            let of_place = probes.entry((place.pid, &place.file)).or_default();
            let points = function.points.points.iter().filter(|point| which.takes(point));
            of_place.extend(
                points.map(|point| (point.offset.0 as usize, point.cookie(index, function.is_child))),
            );
        }
    }
    let mut links = Vec::new();
    for ((pid, file), probes) in probes.into_iter().filter(|(_, probes)| !probes.is_empty()) {
        let placed = match programs.has_multi {
            true => together(&program, pid, file, &probes),
            false => one_by_one(&program, pid, file, &probes),
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
) -> libbpf_rs::Result<Vec<Link>> {
    let (offsets, cookies) = probes.iter().copied().unzip();
    let options = UprobeMultiOpts { offsets, cookies, ..UprobeMultiOpts::default() };
    Ok(vec![program.attach_uprobe_multi_with_opts(pid.0, file, "", options)?])
}

fn one_by_one(
    program: &ProgramMut<'_>,
    pid: Pid,
    file: &Path,
    probes: &[(usize, u64)],
) -> libbpf_rs::Result<Vec<Link>> {
    let attach = |&(offset, cookie): &(usize, u64)| {
        program.attach_uprobe_with_opts(pid.0, file, offset, UprobeOpts { cookie, ..UprobeOpts::default() })
    };
    probes.iter().map(attach).collect()
}
