//! What the slow calls of a page did otherwise than typical ones: their ledger, and their lines.
//!
//! Which calls are slow is known when the report is there, so the recording is decoded once more: for the
//! trees of slow and typical calls, and for what all calls did in their function's own code.

use std::collections::HashMap;

use analyzer::ledger::{ChoiceError, Groups, LedgerOfCalls};
use analyzer::{
    Analysis, CallId, CallRow, CallTree, CodeDetail, CodeRequest, OwnCode, Report, Request, TreeSink, Trees,
};
use anyhow::Result;
use model::{FunctionId, FunctionLookup as _};

use crate::args::Format;
use crate::calls::Opened;
use crate::explain_config::SlowCalls;
use crate::listing::instructions::{self, Listing};
use crate::listing::is_outside_of_filter;
use crate::listing::lines::{self, Line};
use crate::render::explain::ExplainedGroup;
use crate::render::html::closer::Closer;
use crate::render::image_names::ImageNames;
use crate::render::printable_names::NamesFor;

/// Groups of a listing: slow calls, typical ones, and all others.
const GROUPS: usize = 3;

/// Decodes the recording once more for the calls of a report that has rows, in the order of its functions.
///
/// # Errors
/// The recording cannot be decoded.
pub(crate) fn look_closer(opened: &Opened<'_>, request: &Request, report: &Report) -> Result<Vec<Closer>> {
    let names = NamesFor { names: &ImageNames::new(opened.image, true), format: Format::Text };
    let usual = SlowCalls::USUAL.choice();
    let chosen: Vec<(FunctionId, Result<Groups, ChoiceError>)> = (report.functions.iter())
        .map(|function| (function.id, Groups::choose(&function.rows, usual)))
        .collect();
    let mut group_of_calls: HashMap<(FunctionId, CallId), usize> = HashMap::default();
    for (id, groups) in &chosen {
        let Ok(groups) = groups else { continue };
        group_of_calls.extend(groups.slow.iter().map(|row| ((*id, row.id), 0)));
        group_of_calls.extend(groups.typical.iter().map(|row| ((*id, row.id), 1)));
    }
    let work = opened.counters_of_work();
    let request = Request { rows: false, row_children: false, counters: work, ..request.clone() };
    let known =
        |(id, groups): &'_ (FunctionId, Result<Groups, ChoiceError>)| Some((*id, groups.clone().ok()?));
    let groups: Vec<(FunctionId, Groups)> = chosen.iter().filter_map(known).collect();
    let of_groups = groups.iter().map(|(id, groups)| (*id, LedgerOfCalls::new(groups, opened.schedule)));
    let mut ledgers = Ledgers(of_groups.collect());
    let code = CodeRequest {
        detail: CodeDetail::Instructions,
        groups: GROUPS,
        group_of: Box::new(|row| {
            Some(group_of_calls.get(&(row.function, row.id)).copied().unwrap_or(GROUPS - 1))
        }),
    };
    let mut analysis = Analysis::with_trees(&request, opened.surroundings(), &mut ledgers).with_code(code);
    opened.decode(&mut analysis)?;
    let (_, code) = analysis.finish_with_code();

    let mut of_functions: HashMap<FunctionId, Vec<OwnCode>> =
        request.functions.iter().copied().zip(code).collect();
    let mut ledgers: HashMap<FunctionId, LedgerOfCalls<'_>> = ledgers.0.into_iter().collect();
    let closer = |(id, groups): (FunctionId, Result<Groups, ChoiceError>)| {
        let ledger = ledgers.remove(&id).map(|ledger| ledger.finish().0);
        let part = match &groups {
            Ok(groups) => ledger
                .and_then(|ledger| ExplainedGroup::new(&names, &groups.slow, groups.outlying, &ledger, None))
                .ok_or_else(|| ChoiceError::NoCalls.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let asked = groups.as_ref().ok().map(|groups| SlowCalls::USUAL.in_words(groups));
        let code = listing(opened, id, of_functions.remove(&id).unwrap_or_default());
        Closer { asked, part, is_split: work.is_some(), code }
    };
    Ok(chosen.into_iter().map(closer).collect())
}

/// The listing of a function with its lines, if it has some; or why there is none.
fn listing(
    opened: &Opened<'_>,
    function: FunctionId,
    groups: Vec<OwnCode>,
) -> Result<(Listing, Option<Vec<Line>>), &'static str> {
    if opened.image.region(function).is_some() {
        return Err("a region is no function");
    }
    if groups.iter().all(|group| group.calls.count == 0) {
        return Err("no call was seen from entry to end");
    }
    if is_outside_of_filter(opened.surroundings().has_ip_filter, &groups) {
        return Err("its code is outside of the IP filter");
    }
    let listing = instructions::list(opened.image, function, &groups);
    let lines = lines::lines(opened.image, &listing);
    let lines = lines::are_known(&lines).then_some(lines);
    Ok((listing, lines))
}

/// The ledgers of functions, each of its own calls.
struct Ledgers<'a>(Vec<(FunctionId, LedgerOfCalls<'a>)>);

impl TreeSink for Ledgers<'_> {
    fn wanted(&self) -> Trees {
        Trees::Every
    }

    fn call(&mut self, call: &CallRow, tree: &CallTree) {
        if let Some((_, ledger)) = self.0.iter_mut().find(|(id, _)| *id == call.function) {
            ledger.call(call, tree);
        }
    }
}
