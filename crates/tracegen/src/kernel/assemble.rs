//! The assembler of the made-up kernel. It knows each block that it writes: a walk of the code decodes no
//! bytes.

use std::collections::HashMap;

use model::Avma;

use crate::block::{Block, Terminator};

/// How a branch at the end of a block is decided.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Choice {
    /// The code alone decides.
    #[default]
    None,
    /// A conditional jump is taken with this probability.
    Taken(f64),
    /// A conditional jump is taken if the thread is to leave its CPU.
    TakenToReschedule,
    /// To one of the working functions from this one on.
    Work(usize),
    /// To the system call's function.
    SystemCall,
}

/// What happens before a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The record of the switch-out is written.
    SwitchOut,
    /// The next instruction switches tracing off.
    TraceOff,
    /// The last instruction has switched tracing on.
    TraceOn,
    /// The record of the switch-in is written.
    SwitchIn,
}

/// Functions begin at multiples of this, as compilers align them.
const ALIGNMENT: usize = 16;
/// `int3` fills the space between functions.
const PADDING: u8 = 0xcc;
/// Numbers of kernel functions, apart from those of the program.
const FIRST_FUNCTION: u32 = 1 << 31;

/// The branch at a block's end.
#[derive(Clone, Debug)]
enum Branch {
    /// Opcode in front of a displacement of 32 bits, and the label.
    Direct(Terminator, &'static [u8], String),
    /// All bytes.
    Other(Terminator, &'static [u8]),
}

#[derive(Clone, Debug, Default)]
struct Draft {
    bytes: Vec<u8>,
    /// Offset of the last instruction.
    last: usize,
    instructions: u32,
    branch: Option<Branch>,
    choice: Choice,
    mark: Option<Mark>,
    function: u32,
    /// A function begins here.
    aligned: bool,
    /// The file has a `nop` for the jump at the end: it was patched while the kernel ran.
    patched: bool,
}

/// A function of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KernelFunction {
    pub(crate) name: String,
    /// Linked address.
    pub(crate) start: u64,
    pub(crate) size: u64,
}

/// What was assembled.
#[derive(Clone, Debug, Default)]
pub(crate) struct Assembled {
    /// At the addresses where they run.
    pub(crate) blocks: Vec<Block>,
    /// How each block's branch is decided, and what happens before each block.
    pub(crate) choices: Vec<Choice>,
    pub(crate) marks: Vec<Option<Mark>>,
    pub(crate) functions: Vec<KernelFunction>,
    /// The code as it runs.
    pub(crate) bytes: Vec<u8>,
    /// The code as the linker made it.
    pub(crate) linked_bytes: Vec<u8>,
}

/// Collects instructions.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    drafts: Vec<Draft>,
    labels: HashMap<String, usize>,
    names: Vec<(String, usize)>,
    plain: usize,
}

impl Assembler {
    /// The block that instructions are added to; a new one after a branch.
    fn open(&mut self) -> &mut Draft {
        if self.drafts.last().is_none_or(|draft| draft.branch.is_some()) {
            self.cut();
        }
        self.open_last()
    }

    fn open_last(&mut self) -> &mut Draft {
        let last = self.drafts.len() - 1;
        &mut self.drafts[last]
    }

    /// Begins a block here, unless one has just begun.  Returns its number.
    fn cut(&mut self) -> usize {
        let function = FIRST_FUNCTION + self.names.len() as u32;
        if self.drafts.last().is_none_or(|draft| draft.instructions > 0) {
            self.drafts.push(Draft { function, ..Draft::default() });
        }
        self.drafts.len() - 1
    }

    pub(super) fn function(&mut self, name: &str) {
        self.names.push((name.to_owned(), self.drafts.len()));
        self.label(name);
        self.open().aligned = true;
    }

    pub(super) fn label(&mut self, name: &str) {
        let block = self.cut();
        self.labels.insert(name.to_owned(), block);
    }

    /// The next instruction begins a block, before which this happens.
    pub(super) fn mark(&mut self, mark: Mark) {
        self.cut();
        self.open().mark = Some(mark);
    }

    pub(super) fn instruction(&mut self, bytes: &[u8]) {
        let draft = self.open();
        draft.last = draft.bytes.len();
        draft.bytes.extend_from_slice(bytes);
        draft.instructions += 1;
    }

    /// Adds `count` instructions that only take time.
    pub(super) fn plain(&mut self, count: usize) {
        const PLAIN: [&[u8]; 6] = [
            &[0x48, 0x89, 0xc3],                                     // mov %rax,%rbx
            &[0x48, 0x83, 0xc0, 0x01],                               // add $1,%rax
            &[0x65, 0x48, 0x8b, 0x04, 0x25, 0x40, 0xc5, 0x01, 0x00], // mov %gs:0x1c540,%rax
            &[0x0f, 0x1f, 0x44, 0x00, 0x00],                         // nopl
            &[0x53],                                                 // push %rbx
            &[0x48, 0x8b, 0x47, 0x10],                               // mov 0x10(%rdi),%rax
        ];
        for _ in 0..count {
            self.plain += 1;
            self.instruction(PLAIN[self.plain * 7 % 13 % PLAIN.len()]);
        }
    }

