//! Mounts the tiering file system without the command line. The soak runs it, and it is a template for programs that mount by themselves.
//!
//! ```text
//! cargo run -p isotherm-files --example mount -- FAST SLOW [TIER…] MOUNTPOINT
//! ```
//!
//! `$CHAOS` is the seed of a mover that moves files at random. `$PASSTHROUGH=1` lets the kernel read and write the files on the tiers
//! itself. `$WRITEBACK=1` lets the kernel cache written data. `$COPIES=1` copies files to the fast tier, too, and keeps ranges of those of
//! 64 KiB and more. `$HEADS` is the number of bytes of the beginning of each file that are kept there. The program ends when the file system
//! is unmounted.

use isotherm_files::fuse::Io;
use isotherm_files::heads::HeadSettings;
use isotherm_files::mount::{Options, mount};
use isotherm_files::ranges::{RANGE, RangeSettings};
use isotherm_files::store::Settings;
use std::path::PathBuf;
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut tiers: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let dir = tiers
        .pop()
        .ok_or("usage: mount FAST SLOW [TIER…] MOUNTPOINT")?;
    let has = |name: &str| std::env::var_os(name).is_some();
    let settings = Settings {
        tiers,
        marks: (100, 100),
        moves: false,
        copies: has("COPIES"),
        ranges: RangeSettings {
            percent: 1,
            from: RANGE,
        },
        heads: HeadSettings {
            bytes: (std::env::var("HEADS").ok().and_then(|s| s.parse().ok())).unwrap_or(0),
            ..HeadSettings::default()
        },
        chaos: std::env::var("CHAOS").ok().and_then(|s| s.parse().ok()),
        ..Settings::default()
    };
    let options = Options {
        io: if has("PASSTHROUGH") {
            Io::Passthrough
        } else if has("WRITEBACK") {
            Io::Writeback
        } else {
            Io::Cached
        },
        threads: 4,
        allow_other: true,
        read_only: false,
    };
    let mounted = mount(&settings, &dir, &options)?;
    println!("ready");
    while !mounted.is_over() {
        std::thread::sleep(Duration::from_millis(50));
    }
    mounted.unmount(Duration::from_secs(10))?;
    Ok(())
}
