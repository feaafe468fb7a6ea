//! See `words::config_toml`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    isotherm_fuzz::words::config_toml(data);
});
