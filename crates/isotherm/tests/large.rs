//! Volumes of 100 TB on sparse files: metadata and memory stay within bounds, and a volume that needs too much memory is refused.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::time::Instant;

use common::Place;
use common::loop_device::LoopDevice;
use common::peer::{FLUSH, Peer};
use isotherm_core::Slot;
use isotherm_core::map::ExtentMap;
use isotherm_core::store::checkpoint::{self, Header};
use isotherm_core::store::{BLOCK, HEADER, Superblock, record};
use serde_json::json;

const TB: u64 = 1_000_000_000_000;

/// A loop device over a sparse file. (For members that are files, `create` would reserve space for metadata.)
fn disk(place: &Place, name: &str, bytes: u64) -> Option<LoopDevice> {
    let made = File::create(place.path(name)).and_then(|f| f.set_len(bytes));
    if let Err(e) = made {
        println!("skipped: no sparse file of {bytes} bytes here: {e}");
        return None;
    }
    // tmpfs may have no direct I/O.
    LoopDevice::over(place, &["--direct-io=on"], name)
        .or_else(|| LoopDevice::over(place, &[], name))
}

/// An XFS on the disk, because other file systems do not support files of 100 TB; unmounted at the end.
struct Xfs(std::path::PathBuf);

impl Xfs {
    fn new(place: &Place) -> Option<Xfs> {
        let made = File::create(place.path("image")).and_then(|f| f.set_len(40 << 30));
        made.expect("a sparse file");
        let dir = place.path("xfs");
        fs::create_dir(&dir).expect("a directory");
        for (program, args) in [
            ("mkfs.xfs", &["-q", "image"][..]),
            ("mount", &["-o", "loop", "image", "xfs"][..]),
        ] {
            let out = place.tool(program, args);
            if !out.status.success() {
                println!("skipped: {}", String::from_utf8_lossy(&out.stderr));
                return None;
            }
        }
        Some(Xfs(dir))
    }
}

