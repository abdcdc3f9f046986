//! IP filters: from a symbol's name to addresses and to perf's text.

use std::ops::Range;

use model::Avma;

use crate::error::Error;
use crate::maps::Maps;

/// The code that is traced; everything if there are no ranges.
#[derive(Clone, Debug, Default)]
pub(crate) struct IpFilter {
    ranges: Vec<Range<Avma>>,
    /// As perf records it: `filter 0xOFFSET/0xSIZE@FILE,...`.
    pub(crate) text: String,
}

impl IpFilter {
    /// Resolves `SYMBOL` (of the program) and `FILE:SYMBOL`.
    pub(crate) fn resolve(filters: &[String], maps: &Maps) -> Result<Self, Error> {
        let mut resolved = Self::default();
        for filter in filters {
            let (range, text) =
                resolve(filter, maps).map_err(|what| Error::Filter { text: filter.clone(), what })?;
            resolved.ranges.push(range);
            if !resolved.text.is_empty() {
                resolved.text.push(',');
            }
            resolved.text.push_str(&text);
        }
        Ok(resolved)
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

fn resolve(filter: &str, maps: &Maps) -> Result<(Range<Avma>, String), &'static str> {
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
