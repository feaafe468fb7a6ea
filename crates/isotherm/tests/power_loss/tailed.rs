//! A disk with a tail device: power is lost during its adoption, during its release, and after a FLUSH.

use super::directed::ask;
use super::rack::Rack;
use super::{FAST, can_mount, config, open, seeds};
use isotherm_core::RequestOp;
use isotherm_hostile::Rng;
use isotherm_hostile::disk::Disk;
use isotherm_live::volume::AdoptHow;
use isotherm_live::{Volume, VolumeConfig};
use std::path::PathBuf;

/// The disk ends within an extent.
const DATA: usize = (5 << 20) + 4096;
const TAIL: usize = 5 << 20;
/// About as many writes and flushes as an adoption or a release makes.
const CHANGES: u64 = 120;

struct Bench {
    members: PathBuf,
    volume: PathBuf,
    data: Vec<u8>,
    _dir: tempfile::TempDir,
}

impl Bench {
    fn new(seed: u64) -> (Bench, Vec<Disk>) {
        let dir = tempfile::tempdir().unwrap();
        let (members, volume) = (dir.path().join("members"), dir.path().join("v"));
        std::fs::create_dir(&members).unwrap();
        let mut data = Disk::new(DATA);
        let mut bytes = vec![0; DATA];
        isotherm_core::random::SplitMix64::new(seed).fill(&mut bytes);
        // As much of an ext4 superblock as adoption looks at.
        let fields: [(usize, u32); 6] = [
            (0, 77),
            (4, DATA as u32 / 4096),
            (0x18, 2),
            (0x38, 0xef53),
            (0x5c, 0),
            (0x60, 0x40),
        ];
        for (at, value) in fields {
            bytes[1024 + at..][..4].copy_from_slice(&value.to_le_bytes());
        }
        data.write(0, &bytes);
        data.flush(u64::MAX);
        let bench = Bench {
            members,
            volume,
            data: bytes,
            _dir: dir,
        };
        (bench, vec![Disk::new(FAST), data, Disk::zeros(TAIL)])
    }

    fn config(&self) -> VolumeConfig {
        let mut config = config(&self.members, "lru,write-mode=write-through-all");
        config.members[1].tail = Some(self.members.join("2"));
        config
    }

    fn adopt(&self) -> Result<(), String> {
        let how = AdoptHow {
            unknown: false,
            only_plan: false,
        };
        let made = Volume::adopt(&self.volume, self.config(), how);
        made.map(drop).map_err(|e| e.to_string())
    }

    /// Loses power, and mounts what survived.
    fn lose_power(&self, rack: Rack, seed: u64) -> Rack {
        rack.cut();
        Rack::mount(rack.into_disks().unwrap(), &self.members, seed).unwrap()
    }

    /// Releases the volume, if there is one, and checks the disk.
    fn release(&self) -> Result<(), String> {
        let file = isotherm_live::volume::description(&self.volume);
        if file.exists()
            && let Err(e) = Volume::release(&self.volume)
        {
            let early = e.to_string().contains("an adoption at its beginning");
            if !early {
                return Err(e.to_string());
            }
            std::fs::remove_file(&file).unwrap();
        }
        let is = |name: &str| std::fs::read(self.members.join(name)).unwrap();
        let now = is("1");
        let differs = (0..DATA).find(|&i| now[i] != self.data[i]);
        if let Some(at) = differs {
            return Err(format!("the disk is another one from byte {at} on"));
        }
        if is("2").starts_with(b"ISOTTAIL") {
            return Err("the tail has its label still".into());
        }
        Ok(())
    }
}

fn adoption(seed: u64) -> Result<bool, String> {
    let (bench, disks) = Bench::new(seed);
    let mut rng = Rng::new(seed);
    let rack = Rack::mount(disks, &bench.members, rng.draw()).unwrap();
    rack.cut_after(rng.below(CHANGES));
    let adopted = bench.adopt().is_ok();
    let rack = bench.lose_power(rack, rng.draw());
    // The release is interrupted, too, and goes on.
    rack.cut_after(rng.below(CHANGES));
    let released = Volume::release(&bench.volume).is_ok();
    let rack = bench.lose_power(rack, rng.draw());
    // What has ended can be at its end again, with only the description left.
    let done = bench.release();
    drop(rack);
    done.map(|()| adopted && released)
}

#[test]
fn a_disk_with_a_tail_survives_the_loss_of_power_during_adoption_and_release() {
    if !can_mount() {
        return;
    }
    let mut whole = 0;
    for seed in seeds(40) {
        let done = adoption(seed).unwrap_or_else(|e| panic!("ISOTHERM_SEED={seed}: {e}"));
        whole += u64::from(done);
    }
    println!("{whole} were adopted and released without an interruption");
}

/// The bytes of the head, which are on the tail, and those of the extent that lies on both devices.
fn flushed(seed: u64) -> Result<(), String> {
    let (bench, disks) = Bench::new(seed);
    let rack = Rack::mount(disks, &bench.members, seed).unwrap();
    bench.adopt()?;
    let places = [0u64, DATA as u64 - 8192];
    let len = 12288u32;
    let server = open(&bench.volume)?.serve().unwrap();
    let port = server.port();
    for at in places {
        let mut buf = port.buffer(at, len);
        buf.fill(7);
        ask(&port, isotherm_live::port::IoRequest::write(at, len, buf))?;
    }
    let zeroes = RequestOp::WriteZeroes { keep: true };
    let zeroed = DATA as u64 - 4096;
    ask(
        &port,
        isotherm_live::port::IoRequest::new(zeroes, zeroed, 8192),
    )?;
    ask(
        &port,
        isotherm_live::port::IoRequest::new(RequestOp::Flush, 0, 0),
    )?;
    drop(port);
    let rack = {
        rack.cut();
        // Without power it may be impossible to close.
        let _ = server.stop();
        bench.lose_power(rack, 0)
    };
    let server = open(&bench.volume)?.serve().unwrap();
    let port = server.port();
    for at in places {
        let buf = port.buffer(at, len);
        let read = ask(&port, isotherm_live::port::IoRequest::read(at, len, buf))?;
        for (i, byte) in (at..).zip(read.ok_or("no data")?.iter()) {
            let want = if (zeroed..zeroed + 8192).contains(&i) {
                0
            } else {
                7
            };
            if *byte != want {
                return Err(format!("byte {i} is {byte}, not {want}"));
            }
        }
    }
    drop(port);
    server.stop().map_err(|e| e.to_string())?;
    drop(rack);
    Ok(())
}

#[test]
fn what_was_flushed_to_a_disk_with_a_tail_survives_the_loss_of_power() {
    if !can_mount() {
        return;
    }
    for seed in seeds(8) {
        flushed(seed).unwrap_or_else(|e| panic!("ISOTHERM_SEED={seed}: {e}"));
    }
}
