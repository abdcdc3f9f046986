//! Summaries: what the report of a recording is made of, in a file, so that reports add up.
//!
//! ```text
//!   report --summary a.json          analyzer::Summary, names, slowest calls -> file
//!   merge a.json b.json ...          files -> one, with numbers of its own   -> report, --summary
//! ```
//! Functions and objects have numbers in a file, and what these stand for beside them ([`names`]). Numbers of
//! a merged file follow from the names, so that it does not matter in which order files were merged.

pub(crate) mod names;
mod numbering;
pub(crate) mod slowest;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;

use analyzer::Summary;
use anyhow::Result;
use model::ClockOffsets;
use serde::{Deserialize, Serialize};

use crate::exit::{Exit, failure};
use crate::output;
use names::NameTable;
use slowest::SlowRow;

/// Name and version of the format.
pub(crate) const SCHEMA: &str = "func_latency.summary/1";

/// Bytes that a file may have.
const BYTES_MAX: u64 = 1 << 30;

/// Bytes of memory that a file may take by [`memory_of`]: those of a million different latencies on each of
/// 25 hosts.
const MEMORY_MAX: u64 = 2 << 30;

/// A file: of one recording, or of several.
#[derive(Serialize, Deserialize)]
pub(crate) struct SummaryFile {
    schema: String,
    /// By name.
    pub(crate) recordings: BTreeMap<String, RecordingFacts>,
    /// What numbers stand for.
    pub(crate) names: NameTable,
    /// The sums by host; empty: the recordings do not name theirs.
    pub(crate) hosts: BTreeMap<String, Summary>,
    /// The slowest calls of each function.
    pub(crate) slowest: Vec<SlowRow>,
    /// Recordings that have no summary, and why: `c.data: cannot open it`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) missing: BTreeSet<String>,
}

/// What a report says of a recording, besides its sums.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct RecordingFacts {
    /// The machine; empty: it is not known.
    pub(crate) host: String,
    pub(crate) labels: BTreeMap<String, String>,
    /// The file, as it was named.
    pub(crate) input: String,
    pub(crate) aux_bytes: u64,
    pub(crate) decoder: String,
    pub(crate) monotonic_offset_ns: Option<i64>,
    pub(crate) realtime_offset_ns: Option<i64>,
    pub(crate) sched_apart_ns: Option<u64>,
    /// Which calls were asked for; empty: all.
    pub(crate) only: Vec<String>,
    pub(crate) problems: Vec<String>,
}

impl RecordingFacts {
    pub(crate) fn clock_offsets(&self) -> ClockOffsets {
        ClockOffsets { monotonic_ns: self.monotonic_offset_ns, realtime_ns: self.realtime_offset_ns }
    }
}

impl SummaryFile {
    /// Of one recording; its functions and objects have the numbers of `names`.
    pub(crate) fn new(
        recording: &str,
        facts: RecordingFacts,
        names: NameTable,
        sums: Summary,
        slowest: Vec<SlowRow>,
    ) -> Self {
        let hosts = BTreeMap::from([(facts.host.clone(), sums.named(recording))]);
        let recordings = BTreeMap::from([(recording.to_owned(), facts)]);
        let (schema, missing) = (SCHEMA.to_owned(), BTreeSet::new());
        Self { schema, recordings, names, hosts, slowest, missing }.numbered_by_names()
    }

    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or is no summary of a version that is known.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let bytes = read_bounded(path).map_err(|error| {
            let denied = error.kind() == io::ErrorKind::PermissionDenied;
            let exit = if denied { Exit::NotPossible } else { Exit::BadInput };
            failure(exit, format!("cannot read {}: {error}", path.display()))
        })?;
        let file = Self::parse(&bytes);
        file.map_err(|why| failure(Exit::BadInput, format!("{}: {why}", path.display())))
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Version {
            schema: String,
        }
        let memory = memory_of(bytes);
        if memory > MEMORY_MAX {
            return Err(format!(
                "its {} values would take {} GB of memory, and a summary may take {}: write it of fewer functions \
                 (-f), or merge fewer recordings into it",
                values_of(bytes),
                memory >> 30,
                MEMORY_MAX >> 30
            ));
        }
        let no_summary =
            |error| format!("is no summary (report --summary) and no part (report --part): {error}");
        let Version { schema } = serde_json::from_slice(bytes).map_err(no_summary)?;
        if schema != SCHEMA {
            return Err(format!("has schema '{schema}', and {SCHEMA} is read here: write it again"));
        }
        let file: Self = serde_json::from_slice(bytes).map_err(no_summary)?;
        let hosts = file.hosts.iter();
        let mut of_sums: Vec<(&str, &str)> =
            hosts.flat_map(|(host, sums)| sums.recordings().map(|name| (name, host.as_str()))).collect();
        of_sums.sort_unstable();
        let facts = file.recordings.iter();
        let of_facts: Vec<(&str, &str)> =
            facts.map(|(name, facts)| (name.as_str(), facts.host.as_str())).collect();
        if of_sums != of_facts || of_sums.is_empty() {
            return Err("its sums are not those of its recordings".to_owned());
        }
        if !file.names.has_each_once() {
            return Err("it gives two numbers to one function or object".to_owned());
        }
        if !file.hosts.values().flat_map(Summary::functions).all(|id| file.names.has_function(id)) {
            return Err("it has sums of a function that it does not name".to_owned());
        }
        if !file.hosts.values().all(Summary::is_plausible) {
            return Err("its counts of calls are none that there can be".to_owned());
        }
        Ok(file)
    }

    /// Writes the file.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        output::write_file(path, |out| {
            serde_json::to_writer(&mut *out, self)?;
            out.write_all(b"\n")
        })
    }

    /// Adds the recordings of another file.
    ///
    /// # Errors
    /// A recording is in both, or others of its calls were asked for.
    pub(crate) fn merge(self, other: Self) -> Result<Self, String> {
        let only = |file: &Self| file.recordings.values().next().map(|facts| facts.only.clone());
        if let (Some(one), Some(another)) = (only(&self), only(&other))
            && one != another
        {
            return Err(format!(
                "was made of calls {}, and what comes before it of calls {}: make both with the same -a, --li \
                 and --ti",
                described(&another),
                described(&one)
            ));
        }
        let (one, other) = numbering::together(self, other);
        let Self { mut hosts, mut recordings, names, mut slowest, mut missing, schema } = one;
        for (host, sums) in other.hosts {
            let twice =
                |name: String| format!("its recording {name} is in another summary, too: name it once");
            match hosts.remove(&host) {
                None => drop(hosts.insert(host, sums)),
                Some(mut known) => {
                    known.merge(sums).map_err(twice)?;
                    hosts.insert(host, known);
                }
            }
        }
        if let Some(twice) = other.recordings.keys().find(|name| recordings.contains_key(*name)) {
            return Err(format!("its recording {twice} is in another summary, too: name it once"));
        }
        recordings.extend(other.recordings);
        slowest.extend(other.slowest);
        slowest::keep(&mut slowest);
        missing.extend(other.missing);
        Ok(Self { schema, recordings, names, hosts, slowest, missing })
    }

    /// A file of each host, by its name: without the slowest calls.
    pub(crate) fn by_host(self) -> Vec<(String, Self)> {
        let Self { schema, recordings, names, hosts, .. } = self;
        let of_host = |(host, sums): (String, Summary)| {
            let of = |(_, facts): &(&String, &RecordingFacts)| facts.host == host;
            let recordings = recordings.iter().filter(of);
            let file = Self {
                schema: schema.clone(),
                recordings: recordings.map(|(name, facts)| (name.clone(), facts.clone())).collect(),
                names: names.clone(),
                hosts: BTreeMap::from([(host.clone(), sums)]),
                slowest: Vec::new(),
                missing: BTreeSet::new(),
            };
            (host, file)
        };
        hosts.into_iter().map(of_host).collect()
    }

    /// The sums of all hosts.
    pub(crate) fn sums(&self) -> Option<Summary> {
        let mut hosts = self.hosts.values().cloned();
        let mut all = hosts.next()?;
        // No recording is of two hosts: that was looked at when the file was read.
        hosts.for_each(|sums| all.merge(sums).unwrap_or_default());
        Some(all)
    }
}

