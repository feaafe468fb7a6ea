//! Parts of large files through the kernel: with its caches, without them, and in mappings.

use crate::world::{World, run};
use isotherm_core::random::SplitMix64;
use isotherm_files::fuse::Io;
use isotherm_files::mover::Outcome;
use isotherm_files::ranges::RANGE;
use isotherm_files::store::Settings;
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::sync::atomic::Ordering;

fn ranged(s: &mut Settings) {
    s.copies = true;
    (s.ranges.from, s.ranges.percent) = (RANGE, 1);
}

/// Without the kernel's cache, so that each read comes to the program.
fn direct(w: &World, path: &str) -> File {
    let mut how = OpenOptions::new();
    how.read(true).write(true);
    how.custom_flags(OFlags::DIRECT.bits() as i32);
    how.open(w.at(path)).unwrap()
}

/// Pieces that were read from the fast tier, and from the slow one.
fn counts(w: &World) -> (u64, u64) {
    let ranges = &w.mounted.as_ref().unwrap().store.copies.ranges;
    let get = |n: &std::sync::atomic::AtomicU64| n.load(Ordering::Relaxed);
    (get(&ranges.hits), get(&ranges.misses))
}

/// An image of which few parts are hot: these are read from the fast tier, and the image stays where it is.
#[test]
fn the_hot_parts_of_an_image_come_from_the_fast_tier() {
    let Some(mut w) = World::new(ranged, Io::Cached) else {
        return;
    };
    w.unmount();
    let image = File::create(w.on("slow", "image")).unwrap();
    image.set_len(2 << 30).unwrap();
    let parts: Vec<u64> = (0..40).map(|n| n * 797 * RANGE).collect();
    for (n, at) in (1..).zip(&parts) {
        image.write_all_at(&vec![n; RANGE as usize], *at).unwrap();
    }
    drop(image);
    // What reads it only at the mount is not noticed as a change of the tier.
    w.settings.moves = true;
    w.mount();
    let file = direct(&w, "image");
    let mut random = SplitMix64::new(3);
    let mut read = |count: u32| {
        let before = counts(&w);
        for _ in 0..count {
            // The first ones most.
            let n = random.below(40).min(random.below(40)).min(random.below(40));
            let mut bytes = [0; 4096];
            let at = parts[n as usize] + random.below(15) * 4096;
            file.read_exact_at(&mut bytes, at).unwrap();
            assert!(bytes == [n as u8 + 1; 4096]);
            if random.below(20) == 0 {
                file.read_exact_at(&mut bytes, random.below(2 << 18) * 4096)
                    .unwrap();
            }
        }
        let now = counts(&w);
        (now.0 - before.0, now.1 - before.1)
    };
    read(2000);
    let (hits, misses) = read(2000);
    assert!(
        hits > 1800 && misses < 300,
        "{hits} from flash, {misses} not"
    );
    let why = w.ask("image", "why");
    assert_eq!((&why["tier"], &why["copy"]), (&1.into(), &false.into()));
    assert!(why["ranges"]["hits"].as_u64().unwrap() >= 1800, "{why}");
    assert!(w.on("slow", "image").exists() && !w.on("fast", "image").exists());
    drop(file);
    // A remount begins anew, and a mount without the option does not see any.
    w.unmount();
    w.mount();
    assert!(w.ask("image", "why")["ranges"]["ranges"] == 0);
    let mut bytes = [0; 10];
    let file = direct(&w, "image");
    file.read_exact_at(&mut bytes, parts[7]).unwrap();
    assert_eq!(bytes, [8; 10]);
}

/// Reads and writes by calls, without the kernel's cache, and in mappings, of one file by two handles, while its ranges are kept.
#[test]
fn mappings_and_direct_calls_see_each_other() {
    for io in [Io::Cached, Io::Writeback] {
        let Some(w) = World::new(ranged, io) else {
            return;
        };
        std::fs::write(w.at("f"), vec![1; 6 * RANGE as usize + 1000]).unwrap();
        assert_eq!(w.send("f", 1), Outcome::Done);
        run(
            "python3 - <<'P'
import mmap, os, random
R = 65536
random.seed(4)
want = bytearray(b'\\x01' * (6 * R + 1000))
f = os.open('f', os.O_RDWR)
d = os.open('f', os.O_RDWR | os.O_DIRECT)
m = mmap.mmap(f, len(want))
def check(at, n):
    for what, got in (('direct', os.pread(d, n, at)), ('call', os.pread(f, n, at)), ('mapping', m[at:at + n])):
        assert got == bytes(want[at:at + n]), (what, at, n)
for step in range(400):
    at = random.randrange(len(want) - 9000); n = random.randrange(1, 9000)
    data = bytes([random.randrange(256)]) * n
    kind = step % 4
    if kind == 0: m[at:at + n] = data; m.flush()
    elif kind == 1: os.pwrite(f, data, at); os.fsync(f)
    elif kind == 2: os.pwrite(d, data, at)
    if kind < 3: want[at:at + n] = data
    for _ in range(3): check(at, n); os.pread(d, 4096, at // R * R)
check(0, len(want))
os.ftruncate(f, 2 * R + 5)
assert os.pread(d, 9, 2 * R) == bytes(want[2 * R:2 * R + 5])
os.ftruncate(f, len(want))
assert os.pread(d, R, 2 * R) == bytes(want[2 * R:2 * R + 5]) + bytes(R - 5)
P",
            &w.at(""),
        );
        let (hits, misses) = counts(&w);
        assert!(hits > 100, "{hits} {misses}");
        assert_eq!(
            std::fs::metadata(w.on("slow", "f")).unwrap().size(),
            6 * RANGE + 1000
        );
    }
}
