//! The former member after a replacement.

use super::*;
use crate::MemberConfig;
use crate::config::{IoConfig, Size};

/// A former member that cannot be written any more is named in a message, and nothing else follows from it.
#[test]
fn a_former_member_that_cannot_be_erased_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let v = dir.path().join("v");
    let member = |name: &str, tier| MemberConfig {
        path: dir.path().join(name),
        tier,
        size: Some(Size(16 << 20)),
        ..MemberConfig::default()
    };
    let config = VolumeConfig {
        name: "v".into(),
        uuid: None,
        extent: Size(64 << 10),
        policy: "linear".into(),
        qos: Vec::new(),
        io: IoConfig::default(),
        members: vec![member("fast", 0), member("slow", 1)],
    };
    Volume::create(&v, config, false).expect("a volume");
    let opened = Volume::open(&v, OpenMode::ReadOnly).expect("opened");
    let sb = opened.opened.superblock.clone();
    drop(opened);
    let path = dir.path().join("slow");
    let before = std::fs::read(&path).expect("read");
    let how = OpenHow {
        read_only: true,
        ..OpenHow::default()
    };
    let device = Device::open(&path, how).expect("opened");
    let said = retire(&device, &sb, 1).expect("a message");
    assert!(
        said.contains("slow: its superblocks could not be erased (")
            && said.contains("no part of the volume any more"),
        "{said}"
    );
    drop(device);
    assert!(std::fs::read(&path).expect("read") == before);
    // One that can be written is not found as a member afterwards.
    let device = Device::open(&path, OpenHow::default()).expect("opened");
    assert_eq!(retire(&device, &sb, 1), None);
    let after = std::fs::read(&path).expect("read");
    let second = sb.copy_offset(MemberId(1)) as usize;
    for at in [0, second] {
        assert!(before[at..at + BLOCK].iter().any(|b| *b != 0));
        assert!(after[at..at + BLOCK].iter().all(|b| *b == 0));
    }
}
