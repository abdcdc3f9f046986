//! The surroundings of an analysis that waits: no code, no threads.

use std::sync::LazyLock;

use model::{
    Avma, CodeSource, FunctionAt, FunctionId, FunctionKind, FunctionLookup, NoCode, Ns, ObjectId, Pid,
    Schedule, SpaceId, Svma,
};

use crate::request::Surroundings;

struct Nowhere;

impl CodeSource for Nowhere {
    fn space(&self, _: Pid, _: Ns) -> SpaceId {
        SpaceId::default()
    }

    fn code(&self, _: SpaceId, _: Avma) -> Result<&[u8], NoCode> {
        Err(NoCode::Unmapped)
    }
}

impl FunctionLookup for Nowhere {
    fn function_at(&self, _: SpaceId, _: Avma) -> FunctionAt {
        FunctionAt::UNKNOWN
    }

    fn place(&self, _: SpaceId, _: Avma) -> Option<(ObjectId, Svma)> {
        None
    }

    fn kind(&self, _: FunctionId) -> FunctionKind {
        FunctionKind::Unnamed
    }

    fn object(&self, _: FunctionId) -> Option<ObjectId> {
        None
    }
}

/// Surroundings in which nothing is known.
pub(crate) fn surroundings() -> Surroundings<'static> {
    static SCHEDULE: LazyLock<Schedule> = LazyLock::new(Schedule::default);
    Surroundings {
        code: &Nowhere,
        functions: &Nowhere,
        schedule: &SCHEDULE,
        window: (Ns(0), Ns(0)),
        scheduler: None,
        no_times: None,
        has_ip_filter: false,
        has_compressed_returns: false,
        traces_whole_cpus: false,
        is_part: false,
        buffers: &[],
    }
}
