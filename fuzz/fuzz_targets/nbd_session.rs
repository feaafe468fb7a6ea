//! See `nbd::session`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    isotherm_fuzz::nbd::session(data);
});
