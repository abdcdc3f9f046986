//! Calls that run the instructions of any other call and take longer: cache misses, or a lower frequency.
//!
//! ```text
//! --miss        SYMBOL,P,CYCLES   with probability P each block of a call's own code takes CYCLES more
//! --slow-clock  SYMBOL,P,RATIO    with probability P the core:bus ratio is RATIO until a call has returned
//! ```

use std::ops::Range;

use model::Avma;

use crate::block::{Block, Terminator};
use crate::error::Error;
use crate::filter::resolve;
use crate::maps::Maps;
use crate::options::{Options, SlowOption};
use crate::rng::Rng;
use crate::slice::Slice;

/// What makes a call slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slowness {
    /// Each block of the function's own code takes this many more core cycles.
    Misses(u16),
    /// The core:bus ratio.
    Ratio(u8),
}

/// A function with some slow calls.
#[derive(Clone, Debug)]
struct SlowFunction {
    code: Range<Avma>,
    probability: f64,
    slowness: Slowness,
}

/// The functions with some slow calls.
#[derive(Clone, Debug)]
pub(crate) struct SlowCalls {
    functions: Vec<SlowFunction>,
    /// Not the dice of the simulation: what else happens does not depend on which calls are slow.
    dice: Rng,
}

/// A slow call that a thread is in.
#[derive(Clone, Debug)]
pub(crate) struct SlowCall {
    code: Range<Avma>,
    return_to: Avma,
    pub(crate) slowness: Slowness,
    /// Core:bus ratio before the call.
    pub(crate) ratio_before: u8,
}

impl SlowCalls {
    /// Resolves the options.
    ///
    /// # Errors
    /// There is no such function.
    pub(crate) fn resolve(options: &Options, maps: &Maps) -> Result<Self, Error> {
        let misses = options.miss.iter().map(|option| (option, Slowness::Misses(option.value)));
        let ratio = |option: &SlowOption| Slowness::Ratio(option.value.clamp(1, 255) as u8);
        let clocks = options.slow_clock.iter().map(|option| (option, ratio(option)));
        let function = |(option, slowness): (&SlowOption, Slowness)| {
            let symbol = &option.symbol;
            let refused = |what| Error::SlowCalls { text: symbol.clone(), what };
            let (code, _) = resolve(symbol, maps).map_err(refused)?;
            Ok(SlowFunction { code, probability: option.probability, slowness })
        };
        let functions = misses.chain(clocks).map(function).collect::<Result<_, Error>>()?;
        Ok(Self { functions, dice: Rng::new(options.seed.rotate_left(32)) })
    }

    /// Draws whether the call that leads from `from` to `to` is slow. `None`: no call of such a function, or
    /// not a slow one.
    #[inline]
    pub(crate) fn draw(&mut self, from: &Block, to: &Block, ratio: u8) -> Option<SlowCall> {
        if self.functions.is_empty()
            || !matches!(from.terminator, Terminator::Call | Terminator::IndirectCall)
        {
            return None;
        }
        let function = self.functions.iter().find(|function| function.code.start == to.start)?;
        let is_slow = self.dice.happens(function.probability);
        is_slow.then(|| SlowCall {
            code: function.code.clone(),
            return_to: from.end,
            slowness: function.slowness,
            ratio_before: ratio,
        })
    }
}

impl SlowCall {
    /// The transfer from `from` to `to` ends the call.
    #[inline]
    pub(crate) fn ends(&self, from: &Block, to: &Block) -> bool {
        from.terminator == Terminator::Return && to.start == self.return_to
    }

    /// Core cycles that a block takes more.
    pub(crate) fn more_cycles(&self, block: &Block) -> u64 {
        match self.slowness {
            Slowness::Misses(cycles) if self.code.contains(&block.start) => cycles.into(),
            Slowness::Misses(_) | Slowness::Ratio(_) => 0,
        }
    }

    /// The ticks in the call of core cycles that took `ticks` before it.
    pub(crate) fn stretch(&self, ticks: u64) -> u64 {
        match self.slowness {
            Slowness::Ratio(ratio) => ticks * u64::from(self.ratio_before) / u64::from(ratio),
            Slowness::Misses(_) => ticks,
        }
    }
}

impl Slice<'_, '_> {
    /// A slow call ends or begins where control goes from `from` to `to`.
    #[inline]
    pub(crate) fn change_slow_call(&mut self, from: &Block, to: &Block) {
        if self.thread.slow_call.as_ref().is_some_and(|call| call.ends(from, to)) {
            self.end_slow_call();
        }
        if self.thread.slow_call.is_none() {
            let call = self.world.disturbance.slow_calls.draw(from, to, self.buffer.unit.cbr());
            if let Some(Slowness::Ratio(ratio)) = call.as_ref().map(|call| call.slowness) {
                self.buffer.unit.set_cbr(ratio, self.thread.now);
            }
            self.thread.slow_call = call;
        }
    }

    /// The core runs on as it did before the slow call, if there is one.
    pub(crate) fn end_slow_call(&mut self) {
        if let Some(call) = self.thread.slow_call.take()
            && matches!(call.slowness, Slowness::Ratio(_))
        {
            self.buffer.unit.set_cbr(call.ratio_before, self.thread.now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(start: u64, terminator: Terminator) -> Block {
        let [start, last, end] = [start, start + 3, start + 4].map(Avma);
        Block {
            start,
            last,
            end,
            target: Avma(0),
            instructions: 2,
            first_function: 0,
            last_function: 0,
            terminator,
            signal_handler: None,
            mapped: true,
        }
    }

    fn calls(probability: f64, slowness: Slowness) -> SlowCalls {
        let function = SlowFunction { code: Avma(100)..Avma(120), probability, slowness };
        SlowCalls { functions: vec![function], dice: Rng::new(1) }
    }

    #[test]
    fn a_slow_call_lasts_until_it_returns_to_its_caller() {
        let [caller, jump, ret] =
            [Terminator::Call, Terminator::Jump, Terminator::Return].map(|t| block(10, t));
        let [own, callee, after] = [100, 200, 14].map(|start| block(start, Terminator::FallThrough));
        let mut all = calls(1.0, Slowness::Misses(30));
        assert!(all.draw(&jump, &own, 36).is_none(), "no call");
        assert!(all.draw(&caller, &callee, 36).is_none(), "another function");
        let call = all.draw(&caller, &own, 36).unwrap();
        assert_eq!([&own, &callee].map(|block| call.more_cycles(block)), [30, 0]);
        assert_eq!((call.ends(&ret, &callee), call.ends(&jump, &after)), (false, false));
        assert!(call.ends(&ret, &after));
        assert_eq!(call.stretch(1000), 1000);
    }

    #[test]
    fn at_half_the_ratio_cycles_take_twice_the_time() {
        let [from, to] = [10, 100].map(|start| block(start, Terminator::Call));
        let call = calls(1.0, Slowness::Ratio(18)).draw(&from, &to, 36).unwrap();
        assert_eq!((call.stretch(1000), call.more_cycles(&to)), (2000, 0));
    }

    #[test]
    fn so_many_calls_are_slow_as_was_asked_for() {
        let [from, to] = [10, 100].map(|start| block(start, Terminator::Call));
        let slow = |probability| {
            let mut all = calls(probability, Slowness::Misses(1));
            (0..10_000).filter(|_| all.draw(&from, &to, 36).is_some()).count()
        };
        assert_eq!((slow(0.0), slow(1.0)), (0, 10_000));
        assert!((400..600).contains(&slow(0.05)), "{}", slow(0.05));
    }
}
