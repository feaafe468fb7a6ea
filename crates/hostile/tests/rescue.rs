//! `scripts/rescue`, the reader that knows the format page and no source, against the engine: on what crashes leave of members it must
//! give exactly what the engine serves after its recovery of the same bytes. Both are deterministic, so a block that was in flight has one
//! value, too. `ISOTHERM_SEEDS=N` runs N seeds of each scenario, `ISOTHERM_SEED=X` repeats one.

use isotherm_core::store::open::{Loss, Mode};
use isotherm_hostile::Rng;
use isotherm_hostile::directed::{cut_changes, cut_openings};
use isotherm_hostile::disk::Disk;
use isotherm_hostile::image::{contents, each_crash, interrupted};
use isotherm_hostile::run::{Scenario, Shape};
use isotherm_hostile::truth::CELL;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/rescue");

/// A directory for the members of one image.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let memory = PathBuf::from("/dev/shm");
        let above = if memory.is_dir() {
            memory
        } else {
            std::env::temp_dir()
        };
        let dir = above.join(format!("isotherm-rescue-{}-{number}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory for members");
        Place(dir)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The image, and the ranges that are lost.
type Given = (Vec<u8>, Vec<(usize, usize)>);

/// What rescue gives of these members, with `--accept-loss` or without: the image, and the ranges that it says to be lost; or its refusal.
fn rescued(place: &Place, disks: &[Disk], accept: bool) -> Result<Given, String> {
    let mut command = Command::new("python3");
    command.arg(SCRIPT);
    for (i, disk) in disks.iter().enumerate().filter(|(_, d)| !d.is_empty()) {
        let file = place.0.join(format!("member{i}"));
        fs::write(&file, disk.read(0, disk.len())).expect("write a member");
        command.arg(file);
    }
    let image = place.0.join("image");
    command.args(accept.then_some("--accept-loss"));
    let out = command.arg("--out").arg(&image);
    let out = out.output().expect("run python3");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    if !out.status.success() {
        return Err(said);
    }
    let range = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |i: usize| words[i].trim_end_matches(':').parse().expect("a byte");
        (number(4), number(6))
    };
    let lost = said.lines().filter(|l| l.starts_with("cannot be had: "));
    Ok((
        fs::read(image).expect("the image"),
        lost.map(range).collect(),
    ))
}

/// Compares one image. If it differs, its files are kept, and named.
fn compare(disks: &[Disk]) -> Result<(), String> {
    let place = Place::new();
    compare_in(&place, disks).map_err(|e| {
        let dir = place.0.display().to_string();
        std::mem::forget(place);
        format!("{e} ({dir})")
    })
}

fn compare_in(place: &Place, disks: &[Disk]) -> Result<(), String> {
    let whole = disks.iter().all(|d| !d.is_empty());
    let copies = || disks.iter().map(Disk::image).collect::<Vec<_>>();
    let mode = if whole {
        Mode::ReadWrite { epoch: 77 }
    } else {
        Mode::ReadOnly
    };
    let served = contents(copies(), mode, u64::MAX)?;
    let (image, lost) = match (rescued(place, disks, true), &served) {
        (Ok(r), _) => r,
        (Err(_), Err(_)) => return Ok(()),
        (Err(e), Ok(_)) => return Err(format!("refused: {e}")),
    };
    let served = served.map_err(|e| format!("the engine refuses it: {e}"))?;
    let accepted = Mode::Degraded {
        epoch: 78,
        loss: Loss::Accepted,
    };
    let accepted = if whole {
        None
    } else {
        contents(copies(), accepted, u64::MAX)?.ok()
    };
    let gone = |at: usize| lost.iter().any(|&(from, to)| from <= at && at < to);
    for (i, cell) in served.iter().enumerate() {
        let (at, ours) = (i * CELL, &image[i * CELL..(i + 1) * CELL]);
        if gone(at) == cell.is_some() {
            let is = if cell.is_some() { "served" } else { "an error" };
            return Err(format!("byte {at} is {is}, and rescue says otherwise"));
        }
        let theirs = accepted.as_ref().map_or(cell, |a| &a[i]).as_ref();
        if theirs.is_some_and(|c| c[..] != *ours) {
            return Err(format!("byte {at} differs: {theirs:?} {ours:?}"));
        }
    }
    Ok(())
}

fn var(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|v| v.parse().ok())
}

