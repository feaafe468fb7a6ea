//! Writer, file system and server in one small memory group: memory can be freed only by writing to the volume, so the server must not wait
//! for memory to do this. The test fails if it hangs.

mod proof;

use proof::{Loop, Mounted, Place, Shape, able, in_group, output, run};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Shared by the server's locked memory, the writer and the page cache of the file system.
const LIMIT: &str = "100663296";
/// Amount of data that the writer makes dirty: several times the limit.
const MEGABYTES: u64 = 400;

/// A memory control group that is removed at the end of the test.
struct Group(PathBuf);

impl Group {
    fn new() -> Option<Group> {
        let name = format!("isotherm-test-{}", std::process::id());
        let (root, limit) = if Path::new("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists() {
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
        } else if Path::new("/sys/fs/cgroup/cgroup.controllers").exists() {
            // The controller must be enabled for child groups; if this fails, the limit file is missing below.
            let _ = std::fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
            ("/sys/fs/cgroup", "memory.max")
        } else {
            println!("skipped: no memory control groups here");
            return None;
        };
        let group = Group(Path::new(root).join(name));
        let made =
            std::fs::create_dir(&group.0).and_then(|()| std::fs::write(group.0.join(limit), LIMIT));
        if let Err(e) = made {
            println!("skipped: {}: {e}", group.0.display());
            return None;
        }
        Some(group)
    }
    /// Number of times that the limit was reached: the proof that memory was short.
    fn pressure(&self) -> u64 {
        let v1 = std::fs::read_to_string(self.0.join("memory.failcnt"));
        let v2 = || {
            let events = std::fs::read_to_string(self.0.join("memory.events")).ok()?;
            events
                .lines()
                .find_map(|l| l.strip_prefix("max ")?.parse().ok())
        };
        v1.ok()
            .and_then(|n| n.trim().parse().ok())
            .or_else(v2)
            .unwrap_or(0)
    }
    fn oom_kills(&self) -> u64 {
        ["memory.oom_control", "memory.events"]
            .iter()
            .filter_map(|f| std::fs::read_to_string(self.0.join(f)).ok())
            .find_map(|t| {
                t.lines()
                    .find_map(|l| l.strip_prefix("oom_kill ")?.parse().ok())
            })
            .unwrap_or(0)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..100 {
            // The group is busy until its last process is gone.
            if std::fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

#[test]
fn writer_and_server_in_one_small_memory_group_do_not_deadlock() {
    if !able(&["mkfs.ext4", "losetup", "dd", "sha256sum"], true) {
        return;
    }
    let Some(group) = Group::new() else { return };
    let mut place = Place::new(&Shape {
        fast: "64M",
        slow: "640M",
        // If they were files, the server would write them with memory that the file system below takes from the group. That file system does not
        // wait for this memory, so the kernel kills the largest process if the writer's pages cannot be freed for a moment.
        devices: true,
        // Where the kernel offers FUSE over io_uring, its buffers alone would take half of the group.
        io: "fuse_ring = false\nbuffers = \"8M\"\nmove_buffers = 4\nqueue_depth = 64\nstage_blocks = 256",
        ..Shape::default()
    });
    place.group = Some(group.0.clone());
    let disk = Loop::over(&place.serve_file());
    run("mkfs.ext4", &["-q", "-F", &disk.0]);
    let mounted = Mounted::new(&disk.0, place.path("fs"));
    let (source, target) = (place.path("source"), mounted.0.join("data"));
    // The data is not compressible; the original stays outside the volume, for comparison.
    let made = output(
        Command::new("dd")
            .args(["if=/dev/urandom", "bs=1M", "status=none"])
            .arg(format!("count={MEGABYTES}"))
            .arg(format!("of={}", source.display())),
    );
    assert!(made.status.success());
    for round in 0..2 {
        let copy = output(
            in_group(&group.0, "dd")
                .args(["bs=1M", "conv=fsync", "status=none"])
                .arg(format!("if={}", source.display()))
                .arg(format!("of={}", target.display())),
        );
        assert!(
            copy.status.success(),
            "round {round}: {}",
            String::from_utf8_lossy(&copy.stderr)
        );
        assert!(place.is_serving());
    }
    let sums = run("sha256sum", &[source.to_str().expect("text")]);
    mounted.unmount();
    // Reads from the volume, not from the cache.
    let mounted = Mounted::new(&disk.0, place.path("fs"));
    let back = output(in_group(&group.0, "sha256sum").arg(&target));
    assert_eq!(
        String::from_utf8_lossy(&back.stdout).split(' ').next(),
        sums.split(' ').next()
    );
    mounted.unmount();
    drop(disk);
    place.stop();
    println!(
        "the limit was met {} times, {} killed",
        group.pressure(),
        group.oom_kills()
    );
    assert!(group.pressure() > 0, "no pressure: nothing was shown");
    assert_eq!(group.oom_kills(), 0, "somebody was killed for memory");
    drop(place);
}
