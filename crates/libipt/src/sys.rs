//! The one module that calls C: libipt's instruction flow decoder behind a safe interface, and its block
//! decoder in [`blocks`].
//!
//! What makes it safe: the trace bytes and the memory callback's context are borrowed for `'a` and live as
//! long as the decoder that points to them; libipt's decoders only read the bytes; all that C writes goes to
//! values that the caller owns, with their sizes; a decoder is used by one thread at a time.
#![allow(unsafe_code, reason = "calls into C")]

mod blocks;

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use model::Avma;

use crate::abi::{self, Config, Cpu, Errata, Event, Insn, Version};
use crate::memory::Memory;

pub(crate) use blocks::{BlockDecoder, FileImage};

#[repr(C)]
struct RawDecoder {
    _opaque: [u8; 0],
}

#[repr(C)]
struct RawImage {
    _opaque: [u8; 0],
}

type ReadMemory = unsafe extern "C" fn(*mut u8, usize, *const c_void, u64, *mut c_void) -> c_int;

#[link(name = "ipt")]
unsafe extern "C" {
    fn pt_library_version() -> Version;
    fn pt_cpu_errata(errata: *mut Errata, cpu: *const Cpu) -> c_int;
    fn pt_insn_alloc_decoder(config: *const Config) -> *mut RawDecoder;
    fn pt_insn_free_decoder(decoder: *mut RawDecoder);
    fn pt_insn_sync_forward(decoder: *mut RawDecoder) -> c_int;
    fn pt_insn_get_offset(decoder: *const RawDecoder, offset: *mut u64) -> c_int;
    fn pt_insn_get_sync_offset(decoder: *const RawDecoder, offset: *mut u64) -> c_int;
    fn pt_insn_get_image(decoder: *mut RawDecoder) -> *mut RawImage;
    fn pt_insn_time(decoder: *mut RawDecoder, time: *mut u64, mtc: *mut u32, cyc: *mut u32) -> c_int;
    fn pt_insn_next(decoder: *mut RawDecoder, insn: *mut Insn, size: usize) -> c_int;
    fn pt_insn_event(decoder: *mut RawDecoder, event: *mut Event, size: usize) -> c_int;
    fn pt_image_set_callback(
        image: *mut RawImage,
        callback: Option<ReadMemory>,
        context: *mut c_void,
    ) -> c_int;
}

/// Major, minor and patch number of the library that is linked.
pub(crate) fn version() -> (u8, u8, u16) {
    // SAFETY: no arguments, and the result is plain data.
    let version = unsafe { pt_library_version() };
    (version.major, version.minor, version.patch)
}

/// The errata of a CPU; none if libipt does not know it.
pub(crate) fn errata(cpu: &Cpu) -> Errata {
    let mut errata = Errata::default();
    // SAFETY: both point to values of the size that C expects, for the time of the call.
    let result = unsafe { pt_cpu_errata(&raw mut errata, cpu) };
    if result < 0 { Errata::default() } else { errata }
}

/// What a call to libipt gave: a bit vector of [`abi::status`], or an [`abi::error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Status(c_int);

impl Status {
    /// The error code.
    pub(crate) fn error(self) -> Option<c_int> {
        (self.0 < 0).then(|| self.0.saturating_neg())
    }

    fn has(self, bit: c_int) -> bool {
        self.0 >= 0 && self.0 & bit != 0
    }

    /// [`InsnDecoder::event`] has one.
    pub(crate) fn event_pending(self) -> bool {
        self.has(abi::status::EVENT_PENDING)
    }

    /// Tracing is on at the decoder's position.
    pub(crate) fn is_enabled(self) -> bool {
        self.0 >= 0 && !self.has(abi::status::IP_SUPPRESSED)
    }

    /// All packets are used up: only code that needs none follows.
    pub(crate) fn is_at_end(self) -> bool {
        self.has(abi::status::EOS)
    }
}

/// libipt's instruction flow decoder (`pt_insn_*`) over bytes of trace.
pub(crate) struct InsnDecoder<'a> {
    raw: NonNull<RawDecoder>,
    /// C points to it.
    memory: Box<Memory<'a>>,
}

