//! See `store::record_decode`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| isotherm_fuzz::store::record_decode(data));
