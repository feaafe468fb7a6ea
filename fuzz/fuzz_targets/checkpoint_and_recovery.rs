//! See `store::checkpoint_and_recovery`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| isotherm_fuzz::store::checkpoint_and_recovery(data));