impl<'a> InsnDecoder<'a> {
    /// `config` without its bytes; `None` if libipt is out of memory or does not accept the configuration.
    pub(crate) fn new(mut config: Config, trace: &'a [u8], memory: Memory<'a>) -> Option<Self> {
        let bytes = trace.as_ptr_range();
        (config.begin, config.end) = (bytes.start.cast_mut(), bytes.end.cast_mut());
        let memory = Box::new(memory);
        // SAFETY: `config` has its size in it and is copied; the bytes outlive the decoder (`'a`), which only
        // reads.
        let raw = NonNull::new(unsafe { pt_insn_alloc_decoder(&raw const config) })?;
        let decoder = Self { raw, memory };
        let context: *const Memory<'a> = &raw const *decoder.memory;
        // SAFETY: the image is the decoder's own; the context is on the heap until the decoder is freed.
        let set = unsafe {
            let image = pt_insn_get_image(raw.as_ptr());
            pt_image_set_callback(image, Some(read_memory), context.cast_mut().cast())
        };
        (set >= 0).then_some(decoder)
    }

    /// Where code is read from.
    pub(crate) fn memory(&self) -> &Memory<'a> {
        &self.memory
    }

    /// Moves to the next PSB.
    pub(crate) fn sync_forward(&mut self) -> Status {
        // SAFETY: `raw` is a live decoder, here and below.
        Status(unsafe { pt_insn_sync_forward(self.raw.as_ptr()) })
    }

    /// The next instruction; where it fails, as much of it as is known.
    pub(crate) fn next(&mut self) -> (Insn, Status) {
        let mut insn = Insn::default();
        // SAFETY: C writes at most `size` bytes of plain data.
        let status = unsafe { pt_insn_next(self.raw.as_ptr(), &raw mut insn, size_of::<Insn>()) };
        (insn, Status(status))
    }

    /// The pending event.
    pub(crate) fn event(&mut self) -> (Event, Status) {
        let mut event = Event::default();
        // SAFETY: C writes at most `size` bytes of plain data.
        let status = unsafe { pt_insn_event(self.raw.as_ptr(), &raw mut event, size_of::<Event>()) };
        (event, Status(status))
    }

    /// How far packets have been read, which may be ahead of the instruction at hand.
    pub(crate) fn offset(&self) -> u64 {
        let mut offset = 0;
        // SAFETY: C writes one number; on failure none.
        unsafe { pt_insn_get_offset(self.raw.as_ptr(), &raw mut offset) };
        offset
    }

    /// The PSB that it synchronised at last.
    pub(crate) fn sync_offset(&self) -> u64 {
        let mut offset = 0;
        // SAFETY: C writes one number; on failure none.
        unsafe { pt_insn_get_sync_offset(self.raw.as_ptr(), &raw mut offset) };
        offset
    }

    /// The TSC, as far as libipt knows; `None` before the first TSC packet.
    pub(crate) fn time(&mut self) -> Option<u64> {
        let (mut time, mut mtc, mut cyc) = (0, 0, 0);
        // SAFETY: C writes three numbers.
        let status = unsafe { pt_insn_time(self.raw.as_ptr(), &raw mut time, &raw mut mtc, &raw mut cyc) };
        (status >= 0).then_some(time)
    }
}

impl Drop for InsnDecoder<'_> {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`, freed once, not used any more.
        unsafe { pt_insn_free_decoder(self.raw.as_ptr()) };
    }
}

/// libipt's callback: copies up to `size` bytes of code at `ip` to `buffer`.
///
/// # Safety
/// `buffer` has room for `size` bytes, and `context` points to the decoder's [`Memory`].
unsafe extern "C" fn read_memory(
    buffer: *mut u8,
    size: usize,
    _address_space: *const c_void,
    ip: u64,
    context: *mut c_void,
) -> c_int {
    // SAFETY: the context was set by `InsnDecoder::new`, and only shared references to it exist.
    let memory = unsafe { &*context.cast_const().cast::<Memory<'_>>() };
    // A panic must not cross C.
    let Ok(read) = catch_unwind(AssertUnwindSafe(|| memory.read(Avma(ip)))) else {
        return -abi::error::INTERNAL;
    };
    let Some(bytes) = read else { return -abi::error::NOMAP };
    let count = size.min(bytes.len());
    // SAFETY: `count` is at most the length of both, which do not overlap: one is C's, the other the image's.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), buffer, count) };
    c_int::try_from(count).unwrap_or(-abi::error::INTERNAL)
}
