//! libipt's block decoder and the files that it reads code from.

use std::ffi::{CString, c_char, c_int};
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

use model::{Avma, FileOffset};

use super::{RawImage, Status};
use crate::abi::{Block, Config, Event};

#[repr(C)]
struct RawBlockDecoder {
    _opaque: [u8; 0],
}

#[repr(C)]
struct RawSectionCache {
    _opaque: [u8; 0],
}

unsafe extern "C" {
    fn pt_iscache_alloc(name: *const c_char) -> *mut RawSectionCache;
    fn pt_iscache_free(cache: *mut RawSectionCache);
    fn pt_iscache_set_limit(cache: *mut RawSectionCache, limit: u64) -> c_int;
    fn pt_iscache_add_file(
        cache: *mut RawSectionCache,
        filename: *const c_char,
        offset: u64,
        size: u64,
        vaddr: u64,
    ) -> c_int;
    fn pt_image_alloc(name: *const c_char) -> *mut RawImage;
    fn pt_image_free(image: *mut RawImage);
    fn pt_image_add_cached(
        image: *mut RawImage,
        cache: *mut RawSectionCache,
        isid: c_int,
        address_space: *const std::ffi::c_void,
    ) -> c_int;
    fn pt_blk_alloc_decoder(config: *const Config) -> *mut RawBlockDecoder;
    fn pt_blk_free_decoder(decoder: *mut RawBlockDecoder);
    fn pt_blk_set_image(decoder: *mut RawBlockDecoder, image: *mut RawImage) -> c_int;
    fn pt_blk_sync_forward(decoder: *mut RawBlockDecoder) -> c_int;
    fn pt_blk_get_offset(decoder: *const RawBlockDecoder, offset: *mut u64) -> c_int;
    fn pt_blk_next(decoder: *mut RawBlockDecoder, block: *mut Block, size: usize) -> c_int;
    fn pt_blk_event(decoder: *mut RawBlockDecoder, event: *mut Event, size: usize) -> c_int;
    fn pt_blk_time(decoder: *mut RawBlockDecoder, time: *mut u64, mtc: *mut u32, cyc: *mut u32) -> c_int;
}

/// Mapped files that stay mapped, with their decoded blocks, when execution leaves them: more than any
/// recording has.
const KEPT_MAPPED_BYTES: u64 = 1 << 32;

/// Files of code where they are mapped, as libipt reads them fastest: it maps them itself, and keeps their
/// blocks.
pub(crate) struct FileImage {
    image: NonNull<RawImage>,
    cache: NonNull<RawSectionCache>,
}

impl FileImage {
    /// No code yet; `None` if libipt is out of memory.
    pub(crate) fn new() -> Option<Self> {
        // SAFETY: a name is optional; both are freed once, on drop or here.
        unsafe {
            let cache = NonNull::new(pt_iscache_alloc(std::ptr::null()))?;
            pt_iscache_set_limit(cache.as_ptr(), KEPT_MAPPED_BYTES);
            let Some(image) = NonNull::new(pt_image_alloc(std::ptr::null())) else {
                pt_iscache_free(cache.as_ptr());
                return None;
            };
            Some(Self { image, cache })
        }
    }

    /// Maps a part of a file; what it covers of earlier ones is replaced.  False if libipt does not take it.
    pub(crate) fn add(&mut self, file: &Path, offset: FileOffset, size: u64, start: Avma) -> bool {
        let Ok(name) = CString::new(file.as_os_str().as_bytes()) else { return false };
        // SAFETY: both are live, and C copies the name; no address space: it counts for all.
        unsafe {
            let isid = pt_iscache_add_file(self.cache.as_ptr(), name.as_ptr(), offset.0, size, start.0);
            let cache = self.cache.as_ptr();
            isid > 0 && pt_image_add_cached(self.image.as_ptr(), cache, isid, std::ptr::null()) == 0
        }
    }
}

impl Drop for FileImage {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`, freed once; decoders borrow the image, so none is left.
        unsafe {
            pt_image_free(self.image.as_ptr());
            pt_iscache_free(self.cache.as_ptr());
        }
    }
}

/// libipt's block decoder (`pt_blk_*`) over bytes of trace.
pub(crate) struct BlockDecoder<'a> {
    raw: NonNull<RawBlockDecoder>,
    /// C points to the bytes and to the image.
    _borrowed: PhantomData<(&'a [u8], &'a mut FileImage)>,
}

impl<'a> BlockDecoder<'a> {
    /// `config` without its bytes; `None` if libipt is out of memory or does not accept the configuration.
    pub(crate) fn new(mut config: Config, trace: &'a [u8], image: &'a mut FileImage) -> Option<Self> {
        let bytes = trace.as_ptr_range();
        (config.begin, config.end) = (bytes.start.cast_mut(), bytes.end.cast_mut());
        // SAFETY: `config` has its size in it and is copied; the bytes outlive the decoder (`'a`), which only
        // reads.
        let raw = NonNull::new(unsafe { pt_blk_alloc_decoder(&raw const config) })?;
        let decoder = Self { raw, _borrowed: PhantomData };
        // SAFETY: the image outlives the decoder, and is no other decoder's meanwhile (`'a`).
        let set = unsafe { pt_blk_set_image(raw.as_ptr(), image.image.as_ptr()) };
        (set >= 0).then_some(decoder)
    }

    /// Moves to the next PSB.
    pub(crate) fn sync_forward(&mut self) -> Status {
        // SAFETY: `raw` is a live decoder, here and below.
        Status(unsafe { pt_blk_sync_forward(self.raw.as_ptr()) })
    }

    /// How far packets have been read.
    pub(crate) fn offset(&self) -> u64 {
        let mut offset = 0;
        // SAFETY: C writes one number; on failure none.
        unsafe { pt_blk_get_offset(self.raw.as_ptr(), &raw mut offset) };
        offset
    }

    /// The next block; where it fails, as much of it as is known.
    pub(crate) fn next(&mut self, block: &mut Block) -> Status {
        // SAFETY: C writes at most `size` bytes of plain data.
        Status(unsafe { pt_blk_next(self.raw.as_ptr(), block, size_of::<Block>()) })
    }

    /// Takes the pending event.
    pub(crate) fn event(&mut self, event: &mut Event) -> Status {
        // SAFETY: C writes at most `size` bytes of plain data.
        Status(unsafe { pt_blk_event(self.raw.as_ptr(), event, size_of::<Event>()) })
    }

    /// The TSC, as far as libipt knows; `None` before the first TSC packet.
    pub(crate) fn time(&mut self) -> Option<u64> {
        let (mut time, mut mtc, mut cyc) = (0, 0, 0);
        // SAFETY: C writes three numbers.
        let status = unsafe { pt_blk_time(self.raw.as_ptr(), &raw mut time, &raw mut mtc, &raw mut cyc) };
        (status >= 0).then_some(time)
    }
}

impl Drop for BlockDecoder<'_> {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`, freed once, not used any more.
        unsafe { pt_blk_free_decoder(self.raw.as_ptr()) };
    }
}