    fn branch(&mut self, branch: Branch, choice: Choice) {
        let draft = self.open();
        draft.last = draft.bytes.len();
        draft.instructions += 1;
        (draft.branch, draft.choice) = (Some(branch), choice);
    }

    pub(super) fn conditional(&mut self, label: &str, choice: Choice) {
        self.branch(Branch::Direct(Terminator::Conditional, &[0x0f, 0x84], label.to_owned()), choice);
    }

    pub(super) fn jump(&mut self, label: &str) {
        self.branch(Branch::Direct(Terminator::Jump, &[0xe9], label.to_owned()), Choice::None);
    }

    /// A static key that was switched on: a jump over what the file has after a `nop`.
    pub(super) fn patched_jump(&mut self, label: &str) {
        self.jump(label);
        self.open_last().patched = true;
    }

    pub(super) fn call(&mut self, label: &str) {
        self.branch(Branch::Direct(Terminator::Call, &[0xe8], label.to_owned()), Choice::None);
    }

    pub(super) fn call_indirect(&mut self, choice: Choice) {
        self.branch(Branch::Other(Terminator::IndirectCall, &[0xff, 0xd0]), choice); // call *%rax
    }

    pub(super) fn jump_indirect(&mut self, choice: Choice) {
        self.branch(Branch::Other(Terminator::IndirectJump, &[0xff, 0xe0]), choice); // jmp *%rax
    }

    pub(super) fn ret(&mut self) {
        self.branch(Branch::Other(Terminator::Return, &[0xc3]), Choice::None);
    }

    pub(super) fn sysret(&mut self) {
        self.branch(Branch::Other(Terminator::FarReturn, &[0x48, 0x0f, 0x07]), Choice::None);
    }

    pub(super) fn iret(&mut self) {
        self.branch(Branch::Other(Terminator::FarReturn, &[0x48, 0xcf]), Choice::None);
    }

    /// Lays out the text, linked at `base`, to run `slide` bytes further up.
    pub(super) fn finish(self, base: u64, slide: u64) -> Assembled {
        let starts = self.starts();
        let mut out = Assembled::default();
        for (i, draft) in self.drafts.iter().enumerate() {
            let padded = starts[i] - out.bytes.len();
            out.bytes.extend(std::iter::repeat_n(PADDING, padded));
            out.linked_bytes.extend(std::iter::repeat_n(PADDING, padded));
            let target = match &draft.branch {
                Some(Branch::Direct(_, _, label)) => starts[self.labels[label]],
                _ => 0,
            };
            self.write(draft, target, &mut out);
            let address = |offset: usize| Avma(base + slide + offset as u64);
            let next = starts.get(i + 1).copied().filter(|_| draft.branch.is_none());
            out.blocks.push(Block {
                start: address(starts[i]),
                last: address(starts[i] + draft.last),
                end: address(next.unwrap_or(out.bytes.len())),
                target: address(target),
                instructions: draft.instructions,
                first_function: draft.function,
                last_function: draft.function,
                terminator: draft.terminator(),
                signal_handler: None,
                mapped: true,
            });
            out.choices.push(draft.choice);
            out.marks.push(draft.mark);
        }
        let ends = self.names.iter().skip(1).map(|(_, draft)| starts[*draft]).chain([out.bytes.len()]);
        out.functions = (self.names.iter().zip(ends))
            .map(|((name, draft), end)| KernelFunction {
                name: name.clone(),
                start: base + starts[*draft] as u64,
                size: (end - starts[*draft]) as u64,
            })
            .collect();
        out
    }

    fn starts(&self) -> Vec<usize> {
        let mut at = 0usize;
        let start = |draft: &Draft| {
            if draft.aligned {
                at = at.next_multiple_of(ALIGNMENT);
            }
            let start = at;
            at += draft.bytes.len() + draft.branch_len();
            start
        };
        self.drafts.iter().map(start).collect()
    }

    fn write(&self, draft: &Draft, target: usize, out: &mut Assembled) {
        out.bytes.extend_from_slice(&draft.bytes);
        out.linked_bytes.extend_from_slice(&draft.bytes);
        let code = match &draft.branch {
            Some(Branch::Direct(_, opcode, _)) => {
                let end = out.bytes.len() + opcode.len() + 4;
                let displacement = target as i32 - end as i32;
                [*opcode, &displacement.to_le_bytes()].concat()
            }
            Some(Branch::Other(_, bytes)) => bytes.to_vec(),
            None => vec![],
        };
        out.bytes.extend_from_slice(&code);
        let nop = [0x0f, 0x1f, 0x44, 0x00, 0x00];
        out.linked_bytes.extend_from_slice(if draft.patched { &nop } else { &code });
    }
}

impl Draft {
    fn branch_len(&self) -> usize {
        match &self.branch {
            Some(Branch::Direct(_, opcode, _)) => opcode.len() + 4,
            Some(Branch::Other(_, bytes)) => bytes.len(),
            None => 0,
        }
    }

    fn terminator(&self) -> Terminator {
        match &self.branch {
            Some(Branch::Direct(terminator, ..) | Branch::Other(terminator, _)) => *terminator,
            None => Terminator::FallThrough,
        }
    }
}
