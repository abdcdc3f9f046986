//! Why the code of an object is not there.

use std::path::PathBuf;

use model::{BuildId, ObjectId};

/// Why an object cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ObjectError {
    /// Memory that is no file: `[vdso]`, code that the program wrote itself.
    #[error("{name} is memory without a file")]
    NoFile {
        /// The object's name in the recording.
        name: String,
    },
    /// Code that the program wrote itself; only the names are known.
    #[error("{} names code that was written at run time, and does not have it", .path.display())]
    OnlyNames {
        /// The perf map.
        path: PathBuf,
    },
    /// The code of the kernel's vDSO was not found.
    #[error("the vDSO that ran ({}) is not here", build_id_of(.recording.as_ref()))]
    NoVdso {
        /// The build id of what ran, if the recording has it.
        recording: Option<BuildId>,
    },
    /// The file that ran was deleted or replaced, and nothing tells whether another is the same.
    #[error(
        "{name} was deleted or replaced while it was in use, and the recording has no build id to know a copy by"
    )]
    Replaced {
        /// The object's name in the recording.
        name: String,
    },
    /// It is another file than the one that was mapped.
    #[error(
        "{} is another file than the one that ran (inode {file}, but the recording's is {recording}): it was replaced, or is of \
         another container",
        .path.display()
    )]
    Inode {
        /// The file.
        path: PathBuf,
        /// Its inode.
        file: u64,
        /// The inode of what ran.
        recording: u64,
    },
    /// No such file.
    #[error("{name} is missing (looked for {})", list(.tried))]
    Missing {
        /// The object's name in the recording.
        name: String,
        /// Where it was looked for.
        tried: Vec<PathBuf>,
    },
    /// It is not there, or another file than the one that ran: which of these is not said.
    #[error(
        "{name} is missing, or not the file that ran; no more is said of files that not every user may read (but with --symfs /)"
    )]
    Private {
        /// The object's name in the recording.
        name: String,
    },
    /// It is there but cannot be read.
    #[error("{} cannot be read: {why}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        why: String,
    },
    /// It is another version than the one that ran.
    #[error("{} has build id {}, but the recording's is {recording}", .path.display(), id(.file.as_ref()))]
    BuildId {
        /// The file.
        path: PathBuf,
        /// The file's build id.
        file: Option<BuildId>,
        /// The build id of what ran.
        recording: BuildId,
    },
    /// It is not a program for this machine, or damaged.
    #[error("{}: {what}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
}

impl ObjectError {
    /// What to do about it.
    #[must_use]
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::NoFile { .. } | Self::OnlyNames { .. } => {
                "code that a program writes at run time is there where its runtime also writes a jitdump \
                 (jit-PID.dump)"
            }
            Self::NoVdso { .. } => {
                "perf keeps a copy of it in ~/.debug on the machine that recorded: give that directory with --symfs"
            }
            Self::Inode { .. } => {
                "give the files that ran with --symfs DIR (--symfs / takes those that are here), or record with build ids \
                 (perf record --buildid-mmap)"
            }
            Self::Missing { .. }
            | Self::Private { .. }
            | Self::Unreadable { .. }
            | Self::BuildId { .. }
            | Self::Replaced { .. }
            | Self::Damaged { .. } => "give the files that ran with --symfs DIR",
        }
    }
}

/// Something that makes the image incomplete or uncertain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The object; `None` if it concerns all.
    pub object: Option<ObjectId>,
    /// What it is, for people.
    pub what: String,
    /// What it does to the image.
    pub kind: ProblemKind,
}

/// What a [`Problem`] does to the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProblemKind {
    /// There is no code from the object.
    Unusable,
    /// Something was taken for granted, or left out.
    Uncertain,
    /// The file that the user named is used in place of the object's: [`crate::ImageOptions::binary`].
    Substitute,
}

/// What had to be taken for granted to use a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assumption {
    /// For people.
    pub(crate) what: String,
    pub(crate) kind: ProblemKind,
}

impl Assumption {
    pub(crate) fn uncertain(what: String) -> Self {
        Self { what, kind: ProblemKind::Uncertain }
    }
}

fn list(paths: &[PathBuf]) -> String {
    let paths: Vec<_> = paths.iter().map(|p| p.display().to_string()).collect();
    paths.join(", ")
}

fn build_id_of(recording: Option<&BuildId>) -> String {
    recording.map_or_else(|| "build id unknown".to_owned(), |id| format!("build id {id}"))
}

fn id(id: Option<&BuildId>) -> String {
    id.map_or_else(|| "none".to_string(), ToString::to_string)
}
