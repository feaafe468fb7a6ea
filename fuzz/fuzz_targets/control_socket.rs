//! See `words::control_socket`.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    isotherm_fuzz::words::control_socket(data);
});
