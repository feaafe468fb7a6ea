use super::*;
use crate::device::OpenHow;
use isotherm_core::store::journal::{Staging, Tip};

const UUID: [u8; 16] = [7; 16];

/// Blocks of a journal: block 1 in three versions, each with a record more, then 2, 3 and 4.
fn blocks() -> Vec<(u64, Vec<u8>)> {
    let tip = Tip {
        next_seq: 1,
        epoch: 1,
        crc: 0,
    };
    let mut staging = Staging::new(UUID, 9, tip, 8);
    let mut all = Vec::new();
    let mut add = |staging: &mut Staging, units: usize| {
        staging.rest()[..16].copy_from_slice(&isotherm_core::store::record::encode_counter(1, 5));
        staging.advance(units);
        for seq in staging.keep() {
            all.push((seq, staging.bytes(seq, seq + 1).to_vec()));
        }
    };
    add(&mut staging, 1);
    for _ in 0..2 {
        staging.extend();
        add(&mut staging, 1);
    }
    for _ in 0..3 {
        staging.round_begins();
        add(&mut staging, 1);
    }
    all
}

fn members(dir: &Path) -> Vec<Option<Device>> {
    let how = OpenHow {
        create: Some(1 << 20),
        ..OpenHow::default()
    };
    vec![Some(Device::open(&dir.join("d"), how).unwrap()), None]
}

fn kept(dir: &Path, devices: &[Option<Device>]) -> BTreeMap<u64, Vec<u8>> {
    match left_in(dir, &UUID, 9, devices) {
        Left::Kept(k) => k.blocks,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_newest_version_of_each_block_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let devices = members(dir.path());
    let mut keeper = Keeper::create_in(dir.path(), &UUID, 9, &devices, 3).unwrap();
    assert!(kept(dir.path(), &devices).is_empty());
    let all = blocks();
    assert_eq!(
        all.iter().map(|b| b.0).collect::<Vec<_>>(),
        [1, 1, 1, 2, 3, 4]
    );
    for (i, (seq, block)) in all.iter().enumerate() {
        keeper.keep(*seq, block).unwrap();
        let now = kept(dir.path(), &devices);
        assert_eq!(now.get(seq), Some(block), "after write {i}");
        // Nothing that the primary may lack is gone: the three newest blocks.
        let first = seq.saturating_sub(2).max(1);
        assert!(
            (first..=*seq).all(|s| now.contains_key(&s)),
            "after write {i}"
        );
    }
    keeper.forget();
    assert!(
        kept(dir.path(), &devices).is_empty(),
        "everything is on the devices"
    );
    // The next session keeps something; if its file is gone, something may be missing.
    let next = Keeper::create_in(dir.path(), &UUID, 9, &devices, 3).unwrap();
    next.give_up();
    assert_eq!(left_in(dir.path(), &UUID, 9, &devices), Left::Gone);
}

#[test]
fn a_server_may_be_killed_at_any_byte_of_a_write() {
    let dir = tempfile::tempdir().unwrap();
    let devices = members(dir.path());
    let mut keeper = Keeper::create_in(dir.path(), &UUID, 9, &devices, 3).unwrap();
    let all = blocks();
    let path = keeper.path.clone();
    for (seq, block) in &all {
        let before = fs::read(&path).unwrap();
        let known = kept(dir.path(), &devices);
        keeper.keep(*seq, block).unwrap();
        let after = fs::read(&path).unwrap();
        for cut in (0..=after.len()).step_by(509) {
            fs::write(&path, [&after[..cut], &before[cut..]].concat()).unwrap();
            let now = kept(dir.path(), &devices);
            let whole = now.get(seq) == Some(block);
            assert!(
                whole || now.get(seq) == known.get(seq),
                "block {seq}, byte {cut}"
            );
        }
        fs::write(&path, &after).unwrap();
    }
}

#[test]
fn it_says_nothing_about_other_sessions_kernels_and_devices() {
    let dir = tempfile::tempdir().unwrap();
    let devices = members(dir.path());
    let keeper = Keeper::create_in(dir.path(), &UUID, 9, &devices, 3).unwrap();
    let of = |uuid: &[u8; 16], epoch, devices: &[Option<Device>]| {
        left_in(dir.path(), uuid, epoch, devices)
    };
    assert_eq!(of(&UUID, 8, &devices), Left::Gone);
    assert_eq!(of(&[8; 16], 9, &devices), Left::Gone);
    assert_eq!(of(&UUID, 9, &devices[..1]), Left::Gone);
    assert!(
        matches!(of(&UUID, 9, &[None, None]), Left::Kept(_)),
        "an absent member does not count"
    );
    let whole = fs::read(&keeper.path).unwrap();
    // Magic, sum, session, kernel, number of members, number of the first member's disk.
    for at in [
        0,
        SUM_AT,
        EPOCH_AT,
        BOOT_AT,
        COUNT_AT,
        DEVICES_AT,
        BLOCK - 1,
    ] {
        let mut bad = whole.clone();
        bad[at] ^= 1;
        fs::write(&keeper.path, &bad).unwrap();
        assert_eq!(of(&UUID, 9, &devices), Left::Gone, "byte {at}");
    }
    // A member is another disk now, and the header is whole.
    let mut other = whole.clone();
    other[DEVICES_AT] ^= 1;
    let s = sum(&other[EPOCH_AT..BLOCK]);
    other[SUM_AT..SUM_AT + 8].copy_from_slice(&s.to_le_bytes());
    fs::write(&keeper.path, &other).unwrap();
    assert_eq!(of(&UUID, 9, &devices), Left::Gone);
    fs::write(&keeper.path, &whole[..100]).unwrap();
    assert_eq!(of(&UUID, 9, &devices), Left::Gone);
}

#[test]
fn nothing_is_kept_where_others_can_make_files() {
    use std::os::unix::fs::PermissionsExt;
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        println!("skipped: no /dev/shm");
        return;
    };
    let dir = dir.path();
    for mode in 0..0o1000 {
        fs::set_permissions(dir, PermissionsExt::from_mode(0o700 | mode)).unwrap();
        assert_eq!(is_private_memory(dir), mode & 0o022 == 0, "{mode:o}");
    }
    // Files of a disk would outlive the kernel that they are about.
    assert!(!is_private_memory(Path::new("/dev/shm/no")));
    assert!(!is_private_memory(Path::new("/etc")));
}
