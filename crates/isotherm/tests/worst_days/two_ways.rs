//! Two servers that reach the same bytes through file systems that people use: each has a page cache of its own, or hides the first one's locks.

use super::{MIB, flush};
use crate::common::Place;
use crate::common::peer::{Peer, wait_for};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A mounted file system; dropping it unmounts it and ends its server.
struct Mounted {
    at: PathBuf,
    servers: Vec<Child>,
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A failure leaves a mount below the temporary directory; there is no remedy here.
        let _ = Command::new("umount").arg("--lazy").arg(&self.at).status();
        for child in &mut self.servers {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Whether `path` is a mount point.
fn is_mount(path: &Path) -> bool {
    let out = Command::new("mountpoint").arg("-q").arg(path).status();
    out.is_ok_and(|s| s.success())
}

/// Runs commands that mount at `at`, in the foreground or not. `None`, with a message, if one is missing or refuses.
fn mounted(name: &str, at: &Path, mut commands: Vec<Command>) -> Option<Mounted> {
    let mut mount = Mounted {
        at: at.to_owned(),
        servers: Vec::new(),
    };
    for command in &mut commands {
        let child = command.stderr(Stdio::null()).spawn();
        let Ok(child) = child else {
            println!("skipped: `{name}` is not installed");
            return None;
        };
        mount.servers.push(child);
    }
    let begun = std::time::Instant::now();
    while !is_mount(at) {
        let ended = |c: &mut Child| c.try_wait().ok().flatten().is_some_and(|s| !s.success());
        if mount.servers.iter_mut().any(ended) || begun.elapsed().as_secs() > 60 {
            println!("skipped: `{name}` cannot mount here");
            return None;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    Some(mount)
}

/// A command of words, and paths at their end.
fn command(words: &str, paths: &[&Path]) -> Command {
    let mut words = words.split(' ');
    let mut c = Command::new(words.next().unwrap_or_default());
    c.args(words).args(paths).stdin(Stdio::null());
    c
}

fn bindfs(from: &Path, to: &Path) -> Option<Mounted> {
    mounted("bindfs", to, vec![command("bindfs -f", &[from, to])])
}

/// Both are at the upper layer.
fn overlay(from: &Path, to: &Path) -> Option<Mounted> {
    let (lower, work) = (from.with_extension("lower"), from.with_extension("work"));
    for dir in [&lower, &work] {
        fs::create_dir_all(dir).expect("made");
    }
    let how = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.display(),
        from.display(),
        work.display()
    );
    let words = format!("mount -t overlay overlay -o {how}");
    mounted("overlay", to, vec![command(&words, &[to])])
}

/// `sshfs` with the server of SFTP at its other end, without a network between them.
fn sshfs(from: &Path, to: &Path) -> Option<Mounted> {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("sockets");
    let end = |s: &std::os::unix::net::UnixStream| {
        let s = s.try_clone().expect("cloned");
        Stdio::from(std::os::fd::OwnedFd::from(s))
    };
    let mut server = command("/usr/lib/openssh/sftp-server", &[]);
    server.stdin(end(&theirs)).stdout(end(&theirs));
    let mut client = Command::new("sshfs");
    let place = format!(":{}", from.display());
    client.args(["-f", "-o", "passive,kernel_cache", &place]);
    client.arg(to).stdin(end(&ours)).stdout(end(&ours));
    mounted("sshfs", to, vec![server, client])
}

type Way = fn(&Path, &Path) -> Option<Mounted>;

/// A volume whose member is `real/lun`, its description for the way `view/lun`, and the file system between them.
fn with_two_ways(place: &Place, way: Way) -> Option<(Mounted, [String; 2])> {
    let (real, view) = (place.path("real"), place.path("view"));
    for dir in [&real, &view, &place.path("other")] {
        fs::create_dir(dir).expect("made");
    }
    place.ok("create v --slow real/lun:64M --policy linear");
    let mount = way(&real, &view)?;
    let text = fs::read_to_string(place.path("v.toml")).expect("read");
    let (real, view) = (real.display().to_string(), view.display().to_string());
    fs::write(place.path("other/v.toml"), text.replace(&real, &view)).expect("written");
    Some((mount, ["v".into(), "other/v".into()]))
}

/// Whichever way the first server takes, the second one is refused, also as one of another machine, and nothing is lost.
#[test]
fn no_second_way_to_the_bytes_lets_two_servers_in() {
    let ways: [(&str, Way); 3] = [("bindfs", bindfs), ("overlay", overlay), ("sshfs", sshfs)];
    for (name, way) in ways {
        let place = Place::new();
        let Some((_mount, descriptions)) = with_two_ways(&place, way) else {
            continue;
        };
        let mut number = 0;
        for (first, second) in [(0, 1), (1, 0)] {
            let (first, second) = (&descriptions[first], &descriptions[second]);
            let served = place.serve(&format!("{first} --nbd unix:n --stop-timeout 0"));
            let mut peer = Peer::connect(&place.path("n")).expect("connected");
            peer.write(0, &[1; 4096]).expect("written");
            assert_eq!(flush(&mut peer), 0);
            let call = format!("serve {second} --nbd unix:m");
            let why = place.fails(&call);
            let is_told = |w: &str| w.contains("is served by process") || w.contains("in use");
            assert!(is_told(&why), "{name}, {call}: {why}");
            let before: u8 = number;
            let over = std::sync::atomic::AtomicBool::new(false);
            let order = std::sync::atomic::Ordering::Relaxed;
            std::thread::scope(|s| {
                let writes = s.spawn(|| {
                    let mut last = before;
                    while !over.load(order) {
                        last += 1;
                        peer.write(MIB, &[last; 4096]).expect("written");
                        assert_eq!(flush(&mut peer), 0);
                        std::thread::sleep(std::time::Duration::from_millis(20));
                        last %= 250;
                    }
                    last
                });
                let out = place.elsewhere(&call).map(|mut c| c.output());
                over.store(true, order);
                number = writes.join().expect("no panic");
                if let Some(out) = out {
                    let out = out.expect("it starts");
                    let why = String::from_utf8_lossy(&out.stderr);
                    assert!(
                        !out.status.success() && is_told(&why),
                        "{name}, {call}: {why}"
                    );
                }
            });
            drop(peer);
            assert_eq!(served.terminate(), Some(0));
            let served = place.serve(&format!("{second} --nbd unix:m --stop-timeout 0"));
            let mut peer = Peer::connect(&place.path("m")).expect("connected");
            let read = peer.read(MIB, 4096).expect("read");
            assert_eq!(read, [number; 4096], "{name}");
            drop(peer);
            assert_eq!(served.terminate(), Some(0));
        }
    }
}

/// What stores whole files some time after they were closed hides a server and loses what was flushed: nothing is served from there.
#[test]
fn a_file_system_that_stores_files_when_they_are_closed_is_refused() {
    let rclone = |from: &Path, to: &Path| {
        let cache = to.with_extension("cache");
        let mut c = command("rclone mount --vfs-cache-mode full --config /dev/null", &[]);
        c.arg("--cache-dir").arg(cache).args([from, to]);
        mounted("rclone", to, vec![c])
    };
    let place = Place::new();
    let Some((_mount, _)) = with_two_ways(&place, rclone) else {
        return;
    };
    wait_for("the mount to show the member", || {
        place.path("view/lun").exists().then_some(())
    });
    for call in [
        "serve other/v --nbd unix:m",
        "create w --slow view/new:64M --policy linear",
        "replace v view/new:64M --member 0",
    ] {
        let why = place.fails(call);
        let wanted = "stores files whole after they were closed";
        assert!(
            why.contains(wanted) && why.contains("view/"),
            "{call}: {why}"
        );
    }
    assert!(!place.path("view/new").exists());
    assert!(!place.path("w.toml").exists());
    let served = place.serve("v --nbd unix:n --stop-timeout 0");
    assert_eq!(served.terminate(), Some(0));
}
