//! An object's unwind table (`.eh_frame`), read as the unwinder of the program itself reads it.

use crate::elf::Elf;
use crate::elf::eh_frame::each_entry;
use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameOffset, Encoding, EndianSlice, EvaluationResult, Format,
    LittleEndian, Location, Register, RegisterRule, UnwindContext, UnwindExpression, UnwindSection,
    UnwindTableRow, Value,
};

type UnwindBytes<'a> = EndianSlice<'a, LittleEndian>;

/// Numbers of the registers in unwind tables (x86-64 psABI, figure 3.36): 0 to 15, and the return address.
const REGISTERS: usize = 17;
const FRAME_POINTER: u16 = 6;
const STACK_POINTER: u16 = 7;
const RETURN_ADDRESS: u16 = 16;

/// Operations of one expression: the longest of compilers have some ten.
const OPERATIONS_MAX: u32 = 1000;

const ENCODING: Encoding = Encoding { address_size: 8, format: Format::Dwarf32, version: 4 };

/// Reads eight bytes of a stack at an address; `None`: they are not known.
pub type ReadStack<'m> = &'m dyn Fn(u64) -> Option<u64>;

/// The registers of a frame, by their numbers in unwind tables; the last is the address of its instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnwindRegisters(pub [u64; REGISTERS]);

impl UnwindRegisters {
    fn get(&self, register: Register) -> Option<u64> {
        self.0.get(usize::from(register.0)).copied()
    }

    pub(crate) const fn instruction(&self) -> u64 {
        self.0[RETURN_ADDRESS as usize]
    }

    pub(crate) const fn stack_pointer(&self) -> u64 {
        self.0[STACK_POINTER as usize]
    }
}

/// The frame that called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caller {
    /// Its registers.
    Frame(UnwindRegisters),
    /// The table says that there is none: a thread or the program begins here.
    None,
}

/// Code that unwinds as one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UnwindEntry {
    start: u64,
    end: u64,
    offset: usize,
    /// A personality routine is called for its frames: it may stop an exception, or do something before that
    /// passes.
    pub(crate) has_handler: bool,
    /// The kernel calls a signal handler from here: the caller was interrupted at its instruction, and did
    /// not call.
    pub(crate) is_signal: bool,
}

/// The table.
pub(crate) struct UnwindTable<'a> {
    section: EhFrame<UnwindBytes<'a>>,
    bases: BaseAddresses,
    /// By start.
    entries: Vec<UnwindEntry>,
    /// Some entry has a handler, or the table is damaged, so that one may have.
    pub(crate) has_handlers: bool,
}

impl<'a> UnwindTable<'a> {
    /// `None`: the object has none, and no exception can pass through its code.
    pub(crate) fn of(elf: &Elf<'a>) -> Option<Self> {
        let (bytes, address) = elf.section(".eh_frame").zip(elf.section_address(".eh_frame"))?;
        let mut bases = BaseAddresses::default().set_eh_frame(address);
        if let Some(text) = elf.section_address(".text") {
            bases = bases.set_text(text);
        }
        if let Some(got) = elf.section_address(".got") {
            bases = bases.set_got(got);
        }
        Some(Self::of_section(bytes, bases))
    }

    fn of_section(bytes: &'a [u8], bases: BaseAddresses) -> Self {
        let section = EhFrame::new(bytes, LittleEndian);
        let mut entries = Vec::new();
        let is_whole = each_entry(&section, &bases, |fde| {
            entries.push(UnwindEntry {
                start: fde.initial_address(),
                end: fde.end_address(),
                offset: fde.offset(),
                has_handler: fde.personality().is_some(),
                is_signal: fde.is_signal_trampoline(),
            });
        });
        entries.sort_unstable();
        let has_handlers = !is_whole || entries.iter().any(|entry| entry.has_handler);
        Self { section, bases, entries, has_handlers }
    }

    /// The entry of an instruction, by its linked address.
    pub(crate) fn at(&self, svma: u64) -> Option<&UnwindEntry> {
        let after = self.entries.partition_point(|entry| entry.start <= svma);
        self.entries.get(after.checked_sub(1)?).filter(|entry| svma < entry.end)
    }

