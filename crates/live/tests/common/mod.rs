//! A volume on two files.
// Each test program uses only a part of this module.
#![allow(dead_code)]

pub mod fuse_ring;

use isotherm_live::config::{IoConfig, Size};
use isotherm_live::{MemberConfig, OpenMode, Server, Volume, VolumeConfig};
use std::path::Path;

/// The description of the volume `v` on the files `fast` and `slow` of a directory, which get these sizes in bytes. Extents have 64 KiB.
pub fn two_files(dir: &Path, policy: &str, fast: u64, slow: u64) -> VolumeConfig {
    let member = |name: &str, tier, bytes| MemberConfig {
        path: dir.join(name),
        tier,
        size: Some(Size(bytes)),
        ..MemberConfig::default()
    };
    VolumeConfig {
        name: "v".into(),
        uuid: None,
        extent: Size(64 << 10),
        policy: policy.into(),
        qos: Vec::new(),
        io: IoConfig {
            buffers: Size(8 << 20),
            ..IoConfig::default()
        },
        members: vec![member("fast", 0, fast), member("slow", 1, slow)],
    }
}

/// Creates the volume `v` in a directory, and serves it.
pub fn serve(dir: &Path, config: VolumeConfig) -> Server {
    let v = dir.join("v");
    Volume::create(&v, config, false).expect("a new volume");
    let volume = Volume::open(&v, OpenMode::ReadWrite).expect("the volume");
    volume.serve().expect("a server")
}
