//! `completions` and `man`: files made from the command line's own definition.

use std::io::{Write, stdout};

use anyhow::{Context, Result};
use clap::Command;
use clap_complete::generate;
use clap_mangen::Man;

use crate::args::{self, CompletionsArgs, ManArgs, Shell};
use crate::exit::Exit;
use crate::{messages, output};

/// The program's name.
const NAME: &str = "func_latency";

/// Writes a shell's completions to stdout.
pub(crate) fn completions(args: &CompletionsArgs) -> Result<Exit> {
    let shell = match args.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    // A pipe that closes early would be a panic in there.
    let mut script = Vec::new();
    generate(shell, &mut args::completed(), NAME, &mut script);
    stdout().lock().write_all(&script).context("cannot write to stdout")?;
    Ok(Exit::Done)
}

/// Writes the man pages of the program and its commands.
pub(crate) fn man(args: &ManArgs) -> Result<Exit> {
    let directory = &args.directory;
    std::fs::create_dir_all(directory).with_context(|| output::cannot_write(directory))?;
    let mut program = args::command();
    // Gives each command its full name.
    program.build();
    let commands = program.get_subcommands().filter(|command| command.get_name() != "help");
    let pages: Vec<&Command> = std::iter::once(&program).chain(commands).collect();
    for page in &pages {
        let name = page.get_display_name().unwrap_or(NAME);
        let mut text = Vec::new();
        Man::new((*page).clone())
            .source(concat!("func_latency ", env!("CARGO_PKG_VERSION")))
            .render(&mut text)?;
        output::write_file(&directory.join(format!("{name}.1")), |out| out.write_all(&text))?;
    }
    messages::note(format!("{} man pages in {}", pages.len(), directory.display()));
    Ok(Exit::Done)
}
