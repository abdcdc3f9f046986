//! How a run is to be recorded.

use std::path::PathBuf;

use clap::{Args, Parser, ValueEnum};

/// How a run is to be recorded.  The defaults are those of [`Options::default`].
#[derive(Args, Clone, Debug, PartialEq)]
pub struct Options {
    /// One buffer per CPU, with context switches [one buffer per thread].
    #[arg(long)]
    pub per_cpu: bool,
    /// Context switches: 0 no records of them, 2 SWITCH of the traced threads, 3 SWITCH_CPU_WIDE of per-CPU
    /// recordings (perf as root).
    #[arg(long, value_name = "0|2|3", default_value_t = 2, value_parser = switch_kind)]
    pub switch: u8,
    /// CPUs.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub ncpu: u16,
    /// Time slice of the scheduler.
    #[arg(long, value_name = "MS", default_value_t = 3.0)]
    pub slice_ms: f64,
    /// Mean time between interrupts.
    #[arg(long, value_name = "US", default_value_t = 500.0)]
    pub tick_us: f64,
    /// The real time of system calls that may block is divided by this.
    #[arg(long, value_name = "FACTOR", default_value_t = 8.0)]
    pub slow: f64,
    /// No CYC packets.
    #[arg(long)]
    pub no_cyc: bool,
    /// No MTC packets.
    #[arg(long)]
    pub no_mtc: bool,
    /// No RET compression.
    #[arg(long)]
    pub noretcomp: bool,
    /// Long TNT packets.
    #[arg(long)]
    pub long_tnt: bool,
    /// Probability that a TIP is deferred: it waits until the TNT packet before it is full, or forced out.
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pub defer_tip: f64,
    /// The CYC before a TNT has the time at which it is sent, not that of its first branch, and MTC does not
    /// force it out: what simulators write.
    #[arg(long)]
    pub late_tnt: bool,
    /// CYC packets only after 2^(N-1) cycles.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=15))]
    pub cyc_thresh: u8,
    /// An MTC every 2^N ticks of the crystal clock.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(0..=15))]
    pub mtc_period: u8,
    /// A PSB every 2^(N+11) bytes.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=15))]
    pub psb_period: u8,
    /// One call in 50 of this function has a page fault at its first instruction: SYMBOL of the program, or
    /// FILE:SYMBOL.
    #[arg(long, value_name = "[FILE:]SYMBOL")]
    pub fault: Option<String>,
    /// Which the kernel takes so long for.
    #[arg(long, value_name = "US", default_value_t = 20.0)]
    pub fault_us: f64,
    /// Cache misses: with probability P each block of a call's own code (not that of what it calls) takes
    /// CYCLES core cycles more, on the path of any other call; repeatable. A slow call lasts until it returns
    /// or leaves its CPU. Only what a call instruction reaches is a call: no function that the PLT jumps to.
    #[arg(long, value_name = "[FILE:]SYMBOL,P,CYCLES", value_parser = SlowOption::parse)]
    pub miss: Vec<SlowOption>,
    /// A lower frequency: with probability P the core:bus ratio is RATIO during a call, and CBR packets say
    /// so; repeatable. Slow calls are as those of `--miss`.
    #[arg(long, value_name = "[FILE:]SYMBOL,P,RATIO", value_parser = SlowOption::parse_ratio)]
    pub slow_clock: Vec<SlowOption>,
    /// Never change the core:bus ratio [30, 33, 36 at random interrupts].
    #[arg(long)]
    pub fixed_cbr: bool,
    /// The TSC runs faster than the nominal TSC:CTC ratio by this part, e.g. 0.003 or -0.003: the ratio that
    /// the recording states is rounded, or a hypervisor scales the TSC.
    #[arg(long, value_name = "PART", default_value_t = 0.0, allow_hyphen_values = true)]
    pub tsc_skew: f64,
    /// The recording states neither TSC:CTC ratio nor nominal core:bus ratio, as where CPUID 15H is zero.
    #[arg(long)]
    pub no_ratios: bool,
    /// No TSC and no TMA packets, though the recording's attribute says that there are.
    #[arg(long)]
    pub no_tsc_packets: bool,
    /// No TMA packets after TSC: nothing relates MTC to the TSC.
    #[arg(long)]
    pub no_tma: bool,
    /// TSC packets (with their TMA) state a time that is MIN to MAX core cycles before their place in the
    /// trace, drawn for each packet: half of them from the lowest fifth of the range, so that the median of
    /// the default is 43. Real processors: 42.
    #[arg(long, value_name = "MIN,MAX", default_value = "39,60", value_parser = TscLag::parse)]
    pub tsc_lag: TscLag,
    /// Probability that the trace unit skips an MTC; near 1 its eight bits go round in between.
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pub skip_mtc: f64,
    /// CBR packets, those in PSB+ too, say a new core:bus ratio so late; longer than the run: never.
    #[arg(long, value_name = "US", default_value_t = 0.0)]
    pub late_cbr_us: f64,
    /// Mean time of deep sleep in one of four stays in the kernel: no CYC and no MTC while it lasts, TSC
    /// after it; 0: none.
    #[arg(long, value_name = "US", default_value_t = 0.0)]
    pub sleep_us: f64,
    /// IP filter on a function, repeatable: SYMBOL of the program, or FILE:SYMBOL.
    #[arg(long, value_name = "[FILE:]SYMBOL")]
    pub filter: Vec<String>,
    /// The kernel is traced, too (`intel_pt//`): a made-up one, whose files are written to kernel/ beside the
    /// recording.
    #[arg(long)]
    pub kernel: bool,
    /// The kernel's code was patched after it was loaded, so that vmlinux is not what runs; in
    /// kernel-patched/.
    #[arg(long)]
    pub kernel_patched: bool,
    /// The kernel is traced within the IP filter only, to which this function of it is added: `__schedule`.
    #[arg(long, value_name = "SYMBOL")]
    pub kernel_filter: Option<String>,
    /// Probability that the end of tracing makes the unit forget the calls it saw.
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pub drop_ret_stack: f64,
    /// A conditional branch out of the IP filter gives a TIP.PGD without address, as the SDM says ("Packet
    /// Generation Disable"), so that a decoder must take the target from the code.
    #[arg(long)]
    pub pgd_hides_jcc: bool,
    /// The FUP of a PSB+ is not compressed against the zero that PSB sets the last IP to: the processor may
    /// do either (SDM "IP Compression"), and perf 6.1 mistakes the short form.
    #[arg(long)]
    pub whole_psb_ip: bool,
    /// Mean time between internal overflows; 0: none.
    #[arg(long, value_name = "MS", default_value_t = 0.0)]
    pub ovf_ms: f64,
    /// Mean length of an overflow.
    #[arg(long, value_name = "US", default_value_t = 30.0)]
    pub ovf_us: f64,
    /// How the first address after an overflow is compressed.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = OverflowIp::Whole)]
    pub ovf_ip: OverflowIp,
    /// Probability that the driver finds the AUX buffer full (TRUNCATED) when it takes data out.
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pub trunc: f64,
    /// Mean time until the reader has drained a full buffer and enables tracing again.
    #[arg(long, value_name = "US", default_value_t = 300.0)]
    pub drain_us: f64,
    /// The driver takes data out of the trace unit after this much.
    #[arg(long, value_name = "KB", default_value_t = 1024)]
    pub chunk_kb: u32,
    /// Recording starts this late, as attaching to a running process does.
    #[arg(long, value_name = "MS", default_value_t = 0.0)]
    pub skip_ms: f64,
    /// Recording ends this long after its start; 0: with the program.
    #[arg(long, value_name = "MS", default_value_t = 0.0)]
    pub dur_ms: f64,
    /// All mappings and names at time 0, as attaching to a running process does.
    #[arg(long)]
    pub attach: bool,
    /// N threads do the same at the same time: the trace and the records of a program's only thread are also
    /// those of others, each with a buffer and a CPU of its own. The truth is that of the first.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=4096))]
    #[arg(conflicts_with_all = ["per_cpu", "kernel", "kernel_filter", "raw"])]
    pub copies: u16,
    /// Stop after this much trace; 0: never.
    #[arg(long, value_name = "MB", default_value_t = 0.0)]
    pub max_aux_mb: f64,
    /// Of the dice.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Also write PREFIX.N.pt, the bytes of buffer N, and PREFIX.maps, the mappings.
    #[arg(long, value_name = "PREFIX")]
    pub raw: Option<PathBuf>,
}

