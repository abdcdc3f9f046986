#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| any_input::flow(data));

// Half of the time packets are changed, half of the time bytes.
libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    if seed & 1 == 0 {
        any_input::mutate_stream(data, size, max_size, seed)
    } else {
        libfuzzer_sys::fuzzer_mutate(data, size, max_size)
    }
});
