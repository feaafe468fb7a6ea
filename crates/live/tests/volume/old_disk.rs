//! A new volume on a disk that holds the bytes of another life.

use super::{Rig, read};
use isotherm_live::members::probe::{Second, probe};
use isotherm_live::volume::CreateHow;
use isotherm_live::{Volume, VolumeConfig, config::Size};

/// A rig whose slow device is full of the bytes of another life, and the description of a volume on it.
fn with_an_old_disk(policy: &str) -> (Rig, VolumeConfig) {
    let rig = Rig {
        dir: tempfile::tempdir().unwrap(),
    };
    std::fs::write(rig.dir.path().join("slow"), vec![0xab; 64 << 20]).unwrap();
    let config = rig.config(policy);
    (rig, config)
}

const FORCE: CreateHow = CreateHow {
    force: true,
    preallocate: false,
    keep: false,
};

#[test]
fn a_new_cache_volume_shows_nothing_of_the_old_disk() {
    let (rig, config) = with_an_old_disk("benefit");
    let mut told = Vec::new();
    let made = Volume::create_as(&rig.volume(), config, FORCE, &mut |done, all| {
        told.push((done, all));
    })
    .unwrap();
    let server = rig.serve();
    let port = server.port();
    for at in (0..made.volume_bytes).step_by(1 << 20) {
        let len = (made.volume_bytes - at).min(1 << 20) as u32;
        assert!(read(&port, at, len).iter().all(|&b| b == 0), "at {at}");
    }
    server.stop().unwrap();
    let (done, all) = *told.last().unwrap();
    assert!(done == all && all >= made.volume_bytes, "{told:?}");
}

#[test]
fn keep_shows_what_the_disk_holds_and_only_in_a_cache_volume() {
    let keep = CreateHow {
        keep: true,
        ..FORCE
    };
    let (rig, config) = with_an_old_disk("benefit");
    let made = Volume::create_as(&rig.volume(), config, keep, &mut |_, _| {
        panic!("something was cleared")
    })
    .unwrap();
    let server = rig.serve();
    let port = server.port();
    // Both ends of the device held metadata of its old use, which is erased, and hold that of the new one.
    for at in (8 << 20..made.volume_bytes - (8 << 20)).step_by(1 << 20) {
        assert!(read(&port, at, 4096).iter().all(|&b| b == 0xab), "at {at}");
    }
    server.stop().unwrap();

    let (rig, config) = with_an_old_disk("greendm");
    let e = Volume::create_as(&rig.volume(), config, keep, &mut |_, _| {}).unwrap_err();
    let said = e.to_string();
    assert!(
        said.contains("greendm") && said.contains("leave it out"),
        "{said}"
    );
    let slow = std::fs::read(rig.dir.path().join("slow")).unwrap();
    assert!(slow.iter().all(|&b| b == 0xab), "it was erased");
    let names = std::fs::read_dir(rig.dir.path()).unwrap();
    assert_eq!(names.count(), 1, "only the old disk is there");
}

#[test]
fn without_room_for_metadata_nothing_is_cleared() {
    let small = tempfile::tempdir().unwrap();
    let mount = |program: &str, arguments: &[&str]| {
        let mut call = std::process::Command::new(program);
        let out = call.args(arguments).arg(small.path()).output();
        out.is_ok_and(|o| o.status.success())
    };
    if !mount("mount", &["-t", "tmpfs", "-o", "size=64k", "none"]) {
        eprintln!("skipped: needs the right to mount");
        return;
    }
    let tried = std::panic::catch_unwind(|| {
        for how in [
            FORCE,
            CreateHow {
                preallocate: true,
                ..FORCE
            },
        ] {
            let (rig, mut config) = with_an_old_disk("benefit");
            config.members[0].path = small.path().join("fast");
            config.io.direct = false;
            let e = Volume::create_as(&rig.volume(), config, how, &mut |_, _| {}).unwrap_err();
            assert!(e.to_string().contains("no room for"), "{e}");
            let slow = std::fs::read(rig.dir.path().join("slow")).unwrap();
            assert!(slow.iter().all(|&b| b == 0xab), "it was cleared");
        }
    });
    assert!(mount("umount", &[]));
    tried.unwrap();
}

/// A disk whose first blocks are all lost, its counters with them, is still found by its last block.
#[test]
fn a_disk_without_its_head_is_found_by_its_last_block() {
    let (rig, mut config) = with_an_old_disk("benefit");
    let path = rig.dir.path().join("slow");
    // No place that a search in whole MiB would find.
    let bytes = (64 << 20) + 3 * 4096;
    let disk = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    disk.set_len(bytes).unwrap();
    config.members[1].size = Some(Size(bytes));
    let made = Volume::create_as(&rig.volume(), config, FORCE, &mut |_, _| {}).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&disk, &[0; 16384], 0).unwrap();
    let found = probe(&path, Second::At(&[])).unwrap().unwrap();
    assert_eq!((found.uuid, found.index), (made.uuid, 1));
    // And the volume mends it.
    rig.serve().stop().unwrap();
    let mut head = [0; 8];
    let disk = std::fs::File::open(&path).unwrap();
    std::os::unix::fs::FileExt::read_exact_at(&disk, &mut head, 0).unwrap();
    assert_eq!(&head, b"ISOTHERM");
}
