//! What a recording is aimed at: the functions of `-f` and `-a` in what runs now, and the ranges of `-i`.

use anyhow::Result;
use image::FunctionMatch;
use recorder::{IpRange, Pmu, Proc};

use crate::config::ReportConfig;
use crate::ip_ranges::{self, Chosen};
use crate::live_code::{Known, LiveCode};
use crate::record_config::RecordConfig;
use crate::regions;
use crate::target::{self, Remarks};

/// What is known before anything is recorded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Aim {
    /// The functions, and the ancestor behind them; empty if that is not known yet.
    pub(crate) functions: Vec<FunctionPlace>,
    /// The IP filter; `None`: there is no -i, or it cannot be decided yet.
    pub(crate) filter: Option<Chosen>,
}

impl Aim {
    /// The ranges of the IP filter; empty: everything is traced.
    pub(crate) fn ranges(&self) -> &[IpRange] {
        match &self.filter {
            Some(Chosen::Ranges { ranges, .. }) => ranges,
            Some(Chosen::Everything { .. }) | None => &[],
        }
    }
}

/// Where a function is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FunctionPlace {
    /// Its name, with parameter types.
    pub(crate) name: String,
    /// The object file, by its process's name for it.
    pub(crate) object: String,
    /// File offset and size of each part, the entry's first.
    pub(crate) parts: Vec<(u64, u64)>,
}

impl Aim {
    /// Of a command line.
    ///
    /// # Errors
    /// No code has the function, or the IP filter cannot have it: found out now, not when all is recorded.
    pub(crate) fn of(config: &RecordConfig, pmu: &Pmu, proc: &Proc) -> Result<Self> {
        match &config.report {
            Some(report) => Self::at(config, report, pmu, proc),
            None => Ok(Self::default()),
        }
    }

    fn at(config: &RecordConfig, report: &ReportConfig, pmu: &Pmu, proc: &Proc) -> Result<Self> {
        let mut code = match LiveCode::of(&config.request.target, proc, report.calls.object.as_deref()) {
            Known::Code(code) => code,
            // What is not readable cannot be recorded either, and the recorder says why.
            Known::TooMuch | Known::NotReadable => return Ok(Self::default()),
        };
        if !config.ip_filter && !code.is_complete() {
            return Ok(Self::default());
        }
        regions::add(&mut code.image, &report.calls, Remarks::Later)?;
        let wanted = target::wanted(&code.image, &report.calls, Remarks::Later)?;
        let functions = target::with_code(&code.image, &wanted);
        let ancestor = match &report.calls.ancestor {
            Some(ancestor) => {
                Some(target::ancestor(&code.image, &report.calls, &ancestor.function, Remarks::Later)?)
            }
            None => None,
        };
        let place = |function: &FunctionMatch| FunctionPlace {
            name: function.full_name.clone(),
            object: function.object_name.clone(),
            parts: code
                .image
                .function_file_ranges(function.id)
                .into_iter()
                .map(|(start, bytes)| (start.0, bytes))
                .collect(),
        };
        let places = functions.iter().chain(&ancestor).map(place).collect();
        if !config.ip_filter {
            return Ok(Self { functions: places, filter: None });
        }
        let chosen = ip_ranges::choose(&code, &functions, ancestor.as_ref(), pmu.address_filters, proc)?;
        Ok(Self { functions: places, filter: Some(chosen) })
    }
}
