//! IP filters: from a symbol's name to addresses and to perf's text.

use std::ops::Range;

use model::Avma;

use crate::error::Error;
use crate::kernel::Kernel;
use crate::maps::Maps;
use crate::options::Options;

/// The code that is traced; everything if there are no ranges.
#[derive(Clone, Debug, Default)]
pub(crate) struct IpFilter {
    ranges: Vec<Range<Avma>>,
    /// The filter as perf records it: `filter 0xOFFSET/0xSIZE@FILE,...`.
    pub(crate) text: String,
}

impl IpFilter {
    /// Resolves `SYMBOL` (of the program), `FILE:SYMBOL` and the kernel's.
    pub(crate) fn resolve(options: &Options, maps: &Maps, kernel: Option<&Kernel>) -> Result<Self, Error> {
        let mut resolved = Self::default();
        let refused = |filter: &String| {
            let text = filter.clone();
            move |what| Error::Filter { text, what }
        };
        for filter in &options.filter {
            resolved.add(resolve(filter, maps).map_err(refused(filter))?);
        }
        if let Some(symbol) = &options.kernel_filter {
            let function = kernel.and_then(|kernel| kernel.function(symbol));
            let (start, size) = function.ok_or("no such function of the kernel").map_err(refused(symbol))?;
            resolved.add((start..start.plus(size), format!("filter {start:#x}/{size:#x}", start = start.0)));
        }
        Ok(resolved)
    }

    fn add(&mut self, (range, text): (Range<Avma>, String)) {
        self.ranges.push(range);
        if !self.text.is_empty() {
            self.text.push(',');
        }
        self.text.push_str(&text);
    }

    /// Everything is traced.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// An instruction here is traced.
    #[inline]
    pub(crate) fn contains(&self, ip: Avma) -> bool {
        self.ranges.is_empty() || self.ranges.iter().any(|range| range.contains(&ip))
    }
}

/// Where a function is, as `SYMBOL` of the program or `FILE:SYMBOL`, and the filter on it.
pub(crate) fn resolve(filter: &str, maps: &Maps) -> Result<(Range<Avma>, String), &'static str> {
    let (file, symbol) = filter.rsplit_once(':').unwrap_or(("", filter));
    let path = if file.is_empty() {
        &maps.executable
    } else {
        let mapping = maps.mappings.iter().find(|mapping| mapping.path.ends_with(file));
        &mapping.ok_or("no such file is mapped")?.path
    };
    let elf = maps.elf(path).ok_or("the file is not ELF")?;
    let &(address, size) = elf.names.get(symbol).ok_or("no such symbol")?;
    let file_offset = elf.file_offset_of(address).ok_or("the symbol is in no segment")?;
    let mapping = maps
        .mappings
        .iter()
        .find(|m| m.path == *path && file_offset.wrapping_sub(m.file_offset) < m.len)
        .ok_or("the symbol is not mapped")?;
    let start = mapping.start().plus(file_offset - mapping.file_offset);
    Ok((start..start.plus(size), format!("filter {file_offset:#x}/{size:#x}@{path}")))
}
