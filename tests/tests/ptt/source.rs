//! A `.ptt` file, taken apart: assembly with trace directives and expected outputs in its comments.

use std::path::Path;

/// A program whose output a file states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tool {
    /// Lists packets.
    Ptdump,
    /// Lists instructions and events.
    Ptxed,
}

impl Tool {
    const fn name(self) -> &'static str {
        match self {
            Self::Ptdump => "ptdump",
            Self::Ptxed => "ptxed",
        }
    }
}

/// `; @pt label: name(arguments)`: a packet, or raw bytes of the trace.
#[derive(Debug)]
pub(crate) struct Directive {
    pub(crate) label: Option<String>,
    pub(crate) name: String,
    pub(crate) arguments: String,
}

/// A file.
pub(crate) struct Ptt {
    /// Its name without `.ptt`.
    pub(crate) name: String,
    /// All of it: the assembler skips the comments.
    pub(crate) text: String,
    /// The trace.
    pub(crate) directives: Vec<Directive>,
    /// Family and model of the processors that it is about; none: any.
    pub(crate) cpus: Vec<(u32, u32)>,
}

impl Ptt {
    pub(crate) fn read(path: &Path) -> Self {
        let name = path.file_stem().unwrap().to_string_lossy();
        Self::new(&name, std::fs::read_to_string(path).unwrap())
    }

    fn new(name: &str, text: String) -> Self {
        let all = text.lines().filter_map(directive);
        let directives = all.take_while(|directive| directive.name != EXPECTATION).collect();
        let cpus = text.lines().filter_map(cpu).collect();
        Self { name: name.to_owned(), directives, cpus, text }
    }

    /// The words of all lines `; opt:TOOL WORD..`.
    pub(crate) fn options(&self, tool: Tool) -> Vec<&str> {
        let key = format!("opt:{}", tool.name());
        let lines = self.text.lines().filter_map(|line| line.split_once(&key));
        lines.flat_map(|(_, words)| words.split_whitespace()).collect()
    }

    /// What the tool is to print, with references to labels; `None`: the file does not say.
    pub(crate) fn expected(&self, tool: Tool) -> Option<Vec<&str>> {
        let is_of = |line: &&str| {
            directive(line).is_some_and(|d| d.name == EXPECTATION && d.arguments == tool.name())
        };
        let mut lines = self.text.lines();
        lines.find(is_of)?;
        let block = lines.take_while(|line| directive(line).is_none_or(|d| d.name != EXPECTATION));
        let comments = block.filter_map(|line| Some(line.split_once(';')?.1));
        let printed = comments.map(|line| line.split_once('#').map_or(line, |(kept, _)| kept).trim());
        Some(printed.filter(|line| !line.is_empty()).collect())
    }
}

/// The directive that begins an expected output.
const EXPECTATION: &str = ".exp";

fn directive(line: &str) -> Option<Directive> {
    let (_, text) = line.split_once(';')?.1.split_once("@pt ")?;
    let (head, rest) = text.split_once('(')?;
    let (label, name) = match head.split_once(':') {
        Some((label, name)) => (Some(label.trim().to_owned()), name),
        None => (None, head),
    };
    let arguments = rest.split_once(')').map_or(rest, |(arguments, _)| arguments).trim().to_owned();
    Some(Directive { label, name: name.trim().to_owned(), arguments })
}

/// `; cpu FAMILY/MODEL`: the comment is about these processors.
fn cpu(line: &str) -> Option<(u32, u32)> {
    let words = line.trim().strip_prefix(';')?.trim().strip_prefix("cpu ")?;
    let (family, model) = words.trim().split_once('/')?;
    Some((family.parse().ok()?, model.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
; cpu 6/78
; opt:ptdump --no-offset
org 0x1000
; @pt p0:psb()
a: nop
; @pt tip.pge(3: %a)
; @pt .exp(ptdump)
;psb # comment

; @pt .exp(ptxed)
;[enabled]
;%0a
";

    #[test]
    fn a_file_is_taken_apart() {
        let ptt = Ptt::new("x", TEXT.to_owned());
        let directives: Vec<_> =
            ptt.directives.iter().map(|d| (d.label.as_deref(), &*d.name, &*d.arguments)).collect();
        assert_eq!(directives, [(Some("p0"), "psb", ""), (None, "tip.pge", "3: %a")]);
        assert_eq!(ptt.cpus, [(6, 78)]);
        assert_eq!(ptt.options(Tool::Ptdump), ["--no-offset"]);
        assert_eq!(ptt.expected(Tool::Ptdump), Some(vec!["psb"]));
        assert_eq!(ptt.expected(Tool::Ptxed), Some(vec!["[enabled]", "%0a"]));
        assert_eq!(Ptt::new("x", "org 0".to_owned()).expected(Tool::Ptxed), None);
    }
}
