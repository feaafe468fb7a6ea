//! See `events::file`. Inputs that begin with the magic number are files, others payloads of blocks.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    isotherm_fuzz::events::any(data);
});
