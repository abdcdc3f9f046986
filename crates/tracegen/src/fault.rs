//! Page faults, of which the emulator shows none: made up at a function's first instruction.

use model::Avma;

use crate::error::Error;
use crate::filter::resolve;
use crate::maps::Maps;
use crate::options::Options;

/// Calls for each fault: the one in the middle of them faults.
const PERIOD: u64 = 50;

/// A function with a first instruction that faults now and then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fault {
    at: Avma,
    us: f64,
    calls: u64,
}

impl Fault {
    /// That of the options.
    ///
    /// # Errors
    /// There is no such function.
    pub(crate) fn resolve(options: &Options, maps: &Maps) -> Result<Option<Self>, Error> {
        let Some(symbol) = &options.fault else { return Ok(None) };
        let (range, _) = resolve(symbol, maps).map_err(|what| Error::Fault { text: symbol.clone(), what })?;
        Ok(Some(Self { at: range.start, us: options.fault_us, calls: 0 }))
    }

    /// Control reaches `ip`: how long the kernel takes there, if it faults.
    pub(crate) fn at(&mut self, ip: Avma) -> Option<f64> {
        if ip != self.at {
            return None;
        }
        self.calls += 1;
        (self.calls % PERIOD == PERIOD / 2 + 1).then_some(self.us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_call_in_fifty_faults() {
        let mut fault = Fault { at: Avma(16), us: 3.0, calls: 0 };
        let faulted = |_: &u64| fault.at(Avma(16)).is_some();
        assert_eq!((0..150).filter(faulted).collect::<Vec<u64>>(), [25, 75, 125]);
        assert_eq!(fault.at(Avma(17)), None);
    }
}
