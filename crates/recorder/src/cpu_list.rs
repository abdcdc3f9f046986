//! Lists of CPUs: `0-3,8`.

use std::fmt;
use std::fs;
use std::path::Path;
use std::str::FromStr;

use model::Cpu;

/// More than any kernel has (`CONFIG_NR_CPUS`).
const MOST: u32 = 1 << 13;

/// CPUs, each once, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuList(pub Vec<Cpu>);

impl CpuList {
    /// The CPUs that run; `sysfs` is `/sys`.
    #[must_use]
    pub fn online(sysfs: &Path) -> Self {
        let text = fs::read_to_string(sysfs.join("devices/system/cpu/online")).ok();
        text.and_then(|text| text.trim().parse().ok()).unwrap_or_else(|| Self(vec![Cpu(0)]))
    }
}

impl CpuList {
    /// Those of `self` that are not in `others`.
    #[must_use]
    pub fn without(&self, others: &Self) -> Self {
        Self(self.0.iter().filter(|cpu| !others.0.contains(cpu)).copied().collect())
    }
}

impl FromStr for CpuList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |part: &str| {
            let number = part.trim().parse::<u32>().ok().filter(|cpu| *cpu < MOST);
            number.ok_or_else(|| format!("`{part}` is no CPU (examples: 2  0-3,8)"))
        };
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(format!("`{part}` is an empty range"));
            }
            cpus.extend((first..=last).map(Cpu));
        }
        cpus.sort_unstable();
        cpus.dedup();
        Ok(Self(cpus))
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.0.iter().map(|cpu| cpu.0.to_string()).collect();
        f.write_str(&numbers.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        let list = |text: &str| text.parse::<CpuList>().map(|list| list.to_string());
        assert_eq!(list("3,0-1,1").as_deref(), Ok("0,1,3"));
        let [all, some]: [CpuList; 2] = ["0-3", "1,3"].map(|text| text.parse().unwrap());
        assert_eq!((all.without(&some).to_string(), some.without(&all).0.len()), ("0,2".to_owned(), 0));
        for wrong in ["", "x", "3-1", "-1", "0-99999"] {
            assert!(list(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn online() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(CpuList::online(root.path()).0, [Cpu(0)]);
        fs::create_dir_all(root.path().join("devices/system/cpu")).unwrap();
        fs::write(root.path().join("devices/system/cpu/online"), "0-2\n").unwrap();
        assert_eq!(CpuList::online(root.path()).0, [Cpu(0), Cpu(1), Cpu(2)]);
    }
}
