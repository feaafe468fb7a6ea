//! See `classify::class_file`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| isotherm_fuzz::classify::class_file(data));