/// Compares the images of a scenario; two threads share the seeds.
fn all(name: &str, default: u64, make: impl Fn(u64) -> Scenario + Sync) {
    let (from, to) = match (var("ISOTHERM_SEED"), var("ISOTHERM_SEEDS")) {
        (Some(s), _) => (s, s + 1),
        (None, n) => {
            let base = var("ISOTHERM_SEED_BASE").unwrap_or(0);
            (base, base + n.unwrap_or(default))
        }
    };
    let (make, images) = (&make, &AtomicU32::new(0));
    let one = move |seed| {
        let (s, mut life) = (make(seed), 0);
        each_crash(s, |disks| {
            life += 1;
            let check = |disks: &[Disk], what| {
                images.fetch_add(1, Ordering::Relaxed);
                compare(disks).map_err(|e| format!("{what}, after life {life}: {e}"))
            };
            check(disks, "as the crash left it")?;
            check(
                &interrupted(disks, seed ^ life),
                "after an opening that was interrupted",
            )?;
            if s.lose_fast && life == 1 {
                let mut left: Vec<Disk> = disks.iter().map(Disk::image).collect();
                left[0] = Disk::new(0);
                check(&left, "without member 0")?;
                check(&interrupted(&left, seed), "without member 0, interrupted")?;
            }
            Ok(())
        })
        .map_err(|e| format!("{name}: ISOTHERM_SEED={seed}: {e}"))
    };
    let errors: Vec<String> = std::thread::scope(|scope| {
        let halves = [0, 1].map(|half| {
            let seeds = (from..to).filter(move |s| s % 2 == half);
            scope.spawn(move || seeds.filter_map(|s| one(s).err()).collect::<Vec<_>>())
        });
        halves
            .into_iter()
            .flat_map(|h| h.join().expect("a scenario panicked"))
            .collect()
    });
    println!("{name}: {} images", images.load(Ordering::Relaxed));
    assert!(
        errors.is_empty(),
        "{} of them differ:\n{}",
        errors.len(),
        errors[..errors.len().min(10)].join("\n")
    );
}

#[test]
fn tiering_volumes_are_read_without_us() {
    all("tiering volumes", 6, |seed| Scenario {
        shape: [
            Shape::Small,
            Shape::TwoFast,
            Shape::TwoSlow,
            Shape::ThreeTiers,
            Shape::Roomy,
            Shape::Large,
        ][seed as usize % 6],
        copies: seed % 3 == 1,
        lose_fast: seed % 4 == 1,
        ..Scenario::new(seed)
    });
}

#[test]
fn cache_volumes_are_read_without_us() {
    all("cache volumes", 9, |seed| Scenario {
        shape: [Shape::Cache, Shape::CacheOfFour, Shape::CacheOfThree][seed as usize % 3],
        cache: Some(seed % 4 == 0),
        copies: true,
        lose_cache: seed % 4 == 1,
        lose_fast: seed % 4 == 3,
        lives: 4,
        ..Scenario::new(seed)
    });
}

#[test]
fn changed_volumes_are_read_without_us() {
    all("changed volumes", 5, |seed| Scenario {
        shape: [
            Shape::Cache,
            Shape::CacheOfFour,
            Shape::Roomy,
            Shape::CacheOfThree,
            Shape::TwoSlow,
        ][seed as usize % 5],
        cache: matches!(seed % 5, 0 | 1 | 3).then_some(seed % 2 == 0),
        copies: true,
        lose_cache: seed % 3 == 0,
        replace: true,
        grow: seed % 3 != 0 && !matches!(seed % 5, 2 | 4),
        end_well: (seed % 3) as u32,
        lives: 5,
        ..Scenario::new(seed)
    });
}

#[test]
fn members_are_read_after_openings_that_were_cut() {
    for (i, disks) in cut_openings().expect("the scenes").iter().enumerate() {
        let mode = Mode::Degraded {
            epoch: 77,
            loss: Loss::Refused,
        };
        let copies = disks.iter().map(Disk::image).collect();
        let served = contents(copies, mode, u64::MAX).expect("an image");
        let served = served.expect("the engine opens it");
        let (image, lost) = rescued(&Place::new(), disks, false).expect("rescue reads it");
        assert!(lost.is_empty(), "image {i}: {lost:?}");
        for (at, cell) in served.iter().enumerate() {
            let theirs = &image[at * CELL..(at + 1) * CELL];
            assert_eq!(cell.as_ref().map(|c| &c[..]), Some(theirs), "image {i}");
        }
    }
}

