//! Straight code to instructions: how often each was executed, and its share of the time.

use std::collections::BTreeMap;

use analyzer::{ChildKey, CodeEnd, OwnCode, Place, TimeRow};
use decoder::{Disassembled, disassemble};
use image::Image;
use model::{Avma, FunctionId, FunctionLookup, ObjectId, Svma};

use super::{Callees, Spent, Whole, share};

/// An instruction of the function, or of code that it ran or called from outside of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Where it is.
    pub place: Place,
    /// Its text; `None` of code outside of the function.
    pub text: Option<String>,
    /// What calls did there, by group. Executions of code outside of the function are not known.
    pub spent: Vec<Spent>,
    /// What it called.
    pub callees: Callees,
}

impl Listed {
    /// It is code of the function, with known executions.
    #[must_use]
    pub fn is_own(&self) -> bool {
        self.text.is_some()
    }
}

/// Straight code that ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Straight {
    pub(crate) group: usize,
    /// Its instructions, by their numbers in [`Listing::instructions`].
    pub(crate) instructions: Vec<usize>,
    pub(crate) time: TimeRow,
}

/// A function's instructions with what calls did at each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The calls, by group.
    pub groups: Vec<Whole>,
    /// In the order of their addresses; all of the function's, also those that were never executed.
    pub instructions: Vec<Listed>,
    /// What was called at no known place: a function that code outside of the IP filter calls.
    pub nowhere: Vec<Spent>,
    /// What was called at no known place, by callee.
    pub nowhere_callees: Callees,
    pub(crate) straight: Vec<Straight>,
}

/// The function's code as its object has it.
struct ObjectCode<'a> {
    image: &'a Image,
    function: FunctionId,
    object: ObjectId,
    parts: Vec<(Svma, &'a [u8])>,
}

impl<'a> ObjectCode<'a> {
    fn of(image: &'a Image, function: FunctionId) -> Self {
        let parts = image.function_code(function).into_iter().map(|(svma, _, bytes)| (svma, bytes));
        let object = FunctionLookup::object(image, function).unwrap_or(ObjectId(u32::MAX));
        Self { image, function, object, parts: parts.collect() }
    }

    /// The instructions from an address of the function on.
    fn from(&self, place: Place) -> impl Iterator<Item = Disassembled> + '_ {
        let bytes = self.parts.iter().find_map(|(start, bytes)| {
            let offset = usize::try_from(place.svma.0.checked_sub(start.0)?).ok()?;
            bytes.get(offset..).filter(|bytes| !bytes.is_empty())
        });
        let bytes = bytes.filter(|_| place.object == self.object).unwrap_or_default();
        disassemble(Avma(place.svma.0), bytes)
    }

    /// The text of an instruction, with the function that it calls or jumps to.
    fn text(&self, instruction: &Disassembled) -> String {
        let Some(target) = instruction.target else { return instruction.text.clone() };
        let at = self.image.function_at_place(self.object, Svma(target.0));
        let to = match at.at_entry && at.id != self.function {
            true => self.image.function_name(at.id),
            false => format!("{:#x}", target.0),
        };
        format!("{} {to}", instruction.text)
    }

    fn place(&self, ip: Avma) -> Place {
        Place { object: self.object, svma: Svma(ip.0) }
    }

    /// The instructions that ran; `None`: the code is not what the trace says.
    fn straight(&self, start: Place, end: CodeEnd) -> Option<Vec<Disassembled>> {
        let mut ran = Vec::new();
        if start.object != end.at.object {
            return None;
        }
        for instruction in self.from(start) {
            let is_last = instruction.ip.0 == end.at.svma.0;
            if instruction.ip.0 > end.at.svma.0 {
                return None;
            }
            if !is_last || end.is_executed {
                ran.push(instruction);
            }
            if is_last {
                return Some(ran);
            }
        }
        None
    }
}

/// What is known at a place while it is added up.
type Places = BTreeMap<Place, Listed>;

