#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| any_input::parts(data));