/// How the first address after an overflow is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OverflowIp {
    /// Not at all.
    Whole,
    /// Against the last one before the overflow (SDM, "Overflow (OVF) Packet").
    Kept,
    /// Against 0, as libipt takes it.
    Zero,
}

/// How old TSC packets are at their place in the trace, in core cycles: from least to most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TscLag {
    /// Least.
    pub min: u16,
    /// Most.
    pub max: u16,
}

impl TscLag {
    /// The lags that were measured on processors.
    const REAL: Self = Self { min: 39, max: 60 };

    /// Reads `MIN,MAX`.
    fn parse(text: &str) -> Result<Self, String> {
        let parsed = text.split_once(',').map(|(min, max)| (min.parse(), max.parse()));
        match parsed {
            Some((Ok(min), Ok(max))) if min <= max => Ok(Self { min, max }),
            _ => Err("not two numbers of core cycles, MIN,MAX, in this order".to_owned()),
        }
    }

    /// The lag of one packet, for two random numbers in `[0, 1)`: the first decides between the lowest fifth
    /// of the range and the rest, the second draws from that.
    pub(crate) fn draw(self, (half, within): (f64, f64)) -> u64 {
        let (from, len) = if half < 0.5 { (0.0, 0.2) } else { (0.2, 0.8) };
        let share = from + within * len;
        (f64::from(self.min) + share * f64::from(self.max - self.min)).round() as u64
    }
}

