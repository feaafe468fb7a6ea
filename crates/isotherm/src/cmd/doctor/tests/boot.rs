//! What the next boot opens, and who else reads the members.

use super::{Root, words};
use std::fs;

#[test]
fn what_is_closed_after_the_next_boot_is_named() {
    let root = Root::new();
    root.mirror("");
    let luks = "dm/name=fast dm/uuid=CRYPT-LUKS2-f6a960c7ec1343d9b099a34476f36087-fast";
    root.device("virtual/block/dm-0", "252:0", &["virtual/block/md0"], luks);
    root.device(
        "virtual/block/dm-1",
        "252:1",
        &["virtual/block/md0"],
        "dm/name=sums dm/uuid=CRYPT-INTEGRITY-sums",
    );
    let crypt = || {
        let (found, unknown) = root.boot(252, 0);
        assert_eq!(unknown, [""; 0]);
        (
            words(&found),
            found.first().map_or_else(String::new, |f| f.todo.clone()),
        )
    };
    let (said, todo) = crypt();
    assert!(
        said.starts_with("risk: /dev/mapper/fast is not in /etc/crypttab"),
        "{said}"
    );
    assert_eq!(
        todo,
        "echo 'fast UUID=f6a960c7-ec13-43d9-b099-a34476f36087 none luks' | sudo tee -a /etc/crypttab"
    );
    let sums = root.boot(252, 1).0;
    assert_eq!(
        sums[0].todo,
        "echo 'sums /dev/md0' | sudo tee -a /etc/integritytab"
    );
    root.write("etc/integritytab", "sums /dev/md0 - no-journal\n");
    assert!(root.boot(252, 1).0.is_empty());
    let line = |text: &str| root.write("etc/crypttab", &format!("# fast\nother x\n{text}\n"));
    line("fast UUID=f6 none luks");
    assert_eq!(crypt().0, "");
    line("fast UUID=f6 none luks,noauto");
    assert!(
        crypt()
            .0
            .starts_with("risk: /dev/mapper/fast is not opened at boot")
    );
    root.write("etc/fstab", "/dev/isotherm/v /srv ext4 defaults 0 2\n");
    line("fast UUID=f6 /srv/key luks");
    assert!(
        crypt()
            .0
            .starts_with("wrong: the key of /dev/mapper/fast lies on /srv")
    );
    line("fast UUID=f6 /etc/key luks");
    assert_eq!(crypt().0, "");
    root.write("etc/fstab", "/dev/isotherm/v / ext4 defaults 0 1\n");
    assert!(
        crypt()
            .0
            .starts_with("risk: /dev/mapper/fast is opened too late")
    );
    line("fast UUID=f6 /etc/key luks,initramfs");
    assert_eq!(crypt().0, "");
    // What cannot be read is said.
    fs::remove_file(root.at("etc/crypttab")).expect("removed");
    fs::create_dir(root.at("etc/crypttab")).expect("made");
    let (found, unknown) = root.boot(252, 0);
    assert!(
        found.is_empty() && unknown[0].contains("/etc/crypttab"),
        "{unknown:?}"
    );
}

#[test]
fn a_disk_that_should_sleep_is_kept_from_lvm() {
    let root = Root::new();
    root.mirror("");
    assert!(root.boot(9, 0).0.is_empty(), "there is no LVM");
    root.write("etc/lvm/lvm.conf", "devices {\n\t# global_filter = []\n}\n");
    assert!(words(&root.boot(9, 0).0).starts_with("note: should sleep, and LVM reads it"));
    root.write(
        "etc/lvm/lvmlocal.conf",
        "devices {\n\tglobal_filter = [ \"r|/dev/md0|\" ]\n}\n",
    );
    assert!(root.boot(9, 0).0.is_empty());
    root.write("etc/lvm/lvmlocal.conf", "");
    root.write("etc/lvm/devices/system.devices", "VERSION=1\n");
    assert!(root.boot(9, 0).0.is_empty());
}
