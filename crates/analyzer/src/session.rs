//! What all threads share while a recording is analysed.

use model::AuxOwner;
use rustc_hash::FxHashMap;

use crate::aggregate::Aggregate;
use crate::code_map::CodeMap;
use crate::loss::LossByCause;
use crate::report::Limits;
use crate::request::{Ancestor, Request, Roles, Surroundings};
use crate::stack::Activation;

/// Activations that are kept for reuse, so that a call costs no allocation.
const SPARE_MAX: usize = 256;

pub(crate) struct Session<'a> {
    pub(crate) around: Surroundings<'a>,
    pub(crate) roles: Roles,
    pub(crate) ancestor: Option<Ancestor>,
    pub(crate) stack_switches: bool,
    pub(crate) map: CodeMap<'a>,
    pub(crate) calls: Aggregate,
    pub(crate) loss: LossByCause,
    pub(crate) limits: Limits,
    /// Activations for reuse, empty.
    #[expect(clippy::vec_box, reason = "frames hold boxes, which move in and out of here as they are")]
    pub(crate) spare: Vec<Box<Activation>>,
    /// Events that undecided landings of all threads hold.
    pub(crate) held_events: usize,
    wanted_len: usize,
    buffers: FxHashMap<AuxOwner, u32>,
}

impl<'a> Session<'a> {
    pub(crate) fn new(request: &Request, around: Surroundings<'a>) -> Self {
        Self {
            around,
            roles: Roles::new(request),
            ancestor: request.ancestor,
            stack_switches: request.stack_switches,
            map: CodeMap::new(around),
            calls: Aggregate::new(request),
            loss: LossByCause::default(),
            limits: Limits::default(),
            spare: Vec::new(),
            held_events: 0,
            wanted_len: request.functions.len(),
            buffers: around.buffers.iter().copied().collect(),
        }
    }

    pub(crate) fn wanted_len(&self) -> usize {
        self.wanted_len
    }

    pub(crate) fn buffer(&self, owner: AuxOwner) -> Option<u32> {
        self.buffers.get(&owner).copied()
    }

    pub(crate) fn keep_spare(&mut self, activation: Box<Activation>) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(activation);
        }
    }
}