/// A function of which some calls are slow.
#[derive(Clone, Debug, PartialEq)]
pub struct SlowOption {
    /// `SYMBOL` of the program, or `FILE:SYMBOL`.
    pub symbol: String,
    /// Probability that a call is slow.
    pub probability: f64,
    /// Core cycles of a block (`--miss`), or the core:bus ratio (`--slow-clock`).
    pub value: u16,
}

impl SlowOption {
    /// Reads `SYMBOL,P,VALUE`.
    fn parse(text: &str) -> Result<Self, String> {
        let mut parts = text.rsplitn(3, ',');
        let mut parts = || parts.next().filter(|part| !part.is_empty());
        let (value, probability, symbol) = (parts(), parts(), parts());
        let value = value.and_then(|value| value.parse().ok());
        let probability = probability.and_then(|p| p.parse().ok()).filter(|p| (0.0..=1.0).contains(p));
        match (symbol, probability, value) {
            (Some(symbol), Some(probability), Some(value)) => {
                Ok(Self { symbol: symbol.to_owned(), probability, value })
            }
            _ => Err("not SYMBOL,P,NUMBER with a probability P from 0 to 1".to_owned()),
        }
    }

    /// Reads `SYMBOL,P,RATIO`.
    fn parse_ratio(text: &str) -> Result<Self, String> {
        let option = Self::parse(text)?;
        let is_ratio = (1..=255).contains(&option.value);
        is_ratio.then_some(option).ok_or_else(|| "a core:bus ratio is from 1 to 255".to_owned())
    }
}

#[derive(Parser)]
#[command(no_binary_name = true)]
struct OptionLine {
    #[command(flatten)]
    options: Options,
}

impl Options {
    /// Kernel code runs in the simulation, and is traced as far as the filter allows.
    pub(crate) fn traces_kernel(&self) -> bool {
        self.kernel || self.kernel_filter.is_some()
    }

    /// Reads options as the command line has them, e.g. `["--per-cpu", "--ncpu=2"]`.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn from_args<I, T>(arguments: I) -> Result<Self, clap::Error>
    where
        I: IntoIterator<Item = T>,
        T: Into<std::ffi::OsString> + Clone,
    {
        OptionLine::try_parse_from(arguments).map(|line| line.options)
    }
}

