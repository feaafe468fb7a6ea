//! Members beside each other, and what the kernel says of the drive.

use super::super::{Member, device, one_drive};
use super::{Root, SSD, words};

#[test]
fn members_on_one_drive_are_named() {
    let root = Root::new();
    root.device("pci0/ata1/block/sda", "8:0", &[], SSD);
    root.device(
        "pci0/ata1/block/sda/sda1",
        "8:1",
        &[],
        "partition=1 start=2048 size=4096",
    );
    root.device(
        "pci0/ata1/block/sda/sda2",
        "8:2",
        &[],
        "partition=2 start=8192 size=4096",
    );
    let member = |name: &str, minor, is_flash| Member {
        volume: "v".into(),
        place: 0,
        path: name.into(),
        name: name.into(),
        is_flash,
        is_last: false,
        sleeps: false,
        extent: 65536,
        tree: Some(root.tree(8, minor)),
    };
    let said = |a, b| words(&one_drive(&[member("x", 1, a), member("y", 2, b)]));
    assert!(
        said(true, false)
            .starts_with("risk: is on the same drive as x: one fault takes both, and they wait")
    );
    assert!(said(true, true).contains("both journals"));
    // Two parts of one disk as slow members lose nothing that one part would not.
    assert_eq!(said(false, false), "");
}

#[test]
fn the_kernel_is_asked_about_the_drive() {
    let said = |number: &str, files: &str, drive: &str, is_flash| {
        let root = Root::new();
        root.device(&format!("pci0/{drive}/block/sdz"), "8:0", &[], files);
        root.device(
            &format!("pci0/{drive}/block/sdz/sdz1"),
            "8:1",
            &[],
            &format!("partition=1 size=2048 start={number}"),
        );
        words(&device::findings(&root.tree(8, 1), "x", is_flash))
    };
    let cut = said(
        "63",
        "queue/physical_block_size=4096 queue/write_cache=write~through",
        "usb1",
        false,
    );
    assert!(
        cut.contains("begins at byte 32256") && cut.contains("behind USB"),
        "{cut}"
    );
    let good = "queue/physical_block_size=4096 queue/write_cache=write~back";
    assert_eq!(said("2048", good, "ata1", false), "");
    assert!(said("2048", good, "ata1", true).starts_with("note: has a volatile write cache"));
    let smr = said(
        "2048",
        "queue/zoned=host-managed queue/rotational=1",
        "ata1",
        true,
    );
    assert!(
        smr.contains("wrong: is a host-managed") && smr.contains("is a disk"),
        "{smr}"
    );
    assert_eq!(said("0", "", "ata1", true), "");
}
