//! Reads and writes `perf.data` files with Intel PT.
//!
//! A `perf.data` file is a header, a list of events (`perf_event_attr`) and one long run of records: the
//! sideband (mappings, births, context switches), and the trace itself in AUXTRACE records, which are a
//! small record followed by a large payload.
//!
//! ```text
//! file layout                              pipe layout
//! +--------------------------+             +--------------------------+
//! | header, 104 bytes        |             | header, 16 bytes         |
//! | ids of the events        |             | FEATURE, ATTR records    |
//! | events (attr + ids)      |             | records ...              |
//! | records ...              |             |   AUXTRACE + payload     |
//! |   AUXTRACE + payload     |             | records ...              |
//! | features (command, CPU)  |             +--------------------------+
//! +--------------------------+
//! ```
//!
//! `perf record --threads` and `--kcore` make a directory, in which the file `data` is as above and `data.N`
//! are records only.
//!
//! [`File::open`] maps the file; [`File::recording`] walks the records once and returns a
//! [`model::Recording`] with trace bytes that are slices of the mapping.  Payloads are stepped over, never
//! touched, so the time to open a recording depends on its sideband and not on its trace.
//!
//! What is whole before a damaged place is always returned; see [`model::Damage`].

mod feature_bits;
pub mod read;
pub mod record_types;
pub mod write;

pub use read::{Excerpt, ExcerptError, File, Listed, OpenError, ReadError, Source, parse, write_excerpt};
