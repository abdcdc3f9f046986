//! Feature sections: what stands after the records and describes machine and recording.

use model::BuildId;

use super::event::{ATTR_SIZE, Event};
use super::le::Append;
use crate::feature_bits;
use crate::record_types::{MISC_BUILD_ID_SIZE, MISC_KERNEL, MISC_USER};

/// perf's NAME_ALIGN.
const PATH_ALIGNMENT: usize = 64;

/// Machine and recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Name of the machine.
    pub hostname: String,
    /// Kernel release.
    pub os_release: String,
    /// Version of the recording program.
    pub version: String,
    /// How many CPUs there are.
    pub cpus: u32,
    /// `vendor,family,model,stepping`; empty if unknown.
    pub cpuid: String,
    /// The recording's command line.
    pub command_line: Vec<String>,
    /// Type and name of the PMUs.
    pub pmus: Vec<(u32, String)>,
    /// The mapped objects and their build ids.
    pub build_ids: Vec<(String, BuildId)>,
    /// What describes samples of the scheduler's tracepoints: [`super::tracing_data`].
    pub tracing_data: Option<Vec<u8>>,
}

/// Where an AUXTRACE record stands in the file, and its size.
pub(super) type AuxtraceIndex = Vec<(u64, u64)>;

impl Features {
    /// Sections in the order of their bits.
    pub(super) fn sections(&self, events: &[Event], auxtrace: &AuxtraceIndex) -> Vec<(u32, Vec<u8>)> {
        let mut sections = self.about_the_machine();
        sections.push((feature_bits::EVENT_DESC, event_section(events)));
        sections.push((feature_bits::AUXTRACE, auxtrace_section(auxtrace)));
        if !self.build_ids.is_empty() {
            sections.push((feature_bits::BUILD_ID, self.build_id_section()));
        }
        sections.extend(self.tracing_data.iter().map(|data| (feature_bits::TRACING_DATA, data.clone())));
        sections.sort_by_key(|(feature, _)| *feature);
        sections
    }

    /// What is known before anything is recorded, in the order of the bits.
    pub(super) fn about_the_machine(&self) -> Vec<(u32, Vec<u8>)> {
        let text = |text: &str| {
            let mut section = vec![];
            section.feature_str(text);
            section
        };
        let mut sections = vec![
            (feature_bits::HOSTNAME, text(&self.hostname)),
            (feature_bits::OSRELEASE, text(&self.os_release)),
            (feature_bits::VERSION, text(&self.version)),
            (feature_bits::ARCH, text("x86_64")),
            (feature_bits::NRCPUS, [self.cpus.to_le_bytes(), self.cpus.to_le_bytes()].concat()),
            (feature_bits::CPUID, text(&self.cpuid)),
            (feature_bits::CMDLINE, self.command_line_section()),
            (feature_bits::PMU_MAPPINGS, self.pmu_section()),
        ];
        sections.retain(|(feature, _)| *feature != feature_bits::CPUID || !self.cpuid.is_empty());
        sections
    }

    /// A list of `perf_record_header_build_id`.
    fn build_id_section(&self) -> Vec<u8> {
        const FIXED_SIZE: usize = 36;
        let mut section = vec![];
        for (path, build_id) in &self.build_ids {
            let path_len = (path.len() + 1).next_multiple_of(PATH_ALIGNMENT);
            let bytes = &build_id.0[..build_id.0.len().min(20)];
            section.u32(0);
            let mode = if path.starts_with("[kernel") { MISC_KERNEL } else { MISC_USER };
            section.u16(mode | MISC_BUILD_ID_SIZE);
            section.u16((FIXED_SIZE + path_len) as u16);
            section.u32(u32::MAX); // pid: the host
            let start = section.len();
            section.extend_from_slice(bytes);
            section.resize(start + 20, 0);
            section.extend_from_slice(&[bytes.len() as u8, 0, 0, 0]);
            section.padded_str(path, PATH_ALIGNMENT);
        }
        section
    }

    fn command_line_section(&self) -> Vec<u8> {
        let mut section = vec![];
        section.u32(self.command_line.len() as u32);
        self.command_line.iter().for_each(|argument| section.feature_str(argument));
        section
    }

    fn pmu_section(&self) -> Vec<u8> {
        let mut section = vec![];
        section.u32(self.pmus.len() as u32);
        for (number, name) in &self.pmus {
            section.u32(*number);
            section.feature_str(name);
        }
        section
    }
}

fn event_section(events: &[Event]) -> Vec<u8> {
    let mut section = vec![];
    section.u32(events.len() as u32);
    section.u32(ATTR_SIZE as u32);
    for event in events {
        section.extend_from_slice(&event.attr.bytes());
        section.u32(event.ids.len() as u32);
        section.feature_str(&event.name);
        event.ids.iter().for_each(|id| section.u64(id.id));
    }
    section
}

fn auxtrace_section(index: &AuxtraceIndex) -> Vec<u8> {
    let mut section = vec![];
    section.u64(index.len() as u64);
    for &(offset, size) in index {
        section.u64(offset);
        section.u64(size);
    }
    section
}
