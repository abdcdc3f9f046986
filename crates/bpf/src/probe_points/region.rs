//! Where a region is probed: at the instructions where it begins, and where it ends.
//!
//! In the middle of a function the stack pointer tells of no frame by itself. The unwind table does: a frame
//! is known by its CFA, the address above its return address, which is n words above `rsp` or `rbp`.

use model::Svma;

use super::{CodeError, Ends, FunctionCode, ProbePoint, ProbePoints, divide, is_emulated};
use crate::wire::Action;

/// Where the CFA of a frame is at an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallFrame {
    /// Above `rbp`, else above `rsp`.
    pub by_rbp: bool,
    /// Bytes above the register.
    pub offset: u64,
}

/// An instruction at which a region begins or ends.
#[derive(Clone, Debug)]
pub struct RegionPlace<'c> {
    /// The function that it is in.
    pub code: FunctionCode<'c>,
    /// It.
    pub at: Svma,
    /// The region begins there.
    pub starts: bool,
    /// It ends there.
    pub ends: bool,
    /// Its frame there; `None`: not known.
    pub frame: Option<CallFrame>,
}

impl ProbePoints {
    /// Of a region.
    ///
    /// # Errors
    /// [`CodeError`]: nothing may be probed.
    pub fn of_region(places: &[RegionPlace<'_>]) -> Result<Self, CodeError> {
        let (mut points, mut entry_is_emulated) = (Vec::new(), true);
        for place in places {
            let (point, is_emulated) = point(place)?;
            entry_is_emulated &= is_emulated || !place.starts;
            points.push(point);
        }
        points.sort_unstable_by_key(|point| point.offset);
        let is_periodic = places.iter().all(|place| place.starts);
        Ok(Self {
            points,
            ends: if is_periodic { Ends::AtStarts } else { Ends::AtMarks },
            callees: Vec::new(),
            jumps_to: Vec::new(),
            first_part_len: 0,
            entry_is_emulated,
        })
    }
}

fn point(place: &RegionPlace<'_>) -> Result<(ProbePoint, bool), CodeError> {
    let RegionPlace { ref code, at, starts, ends, frame } = *place;
    let is_in = |start: Svma, len: usize| at.0.wrapping_sub(start.0) < len as u64;
    let part = code.parts.iter().find(|part| is_in(part.start, part.bytes.len())).ok_or(CodeError::Empty)?;
    let mut instructions = Vec::new();
    divide(part, &mut instructions)?;
    let found = instructions.iter().find(|instruction| instruction.ip() == at.0);
    let instruction = found.ok_or(CodeError::NotAnInstruction(at))?;
    if instruction.has_lock_prefix() {
        return Err(CodeError::LockedEntry);
    }
    let CallFrame { by_rbp, offset } = frame.ok_or(CodeError::NoFrame(at))?;
    let is_whole = offset.is_multiple_of(8) && offset > 0;
    let words = u16::try_from(offset / 8).ok().filter(|_| is_whole).ok_or(CodeError::NoFrame(at))?;
    let [condition, register] = words.to_le_bytes();
    let action = |is_it, action: Action| if is_it { action as u8 } else { 0 };
    let actions = Action::Region as u8
        | action(starts, Action::Entry)
        | action(ends, Action::Return)
        | action(by_rbp, Action::ByRbp);
    let offset = part.file_offset.plus(at.0 - part.start.0);
    Ok((ProbePoint { offset, actions, condition, register, bytes_in: 0 }, is_emulated(instruction)))
}

#[cfg(test)]
mod tests {
    use model::FileOffset;

    use super::super::CodePart;
    use super::*;

    fn points(places: &[(u64, bool, bool, Option<CallFrame>)]) -> Result<Vec<(u64, u64)>, CodeError> {
        let probed = probed(places)?;
        Ok(probed.points.into_iter().map(|point| (point.offset.0, point.cookie(3, false))).collect())
    }

    fn probed(places: &[(u64, bool, bool, Option<CallFrame>)]) -> Result<ProbePoints, CodeError> {
        // push %rbp; nop; mov $0, %eax; lock incl (%rdi); ret
        let bytes = [0x55, 0x90, 0xb8, 0, 0, 0, 0, 0xf0, 0xff, 0x07, 0xc3];
        let part = CodePart { start: Svma(0x1000), file_offset: FileOffset(0x400), bytes: &bytes };
        let code = FunctionCode { entry: Svma(0x1000), parts: vec![part] };
        let place = |&(at, starts, ends, frame): &_| RegionPlace {
            code: code.clone(),
            at: Svma(at),
            starts,
            ends,
            frame,
        };
        ProbePoints::of_region(&places.iter().map(place).collect::<Vec<_>>())
    }

    #[test]
    fn from_period_to_period_nothing_else_ends_it() {
        let frame = Some(CallFrame { by_rbp: false, offset: 8 });
        let ends = |places: &[_]| probed(places).map(|points| points.ends);
        assert_eq!(ends(&[(0x1001, true, true, frame)]), Ok(Ends::AtStarts));
        assert_eq!(ends(&[(0x1001, true, true, frame), (0x1002, false, true, frame)]), Ok(Ends::AtMarks));
    }

    #[test]
    fn the_cookie_says_what_begins_and_ends_in_which_frame() {
        let by_rsp = Some(CallFrame { by_rbp: false, offset: 0x1008 });
        let by_rbp = Some(CallFrame { by_rbp: true, offset: 16 });
        let both = points(&[(0x1002, false, true, by_rbp), (0x1001, true, false, by_rsp)]);
        assert_eq!(both, Ok(vec![(0x401, 3 << 32 | 0x0201 << 8 | 17), (0x402, 3 << 32 | 2 << 8 | 50)]));
        assert_eq!(points(&[(0x1001, true, true, by_rsp)]), Ok(vec![(0x401, 3 << 32 | 0x0201 << 8 | 19)]));
    }

    #[test]
    fn what_cannot_be_probed_is_refused() {
        let frame = Some(CallFrame { by_rbp: false, offset: 8 });
        assert_eq!(points(&[(0x1003, true, true, frame)]), Err(CodeError::NotAnInstruction(Svma(0x1003))));
        assert_eq!(points(&[(0x1007, true, true, frame)]), Err(CodeError::LockedEntry));
        assert_eq!(points(&[(0x1001, true, true, None)]), Err(CodeError::NoFrame(Svma(0x1001))));
        let large = Some(CallFrame { by_rbp: false, offset: 8 << 16 });
        assert_eq!(points(&[(0x1001, true, true, large)]), Err(CodeError::NoFrame(Svma(0x1001))));
        assert_eq!(points(&[(0x2000, true, true, frame)]), Err(CodeError::Empty));
    }
}
