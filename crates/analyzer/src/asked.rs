//! The request, as events meet it.

use std::sync::Arc;

use model::FunctionLookup;

use crate::regions::Regions;
use crate::request::{Request, Roles};

/// A request, and what functions and instructions are to it.
pub(crate) struct Asked {
    pub(crate) request: Arc<Request>,
    pub(crate) roles: Arc<Roles>,
    /// None while a run is digested: there is no digester where there are any.
    pub(crate) regions: Regions,
    /// Functions of the kernel were asked for: its code has frames ([`crate::kernel_part`]).
    pub(crate) follows_kernel: bool,
}

impl Asked {
    pub(crate) fn new(request: &Request, functions: &dyn FunctionLookup) -> Self {
        let ancestor = request.ancestor.map(|ancestor| ancestor.function);
        let mut asked = request.functions.iter().copied().chain(ancestor);
        Self {
            request: Arc::new(request.clone()),
            roles: Arc::new(Roles::new(request)),
            regions: Regions::of(request, functions),
            follows_kernel: asked.any(|id| functions.is_of_kernel(id)),
        }
    }

    /// What is asked of a run of calls, which has no kernel code.
    pub(crate) fn of_run(request: Arc<Request>, roles: Arc<Roles>) -> Self {
        Self { request, roles, regions: Regions::default(), follows_kernel: false }
    }

    /// Counters were asked for.
    pub(crate) fn counts(&self) -> bool {
        self.request.counters.is_some()
    }
}
