//! Which function is at an address: mappings from the recording, functions from the mapped files.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::ops::Range;
use std::path::Path;

use model::{Avma, Ns, Tid};

use super::Error;
use super::instruction::call_len;
use super::symbols::Object;

/// Index of a function in [`Code`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FunctionIndex(u32);

impl FunctionIndex {
    /// Code that no mapping explains; also what children without a function have.
    pub(super) const UNKNOWN: Self = Self(0);
}

/// What kind of code stands at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Symbol,
    /// A function that only the unwind tables have.
    Range,
    /// Between all functions.
    Unnamed,
    Plt,
    /// Between symbols of the dynamic loader, which is where the lazy binder is.
    Loader,
}

/// A function of the traced program.
#[derive(Clone, Debug)]
pub(super) struct CodeFunction {
    pub(super) name: String,
    object: Option<usize>,
    /// First instruction, if it is known.
    pub(super) entry: Option<Avma>,
    pub(super) what: What,
}

#[derive(Clone, Debug)]
struct CodeMapping {
    addresses: Range<u64>,
    file_offset: u64,
    object: usize,
    since: Ns,
}

/// Distinguishes the functions of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Symbol(u64),
    Range(u64),
    /// After the function that starts here.
    After(u64),
    Plt,
}

/// Direct-mapped cache from an address to an answer about it.
#[derive(Clone, Debug)]
struct Cache<T>(Vec<(Avma, T)>);

impl<T: Copy> Cache<T> {
    const SLOTS: usize = 1 << 16;

    fn new(none: T) -> Self {
        Self(vec![(Avma(0), none); Self::SLOTS])
    }

    fn slot(ip: Avma) -> usize {
        (ip.0 ^ ip.0 >> 16) as usize % Self::SLOTS
    }

    fn get(&self, ip: Avma) -> Option<T> {
        let (key, value) = self.0[Self::slot(ip)];
        (key == ip).then_some(value)
    }

    fn put(&mut self, ip: Avma, value: T) -> T {
        self.0[Self::slot(ip)] = (ip, value);
        value
    }
}

/// The code of the traced program.
#[derive(Clone, Debug)]
pub(super) struct Code {
    /// By time.
    mappings: Vec<CodeMapping>,
    /// Those of them that are there by now.
    mapped: usize,
    /// A mapping takes the place of an older one.
    is_replaced: bool,
    objects: Vec<Object>,
    functions: Vec<CodeFunction>,
    /// Threads that were made, or executed a new program, while it was recorded.
    born: HashSet<Tid>,
    indices: HashMap<(usize, Key), FunctionIndex>,
    function_cache: Cache<FunctionIndex>,
    return_cache: Cache<Avma>,
}

impl Code {
    /// Reads the executable mappings of a recording's MMAP2 records, and the mapped files.
    pub(super) fn load(recording: &Path) -> Result<Self, Error> {
        let data = fs::read(recording).map_err(|source| Error::Io { path: recording.into(), source })?;
        let (maps, born) = records(&data).ok_or_else(|| Error::Recording { path: recording.into() })?;
        let unknown =
            CodeFunction { name: "[unknown]".into(), object: None, entry: None, what: What::Unnamed };
        let mut code = Self {
            mappings: vec![],
            mapped: 0,
            is_replaced: false,
            objects: vec![],
            functions: vec![unknown],
            born,
            indices: HashMap::new(),
            function_cache: Cache::new(FunctionIndex::UNKNOWN),
            return_cache: Cache::new(Avma(0)),
        };
        let mut known: HashMap<String, Option<usize>> = HashMap::new();
        for MappingRecord { addresses, file_offset, path, since } in maps {
            let object = *known.entry(path).or_insert_with_key(|path| {
                code.objects.push(Object::load(path)?);
                Some(code.objects.len() - 1)
            });
            let Some(object) = object else { continue };
            let overlaps =
                |m: &CodeMapping| m.addresses.start < addresses.end && addresses.start < m.addresses.end;
            code.is_replaced |= code.mappings.iter().any(overlaps);
            code.mappings.push(CodeMapping { addresses, file_offset, object, since });
        }
        code.mapped = code.mappings.len();
        Ok(code)
    }