    /// The CFA at an instruction, as an offset: from `rbp` if the flag is set, else from `rsp`.
    pub(crate) fn cfa(&self, svma: u64) -> Option<(bool, u64)> {
        let offset = EhFrameOffset(self.at(svma)?.offset);
        let fde = self.section.fde_from_offset(&self.bases, offset, EhFrame::cie_from_offset).ok()?;
        let mut context = UnwindContext::new();
        let row = fde.unwind_info_for_address(&self.section, &self.bases, &mut context, svma).ok()?;
        match row.cfa() {
            CfaRule::RegisterAndOffset { register: Register(STACK_POINTER), offset } => {
                Some((false, u64::try_from(*offset).ok()?))
            }
            CfaRule::RegisterAndOffset { register: Register(FRAME_POINTER), offset } => {
                Some((true, u64::try_from(*offset).ok()?))
            }
            _ => None,
        }
    }

    /// The caller of the frame that is at `svma`; `None`: the table or the stack does not tell.
    pub(crate) fn caller(
        &self,
        entry: &UnwindEntry,
        svma: u64,
        registers: &UnwindRegisters,
        stack: ReadStack<'_>,
    ) -> Option<Caller> {
        let fde =
            self.section.fde_from_offset(&self.bases, EhFrameOffset(entry.offset), EhFrame::cie_from_offset);
        let mut context = UnwindContext::new();
        let fde = fde.ok()?;
        let row = fde.unwind_info_for_address(&self.section, &self.bases, &mut context, svma).ok()?;
        let frame = Frame { table: self, registers, stack };
        frame.caller(row)
    }
}

struct Frame<'f, 'a> {
    table: &'f UnwindTable<'a>,
    registers: &'f UnwindRegisters,
    stack: ReadStack<'f>,
}

