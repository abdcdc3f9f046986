//! Every command line of the documents is one that the program takes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use func_latency::args::parse;

/// The documents that users read.
fn documents() -> io::Result<Vec<PathBuf>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut documents = vec![root.join("README.md")];
    for entry in fs::read_dir(root.join("docs"))? {
        documents.push(entry?.path());
    }
    documents.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    documents.sort();
    Ok(documents)
}

/// The command lines in a document's fences; a line that ends in a backslash goes on in the next one.
fn commands(text: &str) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let (mut in_fence, mut goes_on) = (false, false);
    for line in text.lines() {
        if line.starts_with("```") {
            in_fence = !in_fence;
            continue;
        }
        let line = line.trim();
        let command = line.strip_prefix("$ ").unwrap_or(line);
        let text = command.strip_suffix('\\');
        match commands.last_mut() {
            Some(last) if goes_on => last.push_str(text.unwrap_or(command)),
            _ if in_fence && command.starts_with("func_latency ") => {
                commands.push(text.unwrap_or(command).to_owned());
            }
            _ => continue,
        }
        goes_on = text.is_some();
    }
    commands
}

#[test]
fn a_line_goes_on_after_a_backslash() {
    let text = "func_latency no\n```\n$ func_latency -f a \\\n  -p 1\nfunc_latency top\nother\n```\n";
    assert_eq!(commands(text), ["func_latency -f a -p 1", "func_latency top"]);
}

#[test]
fn the_program_takes_them() {
    let mut count = 0;
    for document in documents().unwrap() {
        let text = fs::read_to_string(&document).unwrap();
        for command in commands(&text) {
            let words = shlex::split(&command).unwrap_or_else(|| panic!("{document:?}: {command}"));
            // What stands for a number.
            let words = words.iter().map(|word| word.replace("PID", "1"));
            if let Err(error) = parse(words) {
                panic!("{}: {command}\n{error}", document.display());
            }
            count += 1;
        }
    }
    assert!(count > 60, "{count} commands were found");
}
