//! A random way of recording.

use tracegen::Options;
use truth_tests::dice::Dice;

use crate::assembly::assembly;
use crate::program::{FunctionNumber, Program};

/// How a run is recorded: options of `tracegen encode`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mode(pub Vec<String>);

impl Mode {
    /// What the dice say for a program.
    #[must_use]
    pub fn new(dice: &mut Dice, program: &Program) -> Self {
        let mut mode = Self(vec![format!("--seed={}", dice.seed())]);
        mode.buffers(dice);
        mode.packets(dice);
        if dice.percent(30) {
            mode.clocks(dice);
        }
        if dice.percent(30) {
            mode.losses(dice);
        }
        if dice.percent(25) {
            mode.filter(dice, program);
        }
        if dice.percent(15) {
            mode.window(dice);
        }
        mode
    }

    /// The options as the generator takes them.
    ///
    /// # Panics
    /// If the generator does not know an option.
    #[must_use]
    #[expect(clippy::expect_used, reason = "the options are written here")]
    pub fn options(&self) -> Options {
        Options::from_args(&self.0).expect("options of tracegen")
    }

    /// Packets were lost, on purpose.
    #[must_use]
    pub fn is_lossy(&self) -> bool {
        let options = self.options();
        options.ovf_ms > 0.0 || options.trunc > 0.0
    }

    /// Each call of the program is in the recording.
    #[must_use]
    pub fn sees_all(&self) -> bool {
        let options = self.options();
        !self.is_lossy() && options.filter.is_empty() && options.skip_ms == 0.0 && options.dur_ms == 0.0
    }

    /// It has an IP filter, and without it all would happen at the same times: losses, and a trace unit that
    /// forgets calls where tracing ends, take dice of their own.
    #[must_use]
    pub fn has_twin_without_filter(&self) -> bool {
        let options = self.options();
        !options.filter.is_empty() && !self.is_lossy() && options.drop_ret_stack == 0.0
    }

    /// This mode without the IP filter.
    #[must_use]
    pub fn without_filter(&self) -> Self {
        let of_filter = |option: &&String| option.starts_with("--filter") || *option == "--pgd-hides-jcc";
        Self(self.0.iter().filter(|option| !of_filter(option)).cloned().collect())
    }

    fn add(&mut self, option: impl Into<String>) {
        self.0.push(option.into());
    }

    fn sometimes(&mut self, dice: &mut Dice, percent: u32, option: &str) {
        if dice.percent(percent) {
            self.add(option);
        }
    }

    fn buffers(&mut self, dice: &mut Dice) {
        if dice.percent(50) {
            self.add("--per-cpu");
            self.add(format!("--ncpu={}", dice.pick(&[1, 2, 3, 8])));
            self.add(format!("--switch={}", dice.pick(&[2, 3])));
        }
        self.add(format!("--tick-us={}", dice.pick(&[5, 20, 50, 500])));
        self.add(format!("--slice-ms={}", dice.pick(&[0.01, 0.03, 0.1, 3.0])));
    }

    fn packets(&mut self, dice: &mut Dice) {
        self.sometimes(dice, 20, "--noretcomp");
        self.sometimes(dice, 20, "--long-tnt");
        self.sometimes(dice, 20, "--late-tnt");
        self.sometimes(dice, 20, "--defer-tip=0.6");
        self.sometimes(dice, 20, "--drop-ret-stack=0.5");
        self.sometimes(dice, 10, "--drop-ret-stack=1");
        self.sometimes(dice, 20, "--whole-psb-ip");
        self.sometimes(dice, 30, "--psb-period=0");
        self.0.dedup_by_key(|option| option.split('=').next().map(str::to_owned));
    }

    fn clocks(&mut self, dice: &mut Dice) {
        match dice.below(4) {
            0 => self.add("--no-cyc"),
            1 => self.add("--no-mtc"),
            2 => {
                self.add(format!("--cyc-thresh={}", dice.between(1, 9)));
                self.add(format!("--mtc-period={}", dice.between(0, 9)));
            }
            _ => (),
        }
        if dice.percent(20) {
            self.add(format!("--tsc-skew={}", dice.pick(&[0.003, -0.003])));
        }
        self.sometimes(dice, 20, "--no-ratios");
        self.sometimes(dice, 10, "--no-tma");
        self.sometimes(dice, 20, "--skip-mtc=0.3");
        self.sometimes(dice, 10, "--sleep-us=50");
        self.sometimes(dice, 10, "--fixed-cbr");
        self.sometimes(dice, 20, "--attach");
    }

    fn losses(&mut self, dice: &mut Dice) {
        if dice.percent(60) {
            self.add(format!("--ovf-ms={}", dice.pick(&[0.003, 0.01, 0.05, 0.2])));
            self.add(format!("--ovf-us={}", dice.pick(&[0.5, 3.0, 20.0])));
        }
        if dice.percent(60) {
            self.add(format!("--trunc={}", dice.pick(&[0.3, 0.8])));
            self.add(format!("--chunk-kb={}", dice.pick(&[1, 4])));
            self.add(format!("--drain-us={}", dice.pick(&[3, 30, 300])));
        }
    }

    /// Whole functions, as a recorder traces them: what a part outside hides leaves the calls in sight
    /// ambiguous.
    fn filter(&mut self, dice: &mut Dice, program: &Program) {
        let text = assembly(program);
        for number in targets(dice, program) {
            self.add(format!("--filter=f{number}"));
            if text.contains(&format!("\nf{number}.cold:")) {
                self.add(format!("--filter=f{number}.cold"));
            }
        }
        self.sometimes(dice, 30, "--pgd-hides-jcc");
    }

    fn window(&mut self, dice: &mut Dice) {
        self.add(format!("--skip-ms={}", dice.pick(&[0.01, 0.03, 0.1])));
        if dice.percent(70) {
            self.add(format!("--dur-ms={}", dice.pick(&[0.02, 0.1, 0.5])));
        }
    }
}

/// One or two functions.
fn targets(dice: &mut Dice, program: &Program) -> Vec<FunctionNumber> {
    let mut any = || dice.below(program.functions.len());
    let (one, other) = (any(), any());
    if one == other || dice.percent(50) { vec![one] } else { vec![one, other] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_the_mode_and_the_generator_knows_it() {
        for seed in 0..300 {
            let program = Program::new(&mut Dice::new(seed));
            let mode = |seed| Mode::new(&mut Dice::new(seed), &program);
            assert_eq!(mode(seed), mode(seed));
            let options = mode(seed).options();
            assert!(options.filter.len() <= 4);
            assert!(mode(seed).without_filter().options().filter.is_empty());
        }
    }
}
