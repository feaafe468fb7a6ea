//! The opening of a cache volume whose flash is full of copies: time, and memory at its peak.
//!
//! ```text
//! cargo bench -p isotherm-live --bench recovery_cache -- DIR [slots=32000000]
//! ```
//!
//! A checkpoint that states a clean copy of 64 KiB in every one of `slots` slots is written into a sparse file in DIR with the store's own
//! code, as a clean close leaves it. The disk has four times as many extents, and each fourth one has a copy. Then the volume is opened once,
//! with dropped caches. So the peak of the process is that of this opening; it includes neither buffers nor the policy's memory, which serving
//! takes ([`isotherm_live::volume`] computes it). The checkpoint takes twice 33 bytes a slot of the disk of DIR, and `create` reserves four times that.

use isotherm_core::store::checkpoint::{self, Header};
use isotherm_core::store::record::{self, CACHED};
use isotherm_core::store::{BLOCK, HEADER, Superblock};
use isotherm_core::{ExtentId, Slot};
use isotherm_live::config::{IoConfig, Size};
use isotherm_live::{MemberConfig, OpenMode, Session, Volume, VolumeConfig};
use std::error::Error;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

type Outcome<T> = Result<T, Box<dyn Error>>;

const EXTENT: u64 = 64 << 10;
/// Extents of the disk for each slot of flash.
const TIMES: u64 = 4;

fn create(dir: &Path, slots: u64) -> Outcome<PathBuf> {
    let member = |tier: u8, bytes| MemberConfig {
        path: dir.join(format!("v.{tier}")),
        tier,
        size: Some(Size(bytes)),
        ..MemberConfig::default()
    };
    let config = VolumeConfig {
        name: "v".into(),
        uuid: None,
        extent: Size(EXTENT),
        policy: "lru".into(),
        qos: Vec::new(),
        io: IoConfig::default(),
        members: vec![
            // Metadata takes some space besides the slots.
            member(0, slots * (EXTENT + 160) + (256 << 20)),
            member(1, slots * TIMES * EXTENT + (64 << 20)),
        ],
    };
    let volume = dir.join("v");
    Volume::create(&volume, config, false)?;
    Ok(volume)
}

/// Writes the checkpoint of a clean close. Returns the number of its records.
fn write_checkpoint(file: &File) -> Outcome<u32> {
    let mut block = [0; BLOCK];
    file.read_exact_at(&mut block, 0)?;
    let sb = Superblock::decode(&block).map_err(|e| format!("superblock: {e:?}"))?;
    let (geo, layout) = (sb.geometry()?, sb.layout());
    file.read_exact_at(&mut block, layout.region_offset(layout.primary, 1))?;
    let first = Header::decode(&block, &sb.uuid).ok_or("the first checkpoint is not there")?;
    let number = first.number + 1;
    let slots = geo.tier_slots(geo.slowest()).start;
    // One record is made by the store; extent and place are those of each copy.
    let mut map = isotherm_core::map::ExtentMap::new(&geo);
    map.add_empty_copy(ExtentId(0), Slot(0));
    map.copy_validate(ExtentId(0), 0, geo.blocks_per_extent());
    let mut one = [0; 32];
    record::encode(
        &map,
        ExtentId(0),
        Some(geo.home(ExtentId(0)).ok_or("no cache volume")?),
        &geo,
        Some(sb.epoch),
        &mut one,
    )
    .filter(|&units| units == 2 && one[0] & 15 == CACHED)
    .ok_or("a record of another size")?;
    // As after a clean close, both places have it.
    let base = |c| layout.region_offset(c, Header::region(number));
    let (mut blocks, mut slot, mut at) = (0, 0u64, BLOCK as u64);
    let mut piece = Vec::with_capacity(1 << 20);
    while slot < u64::from(slots) {
        block.fill(0);
        for place in block[HEADER..].chunks_exact_mut(32) {
            if slot < u64::from(slots) {
                one[8..14]
                    .copy_from_slice(&(slot * TIMES % u64::from(sb.extents)).to_le_bytes()[..6]);
                one[16..22].copy_from_slice(&(slot * EXTENT / BLOCK as u64).to_le_bytes()[..6]);
                place.copy_from_slice(&one);
                slot += 1;
            }
        }
        checkpoint::seal_data(&mut block, &sb.uuid, number, blocks);
        blocks += 1;
        piece.extend_from_slice(&block);
        if piece.len() == 1 << 20 || slot == u64::from(slots) {
            for c in layout.carriers() {
                file.write_all_at(&piece, base(c) + at)?;
            }
            at += piece.len() as u64;
            piece.clear();
        }
    }
    let header = Header {
        number,
        blocks,
        ..first
    };
    for c in layout.carriers() {
        file.write_all_at(&header.encode(&sb.uuid, &Vec::new()), base(c))?;
    }
    file.sync_all()?;
    Ok(slots)
}

/// Processor time of this process, in seconds.
fn cpu() -> Outcome<f64> {
    let text = std::fs::read_to_string("/proc/self/schedstat")?;
    let nanos = text.split_whitespace().next().ok_or("no such field")?;
    Ok(nanos.parse::<f64>()? / 1e9)
}

/// A line of this process's status, in bytes.
fn memory(line: &str) -> Outcome<u64> {
    let text = std::fs::read_to_string("/proc/self/status")?;
    let value = text.lines().find_map(|l| l.strip_prefix(line));
    let kib = value.and_then(|v| v.split_whitespace().next());
    Ok(kib.ok_or("no such line")?.parse::<u64>()? << 10)
}

fn main() -> Outcome<()> {
    let (mut slots, mut dir) = (32_000_000u64, None);
    // Cargo adds `--bench`.
    for word in std::env::args().skip(1).filter(|w| w != "--bench") {
        match word.split_once('=') {
            Some(("slots", n)) => slots = n.parse::<u64>()?.max(1000),
            _ => dir = Some(word),
        }
    }
    let dir = dir.ok_or("usage: recovery_cache DIR [slots=N]: DIR on the disk to measure")?;
    let scratch = tempfile::Builder::new()
        .prefix("recovery.")
        .tempdir_in(dir)?;
    let volume = create(scratch.path(), slots)?;
    let file = File::options()
        .read(true)
        .write(true)
        .open(scratch.path().join("v.0"))?;
    let copies = write_checkpoint(&file)?;
    // Direct reads bypass the caches anyway, so a refusal changes nothing.
    let _ = std::fs::write("/proc/sys/vm/drop_caches", "3");
    let before = memory("VmRSS:")?;
    std::fs::write("/proc/self/clear_refs", "5")?;
    let (begun, used) = (Instant::now(), cpu()?);
    let volume = Volume::open(&volume, OpenMode::ReadWrite)?;
    let (seconds, used) = (begun.elapsed().as_secs_f64(), cpu()? - used);
    let peak = memory("VmHWM:")?;
    let (session, _) = Session::here(volume)?;
    let found = session.engine().space().map.copied();
    if found != copies {
        return Err(format!("{found} copies were found, of {copies}").into());
    }
    println!(
        "recovery of {copies} copies: {seconds:.1} s ({used:.1} s of the processor), {:.2} GiB at the peak ({:.1} bytes a slot; {:.2} GiB before)",
        peak as f64 / (1u64 << 30) as f64,
        (peak - before) as f64 / f64::from(copies),
        before as f64 / (1u64 << 30) as f64,
    );
    session.finish()?;
    Ok(())
}