/// Reads a file of at most [`BYTES_MAX`] bytes: a pipe, too, and no device without an end.
fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "a summary has at most 1 GiB"));
    }
    Ok(bytes)
}

/// Values in JSON, about: its commas.
fn values_of(bytes: &[u8]) -> u64 {
    bytes.iter().filter(|byte| **byte == b',').count() as u64
}

/// About the memory that JSON takes when it is read: its text, what a list needs for each value, and a map
/// for its first.
fn memory_of(bytes: &[u8]) -> u64 {
    const VALUE_BYTES: u64 = 36;
    const MAP_BYTES: u64 = 640;
    let maps = bytes.iter().filter(|byte| **byte == b'{').count() as u64;
    bytes.len() as u64 + values_of(bytes) * VALUE_BYTES + maps * MAP_BYTES
}

fn described(only: &[String]) -> String {
    if only.is_empty() { "without a choice".to_owned() } else { only.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_summary_says_so() {
        let error = |text: &str| SummaryFile::parse(text.as_bytes()).map(drop).unwrap_err();
        let no_summary = "is no summary (report --summary) and no part (report --part): ";
        for junk in ["", "junk", "[]", "{}", "\u{0}", "{\"schema\":7}"] {
            assert!(error(junk).starts_with(no_summary), "{junk}: {}", error(junk));
        }
        let later = "{\"schema\":\"func_latency.summary/2\",\"recordings\":{}}";
        let expect =
            "has schema 'func_latency.summary/2', and func_latency.summary/1 is read here: write it again";
        assert_eq!(error(later), expect);
        let names = "\"names\":{\"functions\":[],\"objects\":[],\"places\":[],\"threads\":[]}";
        let rest = format!("\"recordings\":{{}},{names},\"hosts\":{{}},\"slowest\":[]");
        let empty = format!("{{\"schema\":\"{SCHEMA}\",{rest}}}");
        assert_eq!(error(&empty), "its sums are not those of its recordings");
    }

    /// A gigabyte of JSON could take 10 GB and more: nothing of it is read then.
    #[test]
    fn what_would_take_too_much_memory_is_not_read() {
        let many = |text: &str| {
            let bytes = text.repeat((1 << 22) + 1);
            SummaryFile::parse(bytes.as_bytes()).map(drop).unwrap_err()
        };
        let refused = many("{\"\":0},");
        let expect = "its 4194305 values would take 2 GB of memory, and a summary may take 2: ";
        assert!(refused.starts_with(expect), "{refused}");
        assert!(refused.contains("-f") && refused.contains("fewer recordings"), "{refused}");
        assert!(many("1234567,").starts_with("is no summary"));
        // A million different latencies on each of 25 hosts.
        let pair = "[1234567,1],";
        assert!(25_000_000 * memory_of(pair.as_bytes()) < MEMORY_MAX);
    }

    #[test]
    fn calls_that_were_chosen_are_described() {
        assert_eq!(described(&[]), "without a choice");
        assert_eq!(described(&["of 1 ns".to_owned(), "below f".to_owned()]), "of 1 ns, below f");
    }
}