impl Frame<'_, '_> {
    fn caller(&self, row: &UnwindTableRow<usize>) -> Option<Caller> {
        // What a table does not mention a function preserves; of the return address it always says something.
        let rule = |register| row.register(register).unwrap_or(RegisterRule::Undefined);
        if rule(Register(RETURN_ADDRESS)) == RegisterRule::Undefined {
            return Some(Caller::None);
        }
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                self.registers.get(*register)?.wrapping_add_signed(*offset)
            }
            CfaRule::Expression(expression) => self.evaluate(*expression, None)?,
        };
        let mut of_caller = *self.registers;
        for (register, value) in (0..).map(Register).zip(&mut of_caller.0) {
            *value = self.register(register, *value, cfa, rule(register))?;
        }
        if rule(Register(STACK_POINTER)) == RegisterRule::Undefined {
            of_caller.0[usize::from(STACK_POINTER)] = cfa;
        }
        Some(Caller::Frame(of_caller))
    }

    fn register(&self, register: Register, now: u64, cfa: u64, rule: RegisterRule<usize>) -> Option<u64> {
        match rule {
            RegisterRule::Undefined | RegisterRule::SameValue => Some(now),
            RegisterRule::Offset(offset) => (self.stack)(cfa.wrapping_add_signed(offset)),
            RegisterRule::ValOffset(offset) => Some(cfa.wrapping_add_signed(offset)),
            RegisterRule::Register(other) if other == register => Some(now),
            RegisterRule::Register(other) => self.registers.get(other),
            RegisterRule::Expression(expression) => (self.stack)(self.evaluate(expression, Some(cfa))?),
            RegisterRule::ValExpression(expression) => self.evaluate(expression, Some(cfa)),
            RegisterRule::Constant(value) => Some(value),
            _ => None,
        }
    }

    fn evaluate(&self, expression: UnwindExpression<usize>, cfa: Option<u64>) -> Option<u64> {
        let mut evaluation = expression.get(&self.table.section).ok()?.evaluation(ENCODING);
        evaluation.set_max_iterations(OPERATIONS_MAX);
        if let Some(cfa) = cfa {
            evaluation.set_initial_value(cfa);
        }
        let mut result = evaluation.evaluate().ok()?;
        loop {
            result = match result {
                EvaluationResult::Complete => break,
                EvaluationResult::RequiresMemory { address, size: 8, space: None, .. } => {
                    evaluation.resume_with_memory(Value::Generic((self.stack)(address)?)).ok()?
                }
                EvaluationResult::RequiresRegister { register, .. } => {
                    evaluation.resume_with_register(Value::Generic(self.registers.get(register)?)).ok()?
                }
                _ => return None,
            };
        }
        match evaluation.as_result() {
            [piece] => match piece.location {
                Location::Address { address } => Some(address),
                _ => None,
            },
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::eh_frame::push_entry as entry;
    use proptest::prelude::*;

    const ADDRESS: u64 = 0x1000;
    const UNDEFINED_RETURN: [u8; 4] = [0x07, 16, 0, 0];
    /// `push %rbx` has been executed from the second byte on: the frame's address moves, and there is what it
    /// was.
    const PUSHED_RBX: [u8; 6] = [0x41, 0x0e, 16, 0x83, 2, 0];
    /// The frame's address is what stands at `(%rbp - 8)`: functions that align their stack.
    const BY_EXPRESSION: [u8; 6] = [0x0f, 3, 0x76, 0x78, 0x06, 0];

    /// A common entry with this augmentation, and one of a function: `(start, size, instructions)`.
    fn table(personality: bool, functions: &[(u64, u32, &[u8])]) -> Vec<u8> {
        // Version 1, alignments 1 and -8, return address 16; cfa = rsp + 8, ra at cfa - 8.
        let mut common = vec![1, b'z'];
        common.extend(if personality { &b"PR\0"[..] } else { b"R\0" });
        common.extend([1, 0x78, 0x10]);
        common.extend(if personality { &[6, 0x03, 0x40, 0, 0, 0, 0x1b][..] } else { &[1, 0x1b] });
        common.extend([0x0c, 7, 8, 0x90, 1]);
        let mut bytes = Vec::new();
        entry(&mut bytes, 0, &common);
        for (start, size, instructions) in functions {
            let here = ADDRESS + bytes.len() as u64 + 8;
            let mut body = (start.wrapping_sub(here) as u32).to_le_bytes().to_vec();
            body.extend(size.to_le_bytes());
            body.push(0);
            body.extend(*instructions);
            let common_at = bytes.len() as u32 + 4;
            entry(&mut bytes, common_at, &body);
        }
        bytes
    }

    fn parsed(bytes: &[u8]) -> UnwindTable<'_> {
        UnwindTable::of_section(bytes, BaseAddresses::default().set_eh_frame(ADDRESS))
    }

    fn registers(sp: u64, bp: u64, ip: u64) -> UnwindRegisters {
        let mut registers = UnwindRegisters([0; REGISTERS]);
        (registers.0[7], registers.0[6], registers.0[16], registers.0[3]) = (sp, bp, ip, 0xb0b);
        registers
    }

    /// A stack from 0x7000 on with the words 0x100, 0x101, ...
    fn word(address: u64) -> Option<u64> {
        (0x7000..0x7100).contains(&address).then(|| 0x100 + (address - 0x7000) / 8)
    }

    #[test]
    fn callers_are_where_the_table_says() {
        let bytes = table(
            false,
            &[(0x500, 0x20, &PUSHED_RBX), (0x600, 0x20, &UNDEFINED_RETURN), (0x700, 0x20, &BY_EXPRESSION)],
        );
        let table = parsed(&bytes);
        let caller = |at: u64, sp, bp| {
            let entry = table.at(at)?;
            match table.caller(entry, at, &registers(sp, bp, at), &word)? {
                Caller::Frame(UnwindRegisters(r)) => Some((r[7], r[16], r[3])),
                Caller::None => Some((0, 0, 0)),
            }
        };
        assert_eq!(caller(0x500, 0x7000, 0), Some((0x7008, 0x100, 0xb0b)), "before the push");
        assert_eq!(caller(0x501, 0x7000, 0), Some((0x7010, 0x101, 0x100)), "after it");
        assert_eq!(caller(0x600, 0x7000, 0), Some((0, 0, 0)), "a thread begins");
        assert_eq!(caller(0x700, 0x7000, 0x7010), None, "0x101 is no address of this stack");
        assert_eq!(caller(0x500, 0x7200, 0), None, "what was kept of the stack ends before");
        assert_eq!((table.at(0x4ff), table.at(0x520)), (None, None));
        assert!(!table.has_handlers);
    }

    #[test]
    fn a_personality_is_a_handler_and_so_may_be_what_is_damaged() {
        let bytes = table(true, &[(0x500, 0x20, &PUSHED_RBX)]);
        let with = parsed(&bytes);
        assert!(with.has_handlers && with.at(0x500).unwrap().has_handler);
        let bytes = table(false, &[(0x500, 0x20, &PUSHED_RBX)]);
        assert!(!parsed(&bytes).has_handlers);
        let cut = &bytes[..bytes.len() - 4];
        assert!(parsed(cut).has_handlers, "a table that is cut");
    }

    proptest! {
        #[test]
        fn damage_is_harmless(
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
            at in 0x4f0u64..0x720,
        ) {
            let mut bytes = table(true, &[(0x500, 0x20, &PUSHED_RBX), (0x700, 0x20, &BY_EXPRESSION)]);
            for (place, value) in flips {
                let place = place.index(bytes.len());
                bytes[place] = value;
            }
            let table = parsed(&bytes);
            if let Some(entry) = table.at(at) {
                let _ = table.caller(entry, at, &registers(0x7000, 0x7010, at), &word);
            }
        }
    }
}
