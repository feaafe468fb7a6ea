//! See `store::superblock`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| isotherm_fuzz::store::superblock(data));
