//! See `store::journal_block`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| isotherm_fuzz::store::journal_block(data));