    /// The code of one object that is mapped where it is linked; `born`: see [`Self::is_born`].
    #[cfg(test)]
    pub(super) fn of(object: Object, born: &[Tid]) -> Self {
        let unknown =
            CodeFunction { name: "[unknown]".into(), object: None, entry: None, what: What::Unnamed };
        let mapping = CodeMapping { addresses: 0..1 << 32, file_offset: 0, object: 0, since: Ns(0) };
        Self {
            mappings: vec![mapping],
            mapped: 1,
            is_replaced: false,
            objects: vec![object],
            functions: vec![unknown],
            born: born.iter().copied().collect(),
            indices: HashMap::new(),
            function_cache: Cache::new(FunctionIndex::UNKNOWN),
            return_cache: Cache::new(Avma(0)),
        }
    }

    /// Adds a kernel: `path` is its `vmlinux`, and its text runs at `start`.
    pub(super) fn add_kernel(&mut self, path: &Path, start: Avma) -> Result<(), Error> {
        const TEXT_MAX: u64 = 1 << 30;
        let no_kernel = || Error::Recording { path: path.into() };
        let object = Object::load(path.to_str().ok_or_else(no_kernel)?).ok_or_else(no_kernel)?;
        let text = object.address_of_name("_text").ok_or_else(no_kernel)?;
        let file_offset = object.offset_of_address(text).ok_or_else(no_kernel)?;
        let addresses = start.0..start.0.saturating_add(TEXT_MAX);
        self.objects.push(object);
        let mapping = CodeMapping { addresses, file_offset, object: self.objects.len() - 1, since: Ns(0) };
        self.mappings.insert(0, mapping);
        self.mapped += 1;
        Ok(())
    }

    /// The function is one of the kernel's.
    pub(super) fn is_of_kernel(&self, function: FunctionIndex) -> bool {
        self.get(function).entry.is_some_and(Avma::is_kernel)
    }

    /// Answers are about this time from here on.
    pub(super) fn at(&mut self, now: Ns) {
        if !self.is_replaced {
            return;
        }
        let mapped = self.mappings.partition_point(|mapping| mapping.since <= now);
        if mapped != self.mapped {
            self.mapped = mapped;
            self.function_cache = Cache::new(FunctionIndex::UNKNOWN);
            self.return_cache = Cache::new(Avma(0));
        }
    }

    pub(super) fn get(&self, function: FunctionIndex) -> &CodeFunction {
        &self.functions[function.0 as usize]
    }

    /// The recording has the thread from its first instruction on.
    pub(super) fn is_born(&self, tid: Tid) -> bool {
        self.born.contains(&tid)
    }

    /// Path of the file that a function is in.
    pub(super) fn object_path(&self, function: FunctionIndex) -> &str {
        self.get(function).object.map_or("", |o| &self.objects[o].path)
    }

    pub(super) fn same_object(&self, a: FunctionIndex, b: FunctionIndex) -> bool {
        self.get(a).object == self.get(b).object
    }

    /// `ip` is the first instruction of `function`.
    pub(super) fn is_entry(&self, function: FunctionIndex, ip: Avma) -> bool {
        self.get(function).entry == Some(ip)
    }

    /// A call at `site` of `to`, in `function`, is of a place inside the calling function: part of it.
    pub(super) fn is_inner_call(&mut self, site: Avma, function: FunctionIndex, to: Avma) -> bool {
        let is_function = matches!(self.get(function).what, What::Symbol | What::Range);
        is_function && !self.is_entry(function, to) && function == self.function(site)
    }

    /// Object and file offset.
    fn place(&self, ip: Avma) -> Option<(usize, u64)> {
        let mapped = self.mappings.get(..self.mapped)?;
        let map = mapped.iter().rev().find(|m| m.addresses.contains(&ip.0))?;
        Some((map.object, ip.0 - map.addresses.start + map.file_offset))
    }

    fn bytes(&self, ip: Avma) -> &[u8] {
        self.place(ip).map_or(&[], |(object, offset)| self.objects[object].bytes_at(offset))
    }

    /// The function that an instruction belongs to; `f.cold` is `f`.
    pub(super) fn function(&mut self, ip: Avma) -> FunctionIndex {
        if let Some(known) = self.function_cache.get(ip) {
            return known;
        }
        let place = self.place(ip);
        let found = place.and_then(|(object, offset)| self.function_in(object, offset, ip));
        self.function_cache.put(ip, found.unwrap_or(FunctionIndex::UNKNOWN))
    }

    /// The function at an offset of an object that is mapped at `ip`.
    fn function_in(&mut self, object: usize, offset: u64, ip: Avma) -> Option<FunctionIndex> {
        let (key, function) = self.look_up(object, offset, ip)?;
        let index = self.indices.entry((object, key)).or_insert_with(|| {
            self.functions.push(function);
            FunctionIndex(self.functions.len() as u32 - 1)
        });
        Some(*index)
    }

