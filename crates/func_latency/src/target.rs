//! From the names on the command line to functions.

use anyhow::Result;
use image::{FindError, FunctionMatch, Image, MatchedBy, ProblemKind, Query};
use model::FunctionLookup;

use crate::config::CallsConfig;
use crate::exit::{Exit, failure, wrong_choice};
use crate::{kernel_code, messages, stripped};

/// A function that was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// The function.
    pub(crate) function: FunctionMatch,
}

/// When there is something to say of a function that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remarks {
    /// Now.
    Now,
    /// When it is looked for again, in the recording that is made first.
    Later,
}

/// The functions of all `-f`, each once, in the order of the command line, and then the regions of the image.
pub(crate) fn wanted(image: &Image, config: &CallsConfig, remarks: Remarks) -> Result<Vec<Wanted>> {
    let mut found: Vec<Wanted> = Vec::new();
    for text in &config.functions {
        for function in find(image, config, text, remarks)? {
            if found.iter().any(|other| other.function.id == function.id) {
                continue;
            }
            found.push(Wanted { function });
        }
    }
    check_candidate(image, config)?;
    for region in image.regions().filter_map(|id| image.describe(id)) {
        if found.iter().any(|other| other.function.name == region.name) {
            let message = format!(
                "--region: a function that is asked for is named '{}', too: name the region otherwise",
                region.name
            );
            return Err(failure(Exit::Usage, message));
        }
        found.push(Wanted { function: region });
    }
    Ok(found)
}

/// The functions with the wanted code, each once: of a region, those that it begins and ends in.
pub(crate) fn with_code(image: &Image, wanted: &[Wanted]) -> Vec<FunctionMatch> {
    let mut functions: Vec<FunctionMatch> = Vec::new();
    for Wanted { function } in wanted {
        let of_region = image.region(function.id).map(|region| &region.functions);
        let found = match of_region {
            Some(ids) => ids.iter().filter_map(|id| image.describe(*id)).collect(),
            None => vec![function.clone()],
        };
        for function in found {
            if functions.iter().all(|known| known.id != function.id) {
                functions.push(function);
            }
        }
    }
    functions
}

/// `-I` takes one of several: where no name has several, there is a first one only.
fn check_candidate(image: &Image, config: &CallsConfig) -> Result<()> {
    let Some(index) = config.candidate.filter(|index| *index > 0) else { return Ok(()) };
    let ancestor = config.ancestor.iter().map(|ancestor| &ancestor.function);
    let is_ambiguous =
        |text: &String| matches!(image.find(&query(config, text)), Err(FindError::Ambiguous { .. }));
    if config.functions.iter().chain(ancestor).any(is_ambiguous) {
        return Ok(());
    }
    let number = index + 1;
    Err(failure(
        Exit::Usage,
        format!("-I '#{number}': no name that is given is ambiguous, so there is no #{number}"),
    ))
}

fn query(config: &CallsConfig, text: &str) -> Query {
    Query { text: text.to_owned(), object: config.object.clone() }
}

impl Wanted {
    /// A pattern led to it: it was not asked for by name.
    pub(crate) fn by_pattern(&self) -> bool {
        self.function.matched_by == MatchedBy::Glob
    }
}

/// Each search reads all DWARF of an object.
const MAX_INLINE_SEARCHES: usize = 16;

/// The number of inlined instances of each function, which no trace shows; `None`: not looked for.
pub(crate) fn inlined(image: &Image, wanted: &[Wanted]) -> Vec<Option<u64>> {
    let search = wanted.len() <= MAX_INLINE_SEARCHES;
    if !search {
        messages::note(format!(
            "inlined instances are not looked for with more than {MAX_INLINE_SEARCHES} functions"
        ));
    }
    let of = |Wanted { function }: &Wanted| {
        let is_function = search && image.region(function.id).is_none();
        is_function.then(|| image.inlined_sites(&function.name, Some(function.object)))
    };
    wanted.iter().map(of).collect()
}

/// The one function of `-a`.
pub(crate) fn ancestor(
    image: &Image,
    config: &CallsConfig,
    text: &str,
    remarks: Remarks,
) -> Result<FunctionMatch> {
    let found = find(image, config, text, remarks)?;
    match <[FunctionMatch; 1]>::try_from(found) {
        Ok([function]) => Ok(function),
        Err(found) => {
            let message = format!("-a '{text}' must be one function, not {}:", found.len());
            Err(wrong_choice(message, choices(&found)))
        }
    }
}

fn find(image: &Image, config: &CallsConfig, text: &str, remarks: Remarks) -> Result<Vec<FunctionMatch>> {
    let found = chosen(image, config, text)?;
    if remarks == Remarks::Later {
        return Ok(found);
    }
    warn_of_resolvers(text, &found);
    // A candidate that was chosen from a list is known by then.
    if config.candidate.is_none() {
        say_what_was_guessed(text, &found);
        tell_of_pieces(image, &found);
        tell_of_aliases(&found);
    }
    Ok(found)
}

