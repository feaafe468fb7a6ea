//! What a volume shows on this machine: it is no place for a member of the same volume, and a killed server leaves no name that leads elsewhere.
//! Needs root and loop devices.

mod common;

use common::loop_device::LoopDevice;
use common::nbd::{MIB, noise};
use common::{Place, Served};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

fn run(words: &[&str]) {
    let out = Command::new(words[0]).args(&words[1..]).output();
    let out = out.expect("the program starts");
    assert!(
        out.status.success(),
        "{words:?}: {}",
        String::from_utf8_lossy(&out.stderr)
    );
}

/// Directories of its own for devices and what is at run time; `None` without root.
fn place() -> Option<Place> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root");
        return None;
    }
    let place = Place::new();
    for dir in ["dev", "run", "mnt", "mnt2", "bf"] {
        fs::create_dir(place.path(dir)).expect("made");
    }
    Some(place)
}

fn serve(place: &Place, call: &str) -> Served {
    let mut command = place.command(&format!("serve {call}"));
    command.env("ISOTHERM_DEVICE_DIR", place.path("dev"));
    command.env("ISOTHERM_RUNTIME_DIR", place.path("run"));
    Place::wait_ready(command, call)
}

/// A mount that ends with this value.
struct Mount(String);

impl Mount {
    fn of(device: &str, at: &Path) -> Mount {
        let at = at.display().to_string();
        run(&["mount", "-o", "noatime", device, &at]);
        Mount(at)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

fn is_refused(place: &Place, call: &str) {
    let mut command = place.command(call);
    command.env("ISOTHERM_RUNTIME_DIR", place.path("run"));
    let out = command.output().expect("the program starts");
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "`{call}`: {said}");
    assert!(
        said.contains("lies on this volume itself"),
        "`{call}`: {said}"
    );
}

/// It would wait for its own writes in the kernel, where even SIGKILL does not reach it.
#[test]
fn a_member_on_the_volume_itself_is_refused() {
    let Some(place) = place() else { return };
    place.ok("create v --fast f:32M --slow s:256M --policy lru");
    let served = serve(&place, "v --loop");
    let device = place.path("dev/v").display().to_string();
    run(&["mkfs.ext4", "-q", &device]);
    let mounted = Mount::of(&device, &place.path("mnt"));
    let kept = noise(1, 4 * MIB);
    fs::write(place.path("mnt/kept"), &kept).expect("written");
    let remove = |call: &str| {
        let mut command = place.command(call);
        command.env("ISOTHERM_RUNTIME_DIR", place.path("run"));
        assert!(command.status().expect("run").success(), "{call}");
    };
    is_refused(&place, "replace v mnt/new:300M --member 1");
    is_refused(&place, "replace v mnt/new:32M --member 0 --empty");
    is_refused(&place, "cache v add mnt/new:32M");
    remove("cache v remove");
    is_refused(&place, "cache v add mnt/new:32M");
    assert!(!place.path("mnt/new").exists(), "a refusal makes nothing");
    let file = fs::File::create(place.path("mnt/image"));
    file.and_then(|f| f.set_len(32 << 20)).expect("sized");
    if let Some(over) = LoopDevice::over(&place, &[], "mnt/image") {
        is_refused(&place, &format!("cache v add {}", over.0));
    }
    // The way through another volume.
    place.ok("create w --fast f2:16M --slow mnt/w:64M --policy lru");
    let other = serve(&place, "w --block-file bf");
    run(&["mkfs.ext4", "-q", &place.path("bf/w").display().to_string()]);
    if let Some(over) = LoopDevice::over(&place, &[], "bf/w") {
        let _through = Mount::of(&over.0, &place.path("mnt2"));
        is_refused(&place, "cache v add mnt2/new:32M");
    }
    assert_eq!(other.terminate(), Some(0));
    assert_eq!(fs::read(place.path("mnt/kept")).expect("read"), kept);
    remove("cache v add f3:32M");
    drop(mounted);
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn a_killed_server_leaves_no_name_that_leads_elsewhere() {
    let Some(place) = place() else { return };
    let link = place.path("dev/v");
    place.ok("create v --fast f:16M --slow s:64M --policy lru");
    serve(&place, "v --loop").kill();
    assert!(link.is_symlink(), "nobody could remove it");
    let served = serve(&place, "v --block-file bf");
    assert!(!link.is_symlink(), "the next server removes it");
    assert_eq!(served.terminate(), Some(0));
    // The device is gone, and the number is another one's now.
    fs::write(place.path("foreign"), vec![0; MIB]).expect("written");
    if let Some(foreign) = LoopDevice::over(&place, &[], "foreign") {
        symlink(&foreign.0, &link).expect("linked");
        let served = serve(&place, "v --nbd unix:n");
        assert!(!link.is_symlink(), "it led to another's device");
        assert_eq!(served.terminate(), Some(0));
    }
    // A link of another volume to the device that this one gets.
    for n in 0..256 {
        let to = format!("../loop{n}");
        symlink(to, place.path(&format!("dev/gone{n}"))).expect("linked");
    }
    let served = serve(&place, "v --loop");
    let own = fs::read_link(&link).expect("a link");
    let leads_here = |to: &PathBuf| to.file_name() == own.file_name();
    let names = fs::read_dir(place.path("dev")).expect("read");
    let here = names.filter(|n| {
        let name = n.as_ref().expect("an entry").path();
        fs::read_link(name).is_ok_and(|to| leads_here(&to))
    });
    assert_eq!(here.count(), 1);
    assert_eq!(served.terminate(), Some(0));
    serve(&place, "v --loop").kill();
    let mut command = place.command("release v --yes");
    command.env("ISOTHERM_DEVICE_DIR", place.path("dev"));
    command.env("ISOTHERM_RUNTIME_DIR", place.path("run"));
    assert!(command.status().expect("run").success());
    assert!(!link.is_symlink(), "the end of the volume");
}
