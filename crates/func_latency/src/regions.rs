//! From the regions of the command line to pseudo-functions of the image.

use anyhow::Result;
use decoder::disassemble;
use image::{Image, MarkError, Query};
use model::{Avma, FunctionLookup as _, Mark, Svma};

use crate::config::CallsConfig;
use crate::exit::{Exit, failure, wrong_choice};
use crate::filter::RegionSpec;
use crate::messages;
use crate::target::{self, Remarks};

/// Adds the regions that are asked for.
///
/// # Errors
/// A place is not in the code.
pub(crate) fn add(image: &mut Image, config: &CallsConfig, remarks: Remarks) -> Result<()> {
    for RegionSpec { name, start, end } in &config.regions {
        let starts = marks(image, config, name, start, remarks)?;
        let ends = if start == end { starts.clone() } else { marks(image, config, name, end, remarks)? };
        image.add_region(name, starts, ends);
    }
    Ok(())
}

/// The instructions of a place.
fn marks(
    image: &Image,
    config: &CallsConfig,
    region: &str,
    text: &str,
    remarks: Remarks,
) -> Result<Vec<Mark>> {
    let query = Query { text: text.to_owned(), object: config.object.clone() };
    let found = image.find_marks(&query).map_err(|error| match &error {
        MarkError::Function(of_function) => {
            let (message, choices) = target::explain(image, config, of_function);
            wrong_choice(format!("--region {region}: {message}"), choices)
        }
        _ => failure(Exit::Usage, format!("--region {region}: {error}")),
    })?;
    let is_of_kernel = |(object, svma): &Mark| image.is_of_kernel(image.function_at_place(*object, *svma).id);
    if found.at.iter().any(is_of_kernel) {
        let message = format!(
            "--region {region}: '{text}' is kernel code, where there are no regions: time a function of it with \
             -f k:NAME, and list what it executes with annotate -f k:NAME"
        );
        return Err(failure(Exit::Usage, message));
    }
    if remarks == Remarks::Now {
        if found.at.len() > 1 {
            let at: Vec<String> =
                found.at.iter().map(|(object, svma)| image.site_name_at(*object, *svma)).collect();
            messages::note(format!("'{text}' is {} instructions: {}", at.len(), messages::list(&at)));
        }
        if found.at.iter().all(|mark| is_inside_of_instruction(image, *mark)) {
            messages::warn(format!(
                "--region {region}: '{text}' is inside of an instruction, and no thread comes to it: `objdump -d` \
                 shows where instructions begin"
            ));
        }
        if found.has_semaphore {
            messages::note(format!(
                "'{text}' has a semaphore: most programs pass by such a probe until a tracer of probes sets that"
            ));
        }
    }
    Ok(found.at)
}

/// An instruction of its function begins before a place, and ends after it.
fn is_inside_of_instruction(image: &Image, (object, svma): Mark) -> bool {
    let code = image.function_code(image.function_at_place(object, svma).id);
    let is_of =
        |start: Svma, bytes: &[u8]| (start.0..start.0.saturating_add(bytes.len() as u64)).contains(&svma.0);
    let Some((start, _, bytes)) = code.into_iter().find(|(start, _, bytes)| is_of(*start, bytes)) else {
        return false;
    };
    let before = disassemble(Avma(start.0), bytes).take_while(|instruction| instruction.ip.0 < svma.0);
    before.last().is_some_and(|last| last.ip.0 + u64::from(last.len) > svma.0)
}