fn chosen(image: &Image, config: &CallsConfig, text: &str) -> Result<Vec<FunctionMatch>> {
    let error = match image.find(&query(config, text)) {
        Ok(found) => return Ok(found),
        Err(error) => error,
    };
    if let (FindError::Ambiguous { candidates, .. }, Some(index)) = (&error, config.candidate)
        && let Some(chosen) = candidates.get(index)
    {
        return Ok(vec![chosen.clone()]);
    }
    let (message, choices) = explain(image, config, &error);
    Err(wrong_choice(message, choices))
}

/// Says which functions a part of a name, a pattern or an address led to.
fn say_what_was_guessed(text: &str, found: &[FunctionMatch]) {
    if found.iter().all(|f| matches!(f.matched_by, MatchedBy::Symbol | MatchedBy::Name)) {
        return;
    }
    let names: Vec<String> = found.iter().map(|f| format!("{} ({})", f.full_name, f.object_name)).collect();
    messages::note(format!("'{text}' is {}", messages::list(&names)));
}

/// Calls of `f.part.0` are none of `f`.
fn tell_of_pieces(image: &Image, found: &[FunctionMatch]) {
    // A pattern also finds the pieces.
    for function in found.iter().filter(|f| f.matched_by != MatchedBy::Glob) {
        let pieces: Vec<String> = image.pieces(function).into_iter().map(|piece| piece.name).collect();
        if !pieces.is_empty() {
            let name = &function.name;
            messages::note(format!(
                "the compiler split or copied {name}: calls of {} are not calls of {name}; -f '{name}*' reports them, too",
                messages::list(&pieces)
            ));
        }
    }
}

/// The linker may have folded functions into one that have nothing to do with each other.
fn tell_of_aliases(found: &[FunctionMatch]) {
    for FunctionMatch { full_name, aliases, .. } in
        found.iter().filter(|f| f.matched_by != MatchedBy::Glob && !f.aliases.is_empty())
    {
        messages::note(format!(
            "{full_name} is the same code as {}: their calls are counted together",
            messages::list(aliases)
        ));
    }
}

/// Warns of resolvers: `memcpy` may be a symbol of the function that chooses a `memcpy`, hardly the one
/// meant.
fn warn_of_resolvers(text: &str, found: &[FunctionMatch]) {
    // A pattern also finds the implementations.
    for resolver in found.iter().filter(|f| f.is_resolver && f.matched_by != MatchedBy::Glob) {
        let name = &resolver.name;
        messages::warn(format!(
            "'{text}' is the resolver that chooses an implementation of {name} (IFUNC) and runs once; calls of \
             {name} run the implementation: look for it with -f '*{name}*'"
        ));
    }
}

/// The error with how to name the function, and the candidates.
pub(crate) fn explain(image: &Image, config: &CallsConfig, error: &FindError) -> (String, Vec<String>) {
    let candidates = choices(error.candidates());
    match error {
        FindError::Unknown { text, .. } => {
            let inlined = image.inlined_sites(text, None);
            if inlined > 0 {
                let message = format!(
                    "{error} that is called: the compiler inlined it ({inlined} instances), and inlined code is \
                     not a call"
                );
                return (message, Vec::new());
            }
            let missing = missing_objects(image);
            let stripped = stripped::remark(image, config.object.as_deref());
            if candidates.is_empty() {
                return (format!("{error}, nor anything like it{missing}{stripped}"), Vec::new());
            }
            (format!("{error}{missing}{stripped}.  Nearest:"), candidates)
        }
        FindError::NoFunctionAt { .. } => (format!("{error}{}", missing_objects(image)), Vec::new()),
        FindError::Ambiguous { count, .. } => {
            let shown = candidates.len();
            let of = if shown < *count { format!(" ({shown} of them)") } else { String::new() };
            let pick = match config.candidate {
                Some(index) => format!("there is no #{}", index + 1),
                None => "choose with -I '#N', -b OBJECT or more of the name".to_owned(),
            };
            (format!("{error}{of}; {pick}:"), candidates)
        }
        FindError::NoKernelCode { .. } => {
            let message = format!("{error}: func_latency records user code only.  {}", kernel_code::RECORD);
            (message, Vec::new())
        }
        FindError::NoObject { objects, .. } => (format!("{error}.  Objects with code:"), objects.clone()),
    }
}

/// A name may be unknown because the object that has it is.
fn missing_objects(image: &Image) -> String {
    let missing = image.problems().iter().filter(|p| p.kind == ProblemKind::Unusable).count();
    match missing {
        0 => String::new(),
        1 => " (1 object could not be read: see the warning)".to_owned(),
        n => format!(" ({n} objects could not be read: see the warnings)"),
    }
}

/// Candidates, as `-I` numbers them.
fn choices(candidates: &[FunctionMatch]) -> Vec<String> {
    let choice = |(number, candidate): (usize, &FunctionMatch)| {
        let FunctionMatch { full_name, object_name, entry, size, .. } = candidate;
        let note = if candidate.is_resolver { ", IFUNC resolver: not what calls run" } else { "" };
        format!("#{number:<2} {full_name}  ({object_name}+{entry}, {size} bytes{note})")
    };
    (1..).zip(candidates).map(choice).collect()
}