impl Drop for Xfs {
    fn drop(&mut self) {
        // Best effort: if the test failed, it has reported the reason.
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn kib(file: &str, key: &str) -> u64 {
    let text = fs::read_to_string(file).expect("procfs");
    let line = text.lines().find_map(|l| l.strip_prefix(key));
    let value = line.and_then(|l| l.split_whitespace().next());
    value.expect("there").parse::<u64>().expect("a number") << 10
}

#[test]
fn a_hundred_terabytes_are_served_within_bounds() {
    let place = Place::in_memory();
    if kib("/proc/meminfo", "MemAvailable:") < 4_000_000_000 {
        println!("skipped: less than 4 GB of memory to be had");
        return;
    }
    let disks = (disk(&place, "fast", 2 * TB), disk(&place, "slow", 100 * TB));
    let (Some(fast), Some(slow)) = disks else {
        return;
    };
    let call = format!("create v --fast {} --slow {} --extent 1M", fast.0, slow.0);
    let made = place.json(&call, "create");
    for member in 0..2 {
        let size = [2 * TB, 100 * TB][member];
        let bytes = made["members"][member]["bytes"].as_u64().expect("a number");
        println!("member {member}: {} bytes of metadata", size - bytes);
        // The metadata of a cache volume follows from its flash, which has it twice. A disk has a head and a tail.
        assert!(size - bytes <= [2_000_000_000, 16 << 20][member]);
    }
    let volume = made["volume_bytes"].as_u64().expect("a number");
    let places: Vec<u64> = (0..1000).map(|i| volume / 1000 * i / 4096 * 4096).collect();
    for life in 0..2 {
        let served = place.serve("v --nbd unix:n --stop-timeout 0");
        let mut peer = Peer::connect(&place.path("n")).expect("connected");
        for &at in &places {
            let got = peer.read(at, 8192).expect("read");
            let old = if life == 0 { 0 } else { (at >> 30) as u8 };
            assert!(
                got[..4096] == [old; 4096] && got[4096..] == [0; 4096],
                "at {at}"
            );
            peer.write(at, &[(at >> 30) as u8; 4096]).expect("written");
        }
        peer.ask(FLUSH, 0, 0).expect("sent");
        assert_eq!(peer.answer().expect("answered"), 0);
        let peak = kib(&format!("/proc/{}/status", served.child.id()), "VmHWM:");
        println!("life {life}: {peak} bytes of memory at most");
        assert!(peak <= 2_500_000_000, "{peak} bytes");
        drop(peer);
        // This is a crash: the journal is replayed into an empty map. (An ordinary close examines every extent, which takes a minute in an
        // unoptimised build.)
        served.kill();
    }
    let check = place.json("check v", "check");
    assert_eq!(
        (&check["ok"], &check["mapped_extents"]),
        (&json!(true), &json!(volume >> 20))
    );
}

/// Flash with dirty data all over 100 TB is gone. The list of what is lost has its bounds, and one request writes a granule, which has several
/// extents.
#[test]
fn a_loss_of_a_hundred_terabytes_is_listed_within_bounds() {
    let place = Place::in_memory();
    if kib("/proc/meminfo", "MemAvailable:") < 4_000_000_000 {
        println!("skipped: less than 4 GB of memory to be had");
        return;
    }
    let disks = (disk(&place, "fast", 2 * TB), disk(&place, "slow", 100 * TB));
    let (Some(fast), Some(slow)) = disks else {
        return;
    };
    let call = format!(
        "create v --fast {} --slow {} --extent 1M --policy lru",
        fast.0, slow.0
    );
    let volume = place.json(&call, "create")["volume_bytes"].as_u64();
    let volume = volume.expect("a number");
    let served = place.serve("v --nbd unix:n --stop-timeout 0");
    let mut peer = Peer::connect(&place.path("n")).expect("connected");
    for i in 0..4000 {
        let at = volume / 4000 * i / 4096 * 4096;
        peer.write(at, &[7; 4096]).expect("written");
    }
    peer.ask(FLUSH, 0, 0).expect("sent");
    assert_eq!(peer.answer().expect("answered"), 0);
    drop(peer);
    served.kill();
    drop(fast);

    let served = place.serve("v --without-flash --nbd unix:n");
    let mut peer = Peer::connect(&place.path("n")).expect("connected");
    let status = place.json("status v", "status");
    let lost = &status["lost"];
    let granule = lost["granule_bytes"].as_u64().expect("a number");
    println!("{} bytes are lost by granules of {granule}", lost["bytes"]);
    assert!(granule > 1 << 20, "a granule has several extents");
    let size = usize::try_from(granule).expect("it fits");
    let at = granule * 3;
    assert!(peer.read(at, 4096).is_err());
    assert!(peer.write(at, &[8; 4096]).is_err());
    peer.write(at, &vec![8; size]).expect("written");
    assert!(peer.read(at + granule, 4096).is_err());
    peer.ask(FLUSH, 0, 0).expect("sent");
    assert_eq!(peer.answer().expect("answered"), 0);
    let peak = kib(&format!("/proc/{}/status", served.child.id()), "VmHWM:");
    println!("{peak} bytes of memory at most");
    drop(peer);
    served.kill();

    let served = place.serve("v --nbd unix:n");
    let mut peer = Peer::connect(&place.path("n")).expect("connected");
    assert!(peer.read(at, granule as u32).expect("read") == vec![8; size]);
    assert!(peer.read(at - 4096, 4096).is_err());
    let left = place.json("status v", "status");
    let bytes = |v: &serde_json::Value| v["bytes"].as_u64().expect("a number");
    assert_eq!(bytes(&left["lost"]), bytes(lost) - granule);
    drop(peer);
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn what_no_memory_holds_is_refused_with_figures() {
    let place = Place::in_memory();
    let disks = (disk(&place, "fast", 2 * TB), disk(&place, "slow", 100 * TB));
    let (Some(fast), Some(slow)) = disks else {
        return;
    };
    // The memory of a cache volume follows from its flash, that of a tiering volume from all of it.
    let (fast, slow) = (&fast.0, &slow.0);
    let call = format!("create v --fast {fast} --slow {slow} --extent 64K --policy greendm");
    if kib("/proc/meminfo", "MemTotal:") > 40_000_000_000 {
        println!("skipped: this machine has the memory");
        return;
    }
    let why = place.fails(&call);
    assert!(
        why.contains("GiB of memory") && why.contains("larger extents"),
        "{why}"
    );
    assert!(!place.path("v.toml").exists());
}

/// Writes the records of all extents but the last thousand, as a checkpoint would, to the next region of both members. The first `partial`
/// extents are partly valid (every other block), the others whole; each home is on the slow tier. Returns the number of blocks.
fn tell_all(members: &[File], sb: &Superblock, partial: u32) -> u32 {
    let geo = sb.geometry().expect("a shape");
    let layout = sb.layout();
    let region = |n: u64| layout.region_offset(layout.primary, Header::region(n));
    let mut block = vec![0; BLOCK];
    let newest = [0, 1].into_iter().filter_map(|n| {
        members[0].read_exact_at(&mut block, region(n)).ok()?;
        let h = Header::decode(&block, &sb.uuid)?;
        Some((h, Header::counters(&block)?))
    });
    let (before, counters) = newest.max_by_key(|(h, _)| h.number).expect("a checkpoint");
    let number = before.number + 1;
    let first = geo.tier_slots(geo.slowest()).start;
    let longest = 16 * record::max_units(geo.blocks_per_extent());
    let bits = (geo.blocks_per_extent() as usize).div_ceil(8);
    let (mut at, mut blocks, mut out) = (HEADER, 0u32, Vec::new());
    let base = region(number) + BLOCK as u64;
    let put = |out: &mut Vec<u8>, blocks: u32| {
        let offset = base + u64::from(blocks) * BLOCK as u64 - out.len() as u64;
        for m in members {
            m.write_all_at(out, offset).expect("written");
        }
        out.clear();
    };
    block.fill(0);
    for e in 0..geo.extents - 1000 {
        let len = if e < partial { longest } else { 16 };
        if at + len > BLOCK {
            checkpoint::seal_data(&mut block, &sb.uuid, number, blocks);
            out.extend_from_slice(&block);
            blocks += 1;
            if out.len() >= 4 << 20 {
                put(&mut out, blocks);
            }
            block.fill(0);
            at = HEADER;
        }
        let spot = geo.member_slot(Slot(first + e));
        let kind = if e < partial {
            record::MAP_PARTIAL
        } else {
            record::MAP
        };
        let r = &mut block[at..at + len];
        r[..2].copy_from_slice(&(u16::from(kind) | spot.member << 4).to_le_bytes());
        r[4..8].copy_from_slice(&e.to_le_bytes());
        r[8..12].copy_from_slice(&spot.index.to_le_bytes());
        if e < partial {
            r[16..16 + bits].fill(0x55);
        }
        at += len;
    }
    checkpoint::seal_data(&mut block, &sb.uuid, number, blocks);
    out.extend_from_slice(&block);
    blocks += 1;
    put(&mut out, blocks);
    let h = Header {
        number,
        blocks,
        ..before
    };
    for m in members {
        m.write_all_at(&h.encode(&sb.uuid, &counters), region(number))
            .expect("written");
        m.sync_all().expect("flushed");
    }
    blocks
}

/// A volume of 100 TB that was in use: it is opened from cold disks, served, and closed. This takes 6 GB of disk and a few minutes, so it
/// runs only with `ISOTHERM_LARGE=1`. The bound on its memory holds with the largest number of partly written extents.
#[test]
fn a_full_map_of_a_hundred_terabytes_is_opened_cold() {
    if std::env::var_os("ISOTHERM_LARGE").is_none() {
        println!("skipped: ISOTHERM_LARGE=1 runs it");
        return;
    }
    let place = Place::new();
    let Some(_xfs) = Xfs::new(&place) else {
        return;
    };
    let disks = (
        disk(&place, "xfs/fast", 2 * TB),
        disk(&place, "xfs/slow", 100 * TB),
    );
    let (Some(fast), Some(slow)) = disks else {
        return;
    };
    // (A tiering volume: a cache volume has no map of homes.)
    place.ok(&format!(
        "create v --fast {} --slow {} --extent 1M --policy greendm",
        fast.0, slow.0
    ));
    let members = [&fast.0, &slow.0].map(|path| {
        let mut how = File::options();
        how.read(true).write(true).open(path).expect("opened")
    });
    let mut block = vec![0; BLOCK];
    members[0].read_exact_at(&mut block, 0).expect("read");
    let sb = Superblock::decode(&block).expect("a superblock");
    let geo = sb.geometry().expect("a shape");
    let partial = ExtentMap::partial_most(&geo);
    let blocks = tell_all(&members, &sb, partial);
    drop(members);
    println!(
        "{} extents, {partial} of them partly valid, in {} bytes of checkpoint; {} bytes before slot 0 of member 1",
        geo.extents,
        u64::from(blocks) * BLOCK as u64,
        sb.members[1].data_offset,
    );
    // Cold: neither the files below the loop devices nor the devices are in the page cache.
    Command::new("sync").status().expect("it runs");
    fs::write("/proc/sys/vm/drop_caches", "3").expect("root");
    for life in 0..2 {
        let begun = Instant::now();
        let served = place.serve("v --nbd unix:n --stop-timeout 0");
        println!("life {life}: opened in {:?}", begun.elapsed());
        let mut peer = Peer::connect(&place.path("n")).expect("connected");
        let volume = u64::from(geo.extents) << 20;
        let at = volume - ((u64::from(life as u32) + 1) << 20);
        peer.write(at + 8192, &[7; 4096]).expect("written");
        peer.ask(FLUSH, 0, 0).expect("sent");
        assert_eq!(peer.answer().expect("answered"), 0);
        let got = peer.read(at, 16384).expect("read");
        assert!(got[8192..12288] == [7; 4096] && got[..8192] == [0; 8192]);
        let stats = place.json("stats v", "stats");
        assert_eq!(
            stats["zero_fills"],
            json!(1),
            "there is no room for a bitmap"
        );
        let peak = kib(&format!("/proc/{}/status", served.child.id()), "VmHWM:");
        println!("life {life}: {peak} bytes of memory at most");
        assert!(peak <= 2_500_000_000, "{peak} bytes");
        drop(peer);
        let begun = Instant::now();
        assert_eq!(served.terminate(), Some(0));
        println!("life {life}: closed in {:?}", begun.elapsed());
    }
}
