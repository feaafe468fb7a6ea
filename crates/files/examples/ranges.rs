//! Measures ranges beside the cache of a volume with as much flash: the share of reads that flash serves, for the same accesses.
//!
//! ```text
//! cargo run --release -p isotherm-files --example ranges -- DIRECTORY [IMAGE_GIB [FLASH_MIB [READS]]]
//! ```
//!
//! In the directory, an image without data (100 GiB) is made on a slow tier, and read in random places that follow Zipf's law, once by places
//! of 1 MiB, as the files of a guest lie, and once by single blocks of 4 KiB. The volume has extents of 64 KiB, the default, and the same
//! policy. One line for each: hits of the mount, of the volume, their ratio; bytes that the mount read at home.

use isotherm_core::geometry::{Kind, Member, Stash};
use isotherm_core::null::NullEngine;
use isotherm_core::random::SplitMix64;
use isotherm_core::volume::{Geometry, Space};
use isotherm_core::{ExtentId, Nanos, TierId};
use isotherm_files::placement::DEFAULT;
use isotherm_files::store::{Settings, Store};
use std::error::Error;
use std::path::Path;
use std::time::Instant;

const EXTENT: u64 = 64 << 10;
const READ: u64 = 4 << 10;

/// Places of `len` bytes in an image: the first ones are read most, and lie anywhere.
struct Zipf {
    /// The sums of the weights.
    below: Vec<f64>,
    len: u64,
    random: SplitMix64,
}

impl Zipf {
    fn new(bytes: u64, len: u64) -> Zipf {
        let mut sum = 0.0;
        let weights = (1..=bytes / len).map(|n| 1.0 / n as f64);
        let below = weights.map(|w| {
            sum += w;
            sum
        });
        Zipf {
            below: below.collect(),
            len,
            random: SplitMix64::new(1),
        }
    }
    /// The offset of the next read.
    fn next(&mut self) -> u64 {
        let all = self.below.len() as u64;
        let to =
            (self.random.draw() >> 11) as f64 / (1u64 << 53) as f64 * self.below[all as usize - 1];
        let rank = self.below.partition_point(|b| *b < to) as u64;
        // Neighbours by rank lie anywhere.
        let place = rank.wrapping_mul(0x9E37_79B9_7F4A_7C15) % all;
        place * self.len + self.random.below(self.len / READ) * READ
    }
}

/// The share of reads that a cache volume serves from flash.
fn volume(image: u64, flash: u64, reads: u64, mut places: Zipf) -> Result<f64, Box<dyn Error>> {
    let (fast, extents) = ((flash / EXTENT) as u32, (image / EXTENT) as u32);
    let member = |tier, slots| Member {
        tier: TierId(tier),
        first_slot: 0,
        slots,
        data_offset: 0,
        stash: Stash::default(),
    };
    let geo = Geometry::new(16, 12, extents, vec![member(0, fast), member(1, extents)])?;
    let spec = isotherm_words::policy_spec::PolicySpec::split(DEFAULT)?;
    let mut engine = NullEngine::over(Space::new(geo.of_kind(Kind::Cache)?), spec.build()?);
    let (start, mut hits) = (Instant::now(), 0);
    for _ in 0..reads {
        let at = places.next();
        let now = Nanos(start.elapsed().as_nanos() as u64);
        let extent = ExtentId((at / EXTENT) as u32);
        hits += u64::from(engine.access(now, extent, false, 0, (at, READ as u32)));
    }
    Ok(hits as f64 / reads as f64)
}

/// The same for the mount.
fn mounted(dir: &Path, flash: u64, reads: u64, mut places: Zipf) -> Result<f64, Box<dyn Error>> {
    let tiers = ["fast", "slow"].map(|t| dir.join(t));
    let store = Store::open(&Settings {
        tiers: tiers.into(),
        marks: (100, 100),
        // Half of it is for ranges.
        quotas: vec![Some(2 * flash)],
        ranges: isotherm_files::ranges::RangeSettings {
            percent: 50,
            ..Default::default()
        },
        copies: true,
        ..Settings::default()
    })?;
    let node = store.cat().find(b"image").ok_or("no image")?;
    let live = store.live(node)?;
    let mut buffer = vec![0; READ as usize];
    for _ in 0..reads {
        store.read(&live, places.next(), &mut buffer)?;
    }
    let tier = store.cat().get(node).map(|n| n.tier);
    store.release(&live);
    let figures = isotherm_files::control::stats(&store).copies;
    let ranges = figures.ranges.ok_or("no ranges")?;
    assert_eq!((tier, figures.files, ranges.bytes_max), (Some(1), 0, flash));
    println!(
        "  {} ranges made, {} MiB of {} MiB",
        ranges.made,
        ranges.bytes >> 20,
        ranges.bytes_max >> 20
    );
    Ok(ranges.hits as f64 / (ranges.hits + ranges.misses) as f64)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let dir = args
        .next()
        .ok_or("usage: ranges DIRECTORY [IMAGE_GIB [FLASH_MIB [READS]]]")?;
    let mut number = |default: u64| args.next().map_or(Ok(default), |n| n.parse());
    let (image, flash, reads) = (number(100)? << 30, number(1024)? << 20, number(400_000)?);
    for len in [1 << 20, READ] {
        let place = Path::new(&dir).join(format!("ranges-{len}"));
        for tier in ["fast", "slow"] {
            std::fs::create_dir_all(place.join(tier))?;
        }
        std::fs::File::create(place.join("slow/image"))?.set_len(image)?;
        let ours = mounted(&place, flash, reads, Zipf::new(image, len))?;
        let theirs = volume(image, flash, reads, Zipf::new(image, len))?;
        println!(
            "places of {len} bytes: mount {ours:.4}, volume {theirs:.4}, ratio {:.3}",
            ours / theirs
        );
        std::fs::remove_dir_all(&place)?;
    }
    Ok(())
}
