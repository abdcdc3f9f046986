//! Where events are digested by nothing.

use std::convert::Infallible;

use model::{DigestedRun, Digester, RunPart, SpaceId, Tid, TraceEvent};

/// A digester that there is none of.
pub enum NoDigester {}

impl Digester for NoDigester {
    type Digest = Infallible;

    fn digest(&self, _: Tid, _: SpaceId, _: &[TraceEvent]) -> Vec<DigestedRun<Infallible>> {
        match *self {}
    }

    fn join(&self, _: Tid, _: SpaceId, _: &[RunPart<Infallible>]) -> Vec<DigestedRun<Infallible>> {
        match *self {}
    }

    fn pack(&self, digest: &Infallible) -> Option<Vec<u8>> {
        match *digest {}
    }

    fn unpack(&self, _: &[u8], _: &DigestedRun<()>) -> Option<Infallible> {
        match *self {}
    }

    fn workers_min(&self) -> usize {
        match *self {}
    }
}
