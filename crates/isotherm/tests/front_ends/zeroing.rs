//! File systems on a plain loop device over the block file of a volume with blocks of 4 KiB. The loop device has sectors of 512 bytes, so
//! file systems with smaller blocks zero and discard parts of the volume's blocks. Old data lies everywhere underneath: none of it may be
//! seen in a file, nor by `fsck`.
//!
//! Usually only ext4 with small blocks is tried; `ISOTHERM_FILE_SYSTEMS=all` tries the others too (some minutes).

use super::common::Place;
use super::common::loop_device::LoopDevice;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// A file system: how it is made and checked, and the size of the slow member, MiB.
struct FileSystem {
    make: &'static str,
    check: &'static str,
    mib: u64,
    usual: bool,
}

const FILE_SYSTEMS: [FileSystem; 5] = [
    // Everything is zeroed at once, by the kernel's call for that; the journal too.
    FileSystem {
        make: "mkfs.ext4 -q -b 1024 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0",
        check: "fsck.ext4 -fn",
        mib: 80,
        usual: true,
    },
    FileSystem {
        make: "mkfs.ext4 -q -b 2048",
        check: "fsck.ext4 -fn",
        mib: 80,
        usual: true,
    },
    FileSystem {
        make: "mkfs.ext4 -q -b 4096 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0",
        check: "fsck.ext4 -fn",
        mib: 80,
        usual: false,
    },
    FileSystem {
        make: "mkfs.xfs -q -b size=1024 -K",
        check: "xfs_repair -n",
        mib: 400,
        usual: false,
    },
    FileSystem {
        make: "mkfs.btrfs -q -K",
        check: "btrfs check",
        mib: 400,
        usual: false,
    },
];

/// Runs a command line; `None`, with a message, if its program is missing.
fn run(line: &str) -> Option<()> {
    let mut words = line.split_whitespace();
    let program = words.next().expect("a program");
    match Command::new(program).args(words).output() {
        Ok(out) => {
            let said = [out.stdout, out.stderr].concat();
            assert!(
                out.status.success(),
                "{line}: {}",
                String::from_utf8_lossy(&said)
            );
            Some(())
        }
        Err(e) => {
            println!("skipped: {program}: {e}");
            None
        }
    }
}

/// A mounted file system, which is unmounted in any case.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn on(device: &str, at: &'a Path) -> Mounted<'a> {
        run(&format!("mount -o discard {device} {}", at.display())).expect("mount exists");
        Mounted(at)
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        run(&format!("umount {}", self.0.display()));
    }
}

/// The same files everywhere, with holes, zeroed ranges and reserved space at places that are no multiples of 4 KiB. Without `really` zeros
/// are simply written.
fn make_files(dir: &Path, really: bool) {
    for n in 0..48u64 {
        let name = dir.join(format!("file{n}"));
        let data: Vec<u8> = (0..40_000 + n * 1500)
            .map(|i| (i / 512 + n) as u8 | 1)
            .collect();
        std::fs::write(&name, &data).expect("written");
        let file = std::fs::OpenOptions::new()
            .write(true)
            .open(&name)
            .expect("open");
        let end = data.len() as u64;
        let ranges = [
            ("-p", n * 512 + 1024, 512 + n % 9 * 1024),
            ("-z", n * 512 + 14_336, 1024 + n % 5 * 512),
            ("", end, 9000),
        ];
        for (mode, from, len) in ranges {
            if really {
                let name = name.display();
                let line = format!("fallocate {mode} -o {from} -l {len} {name}");
                run(&line).expect("fallocate exists");
            } else {
                file.write_all_at(&vec![0; len as usize], from)
                    .expect("written");
            }
        }
        // A part of the reserved space becomes data: what surrounds it must become zeros.
        file.write_all_at(&[77; 700], end + 3000).expect("written");
        if n % 3 == 0 {
            std::fs::remove_file(&name).expect("removed");
        }
    }
}

fn check_equal(dir: &Path, plain: &Path, what: &str) {
    for entry in std::fs::read_dir(plain).expect("listed") {
        let name = entry.expect("listed").file_name();
        let [got, want] = [dir, plain].map(|d| std::fs::read(d.join(&name)).expect("read"));
        let wrong = got.iter().zip(&want).position(|(a, b)| a != b);
        assert_eq!(
            (got.len(), wrong),
            (want.len(), None),
            "{what}: {}",
            name.display()
        );
    }
}

fn check(fs: &FileSystem) -> Option<()> {
    let place = Place::in_memory();
    run(&format!(
        "truncate -s {}M {}",
        fs.mib,
        place.path("slow").display()
    ))?;
    let sectors = LoopDevice::over(&place, &["--sector-size", "4096"], "slow")?;
    place.ok(&format!("create v --fast fast:16M --slow {}", sectors.0));
    std::fs::create_dir(place.path("shown")).expect("made");
    let served = place.serve("v --block-file shown");
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(place.path("shown/v"))
        .expect("open");
    let bytes = file.metadata().expect("known").len();
    let old = vec![b'D'; 1 << 20];
    for at in (0..bytes).step_by(1 << 20) {
        file.write_all_at(&old[..(bytes - at).min(1 << 20) as usize], at)
            .expect("written");
    }
    drop(file);
    let device = LoopDevice::over(&place, &["--direct-io=on"], "shown/v")?;
    run(&format!("{} {}", fs.make, device.0))?;
    run(&format!("{} {}", fs.check, device.0))?;
    let (top, plain) = (place.path("top"), place.path("plain"));
    for dir in [&top, &plain] {
        std::fs::create_dir(dir).expect("made");
    }
    make_files(&plain, false);
    {
        let _mounted = Mounted::on(&device.0, &top);
        make_files(&top, true);
        check_equal(&top, &plain, fs.make);
    }
    run(&format!("{} {}", fs.check, device.0))?;
    {
        // Now from the volume.
        let _mounted = Mounted::on(&device.0, &top);
        check_equal(&top, &plain, fs.make);
    }
    drop(device);
    assert_eq!(served.terminate(), Some(0));
    place.ok("check v");
    drop(sectors);
    Some(())
}

#[test]
fn no_old_data_is_seen_in_file_systems_with_small_blocks() {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        println!("skipped: needs root and /dev/fuse");
        return;
    }
    let all = std::env::var("ISOTHERM_FILE_SYSTEMS").is_ok_and(|v| v == "all");
    let tried = FILE_SYSTEMS.iter().filter(|fs| all || fs.usual);
    for fs in tried {
        if check(fs).is_some() {
            println!("{}: passed", fs.make);
        }
    }
}