/// Lists a function's instructions with what calls did at each; `groups`: of calls.
#[must_use]
pub fn list(image: &Image, function: FunctionId, groups: &[OwnCode]) -> Listing {
    let code = ObjectCode::of(image, function);
    let mut places = Places::new();
    let nothing = || vec![Spent::default(); groups.len()];
    let mut nowhere = nothing();
    let mut nowhere_callees = Callees::new();
    let mut straight: Vec<(usize, Vec<Place>, TimeRow)> = Vec::new();
    for (group, of_group) in groups.iter().enumerate() {
        for row in &of_group.code {
            let ran = row.end.and_then(|end| code.straight(row.start, end)).unwrap_or_default();
            for (number, instruction) in ran.iter().enumerate() {
                let listed = place_of(&mut places, code.place(instruction.ip), groups.len());
                listed.describe(&code, instruction);
                if let Some(spent) = listed.spent.get_mut(group) {
                    let part = share(&row.time, number, ran.len());
                    spent.add_own(&part);
                    spent.executions += row.time.total.count;
                    spent.estimated_ns += if ran.len() > 1 { part.own_ns } else { 0 };
                }
            }
            if ran.is_empty() {
                let listed = place_of(&mut places, row.start, groups.len());
                listed.spent.iter_mut().skip(group).take(1).for_each(|s| s.add_own(&share(&row.time, 0, 1)));
            }
            let ran = ran.iter().map(|instruction| code.place(instruction.ip)).collect();
            straight.push((group, ran, row.time));
        }
        for (key, time) in &of_group.children {
            let (spent, callees) = match key.site {
                Some(site) => {
                    let listed = place_of(&mut places, site, groups.len());
                    (&mut listed.spent, &mut listed.callees)
                }
                None => (&mut nowhere, &mut nowhere_callees),
            };
            if let Some(spent) = spent.get_mut(group) {
                add_callee(spent, callees, (group, groups.len()), *key, time);
            }
        }
    }
    list_unexecuted(&code, &mut places, groups.len());
    let numbers: BTreeMap<Place, usize> = places.keys().copied().zip(0..).collect();
    let number = |place: &Place| numbers.get(place).copied();
    let straight = straight.into_iter().map(|(group, ran, time)| Straight {
        group,
        instructions: ran.iter().filter_map(number).collect(),
        time,
    });
    Listing {
        groups: groups.iter().map(Whole::of).collect(),
        straight: straight.collect(),
        instructions: places.into_values().collect(),
        nowhere,
        nowhere_callees,
    }
}

fn place_of(places: &mut Places, place: Place, groups: usize) -> &mut Listed {
    places.entry(place).or_insert_with(|| Listed {
        place,
        text: None,
        spent: vec![Spent::default(); groups],
        callees: Callees::new(),
    })
}

impl Listed {
    fn describe(&mut self, code: &ObjectCode<'_>, instruction: &Disassembled) {
        if self.text.is_none() {
            self.text = Some(code.text(instruction));
        }
    }
}

fn add_callee(
    spent: &mut Spent,
    callees: &mut Callees,
    (group, groups): (usize, usize),
    key: ChildKey,
    time: &TimeRow,
) {
    spent.inside_ns = spent.inside_ns.saturating_add(time.total.sum_ns);
    spent.inside_error_ns = spent.inside_error_ns.saturating_add(time.error_ns);
    spent.off_cpu_ns = spent.off_cpu_ns.saturating_add(time.total.off_cpu_ns.unwrap_or_default());
    let of_callee = callees.entry((key.kind, key.function)).or_insert_with(|| vec![(0, 0); groups]);
    if let Some((count, sum_ns)) = of_callee.get_mut(group) {
        *count += time.total.count;
        *sum_ns = sum_ns.saturating_add(time.total.sum_ns);
    }
}

/// Instructions that are listed although they were never executed: a damaged object may have functions of any
/// length.
const UNEXECUTED_MAX: usize = 1 << 18;

/// Adds the instructions of the function that were never executed. Where one would reach into one that was,
/// there is data between them.
fn list_unexecuted(code: &ObjectCode<'_>, places: &mut Places, groups: usize) {
    let most = places.len().saturating_add(UNEXECUTED_MAX);
    for (start, bytes) in &code.parts {
        let end = start.0.saturating_add(bytes.len() as u64);
        let mut at = *start;
        while at.0 < end && places.len() < most {
            let place = Place { object: code.object, svma: at };
            let Some(instruction) = code.from(place).next() else { break };
            let next = Svma(at.0 + u64::from(instruction.len).max(1));
            let known = places.get(&place).is_some_and(Listed::is_own);
            let reaches = Place { svma: Svma(at.0 + 1), ..place }..Place { svma: next, ..place };
            match places.range(reaches).find(|(_, listed)| listed.is_own()) {
                Some((executed, _)) if !known => at = executed.svma,
                _ => {
                    place_of(places, place, groups).describe(code, &instruction);
                    at = next;
                }
            }
        }
    }
}
