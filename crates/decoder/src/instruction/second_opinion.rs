//! Every instruction in the text of real programs, by ours and by capstone: length, class, target.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use capstone::arch::x86::{ArchMode, X86InsnGroup, X86OperandType};
use capstone::arch::{BuildsCapstone as _, DetailsArchInsn as _};
use capstone::{Capstone, Insn, InsnDetail, InsnGroupType};
use model::Avma;
use object::{Object as _, ObjectSection as _};

use super::{DecodedInstruction, Instructions};
use crate::terminator::Terminator;

/// What both disassemblers say of an instruction: its length, and where control goes after it.
type Opinion = (u8, Option<Terminator>);

/// Differences that are shown of one program.
const SHOWN_MAX: usize = 20;

#[test]
fn libc() {
    check(Path::new("/usr/lib/x86_64-linux-gnu/libc.so.6"));
}

#[test]
fn an_interpreter() {
    check(Path::new("/usr/bin/python3"));
}

#[test]
fn a_server() {
    check(Path::new("/usr/sbin/mariadbd"));
}

#[test]
fn a_rust_program() {
    check(&std::env::current_exe().unwrap());
}

#[test]
fn a_go_program() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let go = std::env::split_paths(&path).map(|directory| directory.join("go")).find(|go| go.is_file());
    check(&go.unwrap_or(PathBuf::from("go")));
}

/// Both agree on all of a program's text.
fn check(program: &Path) {
    let Ok(file) = std::fs::read(program) else {
        return println!(
            "skipped: there is no {} here; cargo xtask setup --full installs it",
            program.display()
        );
    };
    let object = object::File::parse(&*file).unwrap();
    let text = object.section_by_name(".text").unwrap();
    let (start, bytes) = (text.address(), text.data().unwrap());
    let capstone = Capstone::new().x86().mode(ArchMode::Mode64).detail(true).build().unwrap();
    let (mut at, mut both, mut only_ours) = (0, 0_u64, 0_u64);
    let (mut differences, mut shown) = (0, String::new());
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        let ip = start + at as u64;
        let rest = &rest[..rest.len().min(16)];
        let (ours, theirs) = (ours(ip, rest), theirs(&capstone, ip, rest));
        at += usize::from(ours.or(theirs).map_or(1, |(len, _)| len));
        match (ours, theirs) {
            (Some(ours), Some(theirs)) if ours == theirs => both += 1,
            // What is newer than capstone.
            (Some((_, None)), None) => only_ours += 1,
            (None, None) => (),
            _ => {
                differences += 1;
                if differences <= SHOWN_MAX {
                    writeln!(shown, "{ip:#x} {rest:02x?}: {ours:?}, capstone {theirs:?}").unwrap();
                }
            }
        }
    }
    println!("{}: {both} alike, {only_ours} only ours, {differences} not alike", program.display());
    assert_eq!(differences, 0, "{}\n{shown}", program.display());
    assert!(both > 10_000 && only_ours < both / 100, "{both} alike, {only_ours} that capstone does not know");
}

fn ours(ip: u64, bytes: &[u8]) -> Option<Opinion> {
    let DecodedInstruction { len, terminator, .. } = Instructions::at(Avma(ip), bytes).next().ok()?;
    Some((len, terminator))
}

fn theirs(capstone: &Capstone, ip: u64, bytes: &[u8]) -> Option<Opinion> {
    let instructions = capstone.disasm_count(bytes, ip, 1).ok()?;
    let instruction = instructions.iter().next()?;
    let detail = capstone.insn_detail(instruction).ok()?;
    Some((instruction.len() as u8, terminator(instruction, &detail)))
}

fn terminator(instruction: &Insn<'_>, detail: &InsnDetail<'_>) -> Option<Terminator> {
    let is_in = |group: u32| detail.groups().iter().any(|of| u32::from(of.0) == group);
    let mnemonic =
        instruction.mnemonic().unwrap_or_default().rsplit(' ').next().unwrap_or_default().to_owned();
    let target = || {
        let operands = detail.arch_detail();
        let operands = operands.x86()?.operands().collect::<Vec<_>>();
        match operands.first()?.op_type {
            X86OperandType::Imm(to) => Some(Avma(to as u64)),
            _ => None,
        }
    };
    let next = instruction.address() + instruction.len() as u64;
    Some(match &*mnemonic {
        "xbegin" | "xabort" | "xend" | "vmcall" | "vmmcall" | "vmgexit" | "tdcall" => return None,
        "ret" => Terminator::Return,
        "jmp" => target().map_or(Terminator::IndirectJump, |to| Terminator::Jump { to }),
        "call" => target().map_or(Terminator::IndirectCall, |to| Terminator::Call { to, push: to.0 != next }),
        _ if is_in(X86InsnGroup::X86_GRP_JUMP) && target().is_some() => {
            Terminator::Conditional { taken: target()? }
        }
        _ if is_in(InsnGroupType::CS_GRP_INT)
            || is_in(InsnGroupType::CS_GRP_IRET)
            || is_in(InsnGroupType::CS_GRP_RET)
            || matches!(
                &*mnemonic,
                "ljmp"
                    | "lcall"
                    | "syscall"
                    | "sysret"
                    | "sysretq"
                    | "sysenter"
                    | "sysexit"
                    | "ud0"
                    | "ud1"
                    | "ud2"
            ) =>
        {
            Terminator::Far
        }
        _ => return None,
    })
}