#[test]
fn members_are_read_after_changes_of_flash_that_were_cut() {
    for (i, disks) in cut_changes().expect("the scenes").iter().enumerate() {
        compare(disks).unwrap_or_else(|e| panic!("image {i}: {e}"));
    }
}

/// Some blocks of metadata are damaged. What rescue then gives without consent is what the engine serves, or if that refuses, what was there
/// before.
fn damaged(seed: u64, disks: &[Disk]) -> Result<bool, String> {
    let copies = || disks.iter().map(Disk::image).collect::<Vec<_>>();
    let mode = Mode::ReadWrite { epoch: 79 };
    let (mut rng, mut left) = (Rng::new(seed), copies());
    for _ in 0..=rng.below(4) {
        let disk = rng.below(left.len() as u64) as usize;
        let (blocks, flash) = (left[disk].len() as u64 / 4096, disk < left.len() / 2);
        let block = match rng.below(4) {
            0 => blocks - 1 - rng.below(3),
            1 => [0, 2, 3][rng.below(3) as usize],
            _ if flash => 4 + rng.below(16),
            _ => 0,
        };
        left[disk].corrupt(block % blocks * 4096 + 8 * rng.below(24), 8);
    }
    let place = Place::new();
    let Ok((image, lost)) = rescued(&place, &left, false) else {
        return Ok(false);
    };
    let served = contents(left, mode, u64::MAX)?.or_else(|_| contents(copies(), mode, u64::MAX)?);
    let served: Vec<u8> = served?.into_iter().flatten().flatten().collect();
    let differs = (0..image.len()).find(|&i| image[i] != served[i]);
    match differs {
        None if lost.is_empty() => Ok(true),
        at => Err(format!(
            "byte {at:?} is wrong, and nothing is said ({lost:?})"
        )),
    }
}

#[test]
fn damage_is_never_shown() {
    let seeds = var("ISOTHERM_SEEDS").unwrap_or(20);
    let mut counts = [0, 0];
    for seed in var("ISOTHERM_SEED").map_or(0..seeds, |s| s..s + 1) {
        let shape = [Shape::Cache, Shape::Roomy, Shape::CacheOfFour][seed as usize % 3];
        let cache = (seed % 3 != 1).then_some(false);
        let ring = Some(64).filter(|_| seed % 2 == 0);
        let s = Scenario {
            shape,
            cache,
            ring,
            copies: true,
            ..Scenario::new(seed)
        };
        each_crash(s, |disks| {
            counts[usize::from(damaged(seed, disks)?)] += 1;
            Ok(())
        })
        .unwrap_or_else(|e| panic!("ISOTHERM_SEED={seed}: {e}"));
    }
    println!("{counts:?} refused, given");
    assert!(counts.iter().all(|n| *n > 0) || var("ISOTHERM_SEED").is_some());
}

/// Runs the script with a power failure at its write or flush number `cut`: each sector that was not flushed is kept or lost on its own.
const POWER_FAILS: &str = r#"
import os, random, runpy, sys
script, cut, rng = sys.argv[1], int(sys.argv[2]), random.Random(int(sys.argv[3]))
sys.argv = sys.argv[3:]
write, sync, unflushed, steps = os.pwrite, os.fsync, [], 0
def step():
    global steps
    if steps == cut:
        for fd, at, old in reversed(unflushed):
            for i in range(0, len(old), 512):
                if rng.random() < 0.5:
                    write(fd, old[i:i + 512], at + i)
        os._exit(9)
    steps += 1
def pwrite(fd, data, at):
    unflushed.append((fd, at, os.pread(fd, len(data), at)))
    write(fd, data, at)
    step()
    return len(data)
def fsync(fd):
    step()
    unflushed[:] = [u for u in unflushed if u[0] != fd]
os.pwrite, os.fsync = pwrite, fsync
runpy.run_path(script, run_name="__main__")
"#;

/// `--in-place` on the members of a cache volume, in files.
struct InPlace {
    _place: Place,
    seed: u64,
    files: Vec<PathBuf>,
    /// Slots of its disks, which are the last members.
    slots: &'static [usize],
}

impl InPlace {
    fn new(seed: u64, disks: &[Disk], slots: &'static [usize]) -> InPlace {
        let place = Place::new();
        let name = |i| place.0.join(format!("member{i}"));
        let files: Vec<PathBuf> = (0..disks.len()).map(name).collect();
        for (file, disk) in files.iter().zip(disks) {
            fs::write(file, disk.read(0, disk.len())).expect("write a member");
        }
        InPlace {
            _place: place,
            seed,
            files,
            slots,
        }
    }