    fn look_up(&self, index: usize, offset: u64, ip: Avma) -> Option<(Key, CodeFunction)> {
        let object = &self.objects[index];
        let address = object.address_of_offset(offset)?;
        let function = |name: String, entry, what| CodeFunction { name, object: Some(index), entry, what };
        let mapped_at = |start: u64| Avma(ip.0.wrapping_sub(address).wrapping_add(start));
        if let Some(part) = object.symbol_at(address) {
            let whole = object.whole(part);
            let found = function(whole.name.clone(), Some(mapped_at(whole.address)), What::Symbol);
            return Some((Key::Symbol(whole.address), found));
        }
        let file = object.file_name();
        if object.is_plt(address) {
            return Some((Key::Plt, function(format!("[plt {file}]"), None, What::Plt)));
        }
        if let Some(range) = object.range_at(address) {
            let entry = range.is_entry.then(|| mapped_at(range.start));
            let found = function(format!("{file}+{:#x}", range.start), entry, What::Range);
            return Some((Key::Range(range.start), found));
        }
        let symbol = object.symbol_before(address).map(|s| s.address);
        let after = object.range_before(address).map(|r| r.start).max(symbol).unwrap_or(0);
        let what = if object.is_dynamic_loader() { What::Loader } else { What::Unnamed };
        Some((Key::After(after), function(format!("[{file} after {after:#x}]"), None, what)))
    }

    /// The return address of the call at `site`.
    pub(super) fn after_call(&mut self, site: Avma) -> Avma {
        if let Some(known) = self.return_cache.get(site) {
            return known;
        }
        let after = site.plus(call_len(self.bytes(site)).unwrap_or(5));
        self.return_cache.put(site, after)
    }

    /// The call that returns to `to`; `hint` is known to have led there. 0: there is no call, as in front of
    /// the restorer of signals.
    pub(super) fn call_before(&self, to: Avma, hint: Avma) -> Avma {
        let hinted = to.minus(hint);
        if (1..16).contains(&hinted) && self.is_call(to, hinted) {
            return hint;
        }
        self.len_of_call_before(to).map_or(Avma(0), |len| Avma(to.0.wrapping_sub(len)))
    }

    /// A call may return to `ip`.
    pub(super) fn is_after_call(&self, ip: Avma) -> bool {
        self.len_of_call_before(ip).is_some()
    }

    /// An exception goes on at `pad` that comes out of the call which returns to `ret`.
    pub(super) fn has_pad(&self, ret: Avma, pad: Avma) -> bool {
        let linked = |ip: Avma| {
            let (object, offset) = self.place(ip)?;
            Some((object, self.objects[object].address_of_offset(offset)?))
        };
        let call = linked(Avma(ret.0.wrapping_sub(1)));
        let of_call = call.and_then(|(object, at)| Some((object, self.objects[object].pad_of_call(at)?)));
        of_call.is_some() && of_call == linked(pad)
    }

    /// A landing pad of exceptions begins at `ip`.
    pub(super) fn is_pad(&self, ip: Avma) -> bool {
        let Some((object, offset)) = self.place(ip) else { return false };
        let object = &self.objects[object];
        object.address_of_offset(offset).is_some_and(|at| object.is_pad(at))
    }

    fn len_of_call_before(&self, to: Avma) -> Option<u64> {
        // Most frequent lengths first.
        [5, 6, 3, 7, 4, 2, 8].into_iter().find(|&len| self.is_call(to, len))
    }

    /// A signal handler returns to `ip`: `mov $15, %rax` (or `%eax`), `syscall`.
    pub(super) fn is_restorer(&self, ip: Avma) -> bool {
        let code = self.bytes(ip);
        let number = code.strip_prefix(&[0x48, 0xc7, 0xc0]).or(code.strip_prefix(&[0xb8]));
        number.is_some_and(|rest| rest.starts_with(&[15, 0, 0, 0, 0x0f, 0x05]))
    }

    /// A call of `len` bytes ends at `to`.
    fn is_call(&self, to: Avma, len: u64) -> bool {
        call_len(self.bytes(Avma(to.0.wrapping_sub(len)))) == Some(len)
    }

