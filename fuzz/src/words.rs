//! What people and local peers write: descriptions of volumes, lines on the control socket, entries of a recording.

use isotherm_cli::control::entry::{ENTRY_BYTES, Entry};
use isotherm_cli::control::{Request, read_line};
use isotherm_live::VolumeConfig;
use std::path::Path;

/// A description that is right.
pub const CONFIG: &str = "name = \"v\"\nextent = \"64K\"\npolicy = \"greendm,PT=2\"\n[io]\nbuffers = \"16M\"\nspin_us = 5\n\
    [[members]]\npath = \"fast\"\ntier = 0\nsize = \"64M\"\n[[members]]\npath = \"slow\"\ntier = 1\nsize = \"1.5G\"\npaced = \"wd5000aaks\"\nspan = \"full\"\nstandby_s = 60\n";

/// Lines that are right.
pub const LINES: &str = "{\"cmd\":\"status\"}\n{\"cmd\":\"why\",\"offset\":4096}\n{\"cmd\":\"set\",\"values\":[[\"PT\",2.0]]}\n{\"cmd\":\"stop\"}\n";

/// Any bytes as a description. What is accepted must survive being written and read again. True if it was accepted.
pub fn config_toml(data: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(data) else {
        return false;
    };
    match VolumeConfig::parse(text, Path::new("v.toml")) {
        Err(e) => {
            assert!(
                e.to_string().starts_with("v.toml"),
                "an error without its file: {e}"
            );
            false
        }
        Ok(config) => {
            let written = toml::to_string(&config).expect("a checked description can be written");
            let again = VolumeConfig::parse(&written, Path::new("v.toml")).expect("its own words");
            assert_eq!(again, config);
            true
        }
    }
}

/// Any bytes from the control socket's peer. How many requests were understood.
pub fn control_socket(data: &[u8]) -> usize {
    let mut stream = data;
    let mut understood = 0;
    while let Ok(Some(line)) = read_line(&mut stream) {
        understood += usize::from(serde_json::from_slice::<Request>(&line).is_ok());
    }
    for chunk in data.chunks_exact(ENTRY_BYTES) {
        let bytes: [u8; ENTRY_BYTES] = std::array::from_fn(|i| chunk[i]);
        if let Some(e) = Entry::decode(&bytes) {
            assert_eq!(Entry::decode(&e.encode()), Some(e));
        }
    }
    understood
}