    /// Runs the script, with a power failure at this step; returns its exit code and its words.
    fn run(&self, cut: u64, members: &[&PathBuf]) -> (Option<i32>, String) {
        let mut python = Command::new("python3");
        python.args(["-c", POWER_FAILS, SCRIPT]);
        python.args([cut.to_string(), self.seed.to_string()]);
        python.args(["--in-place", "--yes"]).args(members);
        let out = python.output().expect("run python3");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        (out.status.code(), said)
    }

    /// Runs it to its end. A disk that was given back already is no member any more, and is left out.
    fn finish(&self) -> Result<(), String> {
        let mut left: Vec<&PathBuf> = self.files.iter().collect();
        while left.len() > self.files.len() - self.slots.len() {
            let (code, said) = self.run(u64::MAX, &left);
            let is_back = |f: &&PathBuf| said.contains(&format!("{}: no", f.display()));
            match left.iter().position(is_back) {
                _ if code == Some(0) => break,
                Some(i) => drop(left.remove(i)),
                None => return Err(format!("then: {said}")),
            }
        }
        Ok(())
    }

    /// Before flash stops to count, the engine serves the same as before; afterwards it refuses.
    fn engine_agrees(&self, served: &[u8]) -> Result<(), String> {
        let disk = |file| Disk::holding(fs::read(file).expect("read a member"));
        let disks = self.files.iter().map(disk).collect();
        match contents(disks, Mode::ReadWrite { epoch: 6 }, u64::MAX)? {
            Ok(now) if now.iter().flatten().flatten().eq(served) => Ok(()),
            Ok(_) => Err("the engine serves other data".into()),
            Err(words) if words.contains("release") || words.contains("missing") => Ok(()),
            Err(words) => Err(words),
        }
    }

    /// The disks hold the volume, each its part.
    fn is_plain(&self, served: &[u8]) -> Result<(), String> {
        let (mut from, first) = (0, self.files.len() - self.slots.len());
        for (file, slots) in self.files[first..].iter().zip(self.slots) {
            let now = fs::read(file).expect("read a member");
            if now[..slots * 4096] != served[from..from + slots * 4096] {
                return Err(format!("the disk {} is another", file.display()));
            }
            from += slots * 4096;
        }
        Ok(())
    }
}

/// Gives back the disks of this volume, with a power failure at each step (or at some of them); returns the number of failures.
fn give_back(seed: u64, disks: &[Disk], slots: &'static [usize]) -> Result<u32, String> {
    let copies = disks.iter().map(Disk::image).collect();
    let served = contents(copies, Mode::ReadWrite { epoch: 5 }, u64::MAX)??;
    let served: Vec<u8> = served.into_iter().flatten().flatten().collect();
    let (mut cut, mut cuts) = (seed % 3, 0);
    loop {
        let volume = InPlace::new(seed, disks, slots);
        let (code, said) = volume.run(cut, &volume.files.iter().collect::<Vec<_>>());
        let after = match code {
            Some(0) => return volume.is_plain(&served).map(|()| cuts),
            Some(9) => volume.engine_agrees(&served).and_then(|()| volume.finish()),
            _ => Err(said),
        };
        after
            .and_then(|()| volume.is_plain(&served))
            .map_err(|e| format!("stopped at step {cut}: {e}"))?;
        (cut, cuts) = (cut + 1 + seed % 5, cuts + 1);
    }
}

#[test]
fn disks_are_given_back_through_power_failures() {
    let (mut cuts, seeds) = (0, var("ISOTHERM_SEEDS").unwrap_or(3));
    for seed in var("ISOTHERM_SEED").map_or(0..seeds, |s| s..s + 1) {
        let (shape, slots): (_, &[usize]) = match seed % 3 {
            0 => (Shape::Cache, &[24]),
            1 => (Shape::CacheOfFour, &[11, 13]),
            _ => (Shape::CacheOfThree, &[24]),
        };
        let (mut life, s) = (
            0,
            Scenario {
                shape,
                cache: Some(false),
                copies: true,
                lives: 2,
                ..Scenario::new(seed)
            },
        );
        each_crash(s, |disks| {
            life += 1;
            if life == 1 {
                cuts += give_back(seed, disks, slots)?;
            }
            Ok(())
        })
        .unwrap_or_else(|e| panic!("ISOTHERM_SEED={seed}: {e}"));
    }
    println!("{cuts} power failures");
}