    /// The function named `0xADDRESS`, `symbol`, `FILE:symbol`, or by a C++ identifier that only one mangled
    /// symbol contains.
    pub(super) fn find(&mut self, text: &str) -> Result<FunctionIndex, Error> {
        if let Some(hex) = text.strip_prefix("0x") {
            let ip = u64::from_str_radix(hex, 16).map_err(|_| Error::NoFunction(text.into()))?;
            return Ok(self.function(Avma(ip)));
        }
        let (file, name) = match text.rsplit_once(':') {
            Some((file, name)) if !file.ends_with(':') => (file, name),
            _ => ("", text),
        };
        let objects = || self.objects.iter().enumerate().filter(|(_, o)| o.path.ends_with(file));
        let exact = objects().find_map(|(i, o)| Some((i, o.address_of_name(name)?)));
        let (object, address) = match exact {
            Some(found) => found,
            None => {
                let near: Vec<_> =
                    objects().flat_map(|(i, o)| o.mangled(name).map(move |s| (i, s))).collect();
                match near[..] {
                    [] => return Err(Error::NoFunction(text.into())),
                    [(object, symbol)] => (object, symbol.address),
                    _ => {
                        let names = near.iter().map(|(_, s)| s.name.clone()).collect();
                        return Err(Error::Ambiguous { name: text.into(), candidates: names });
                    }
                }
            }
        };
        let offset = self.objects[object].offset_of_address(address);
        let mapped = |m: &CodeMapping| {
            let inside = offset?.checked_sub(m.file_offset)?;
            let ip = m.addresses.start + inside;
            (m.object == object && ip < m.addresses.end).then_some(Avma(ip))
        };
        let not_mapped = || Error::NotMapped(text.into());
        let (Some(ip), Some(offset)) = (self.mappings.iter().find_map(mapped), offset) else {
            return Err(not_mapped());
        };
        self.function_in(object, offset, ip).ok_or_else(not_mapped)
    }
}

/// An MMAP2 record.
struct MappingRecord {
    addresses: Range<u64>,
    file_offset: u64,
    path: String,
    since: Ns,
}

/// Every MMAP2 record, and the threads of FORK and exec records, but for threads with events that were opened
/// later; `None` if this is no perf.data file.
fn records(data: &[u8]) -> Option<(Vec<MappingRecord>, HashSet<Tid>)> {
    const COMM: u32 = 3;
    const FORK: u32 = 7;
    const MMAP2: u32 = 10;
    const ID_INDEX: u32 = 69;
    const AUXTRACE: u32 = 71;
    const MISC_DATA: u16 = 1 << 13;
    const MISC_COMM_EXEC: u16 = 1 << 13;
    if !data.starts_with(b"PERFILE2") {
        return None;
    }
    let start = usize::try_from(u64_at(data, 40)?).ok()?;
    let len = usize::try_from(u64_at(data, 48)?).ok()?;
    let mut records = data.get(start..)?.get(..len)?;
    let (mut maps, mut born, mut late) = (vec![], HashSet::new(), HashSet::new());
    while let Some((head, _)) = records.split_first_chunk::<8>() {
        let record_type = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        let misc = u16::from_le_bytes([head[4], head[5]]);
        let mut size = usize::from(u16::from_le_bytes([head[6], head[7]]));
        let record = records.get(..size)?;
        if record_type == MMAP2 && misc & MISC_DATA == 0 {
            let start = u64_at(record, 16)?;
            let name = record.get(72..)?.split(|&b| b == 0).next()?;
            let end = start.checked_add(u64_at(record, 24)?)?;
            maps.push(MappingRecord {
                addresses: start..end,
                file_offset: u64_at(record, 32)?,
                path: String::from_utf8_lossy(name).into_owned(),
                since: Ns(u64_at(record, size.checked_sub(24)?)?), // ids: time, cpu, id
            });
        }
        if record_type == COMM && misc & MISC_COMM_EXEC != 0 {
            born.insert(Tid(u64_at(record, 12)? as i32));
        }
        if record_type == FORK {
            // Of a thread that was there before, perf makes up a record at time 0.
            let (tid, time) = (Tid(u64_at(record, 16)? as i32), u64_at(record, 24)?);
            born.extend((time > 0).then_some(tid));
        }
        // A recorder with one buffer for each thread opens those of newborns when it has read a FORK.
        if record_type == ID_INDEX && !born.is_empty() {
            let entries = record.get(16..)?.chunks_exact(32);
            late.extend(entries.filter_map(|entry| Some(Tid(u64_at(entry, 24)? as i32))));
        }
        if record_type == AUXTRACE {
            size = size.checked_add(usize::try_from(u64_at(record, 8)?).ok()?)?; // its payload follows
        }
        records = records.get(size.max(8)..)?;
    }
    born.retain(|tid| !late.contains(tid));
    Some((maps, born))
}

fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    data.get(at..)?.first_chunk().map(|b| u64::from_le_bytes(*b))
}