/// `--switch`, in the numbers of `have_sched_switch` in AUXTRACE_INFO.
fn switch_kind(text: &str) -> Result<u8, String> {
    match text {
        "0" => Ok(0),
        "2" => Ok(2),
        "3" => Ok(3),
        _ => Err("not 0, 2 or 3".to_owned()),
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            per_cpu: false,
            switch: 2,
            ncpu: 8,
            slice_ms: 3.0,
            tick_us: 500.0,
            slow: 8.0,
            no_cyc: false,
            no_mtc: false,
            noretcomp: false,
            long_tnt: false,
            defer_tip: 0.0,
            late_tnt: false,
            cyc_thresh: 0,
            mtc_period: 3,
            psb_period: 1,
            fault: None,
            fault_us: 20.0,
            miss: vec![],
            slow_clock: vec![],
            fixed_cbr: false,
            tsc_skew: 0.0,
            no_ratios: false,
            no_tsc_packets: false,
            no_tma: false,
            tsc_lag: TscLag::REAL,
            skip_mtc: 0.0,
            late_cbr_us: 0.0,
            sleep_us: 0.0,
            filter: vec![],
            kernel: false,
            kernel_patched: false,
            kernel_filter: None,
            drop_ret_stack: 0.0,
            pgd_hides_jcc: false,
            whole_psb_ip: false,
            ovf_ms: 0.0,
            ovf_us: 30.0,
            ovf_ip: OverflowIp::Whole,
            trunc: 0.0,
            drain_us: 300.0,
            chunk_kb: 1024,
            skip_ms: 0.0,
            dur_ms: 0.0,
            attach: false,
            copies: 1,
            max_aux_mb: 0.0,
            seed: 1,
            raw: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_options_are_the_defaults() {
        assert_eq!(Options::from_args::<_, &str>([]).unwrap(), Options::default());
    }

    #[test]
    fn options_are_read() {
        let options =
            Options::from_args(["--per-cpu", "--switch=3", "--filter=a", "--filter=b", "--tick-us=50"])
                .unwrap();
        assert!(options.per_cpu);
        assert_eq!((options.switch, options.tick_us), (3, 50.0));
        assert_eq!(options.filter, ["a", "b"]);
        let slow = Options::from_args(["--miss=libc.so:f,0.25,30", "--slow-clock=g,1,12"]).unwrap();
        let read = |option: &SlowOption| (option.symbol.clone(), option.probability, option.value);
        assert_eq!(slow.miss.iter().map(read).collect::<Vec<_>>(), [("libc.so:f".to_owned(), 0.25, 30)]);
        assert_eq!(slow.slow_clock.iter().map(read).collect::<Vec<_>>(), [("g".to_owned(), 1.0, 12)]);
        for wrong in [
            "--switch=1",
            "--switch=4",
            "--ncpu=0",
            "--nonsense",
            "stray",
            "--tsc-lag=9",
            "--tsc-lag=9,8",
            "--tsc-lag=0,-1",
            "--miss=f,0.5",
            "--miss=f,1.5,30",
            "--miss=,0.5,30",
            "--slow-clock=f,0.5,0",
            "--slow-clock=f,0.5,256",
        ] {
            assert!(Options::from_args([wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn tsc_lags_are_within_their_range_and_43_cycles_in_the_median() {
        let draw = |lag: TscLag, n: u32| lag.draw((f64::from(n % 100) / 100.0, f64::from(n / 100) / 100.0));
        let mut lags: Vec<u64> = (0..10_000).map(|n| draw(TscLag::REAL, n)).collect();
        lags.sort_unstable();
        assert_eq!((lags[0], lags[5_000], lags[9_999]), (39, 43, 60));
        let most = Options::from_args(["--tsc-lag=64,64"]).unwrap().tsc_lag;
        assert!((0..10_000).all(|n| draw(most, n) == 64));
    }
}
