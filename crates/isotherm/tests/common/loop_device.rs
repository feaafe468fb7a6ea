//! A loop device over a file of the test directory.

use super::Place;
use std::process::Command;
use std::time::Duration;

/// The path of a loop device, which is detached when this value is dropped.
pub struct LoopDevice(pub String);

impl LoopDevice {
    /// Attaches a file, with further `options` of `losetup`. Without loop devices, prints the reason and returns `None`.
    pub fn over(place: &Place, options: &[&str], name: &str) -> Option<LoopDevice> {
        let call = Command::new("losetup")
            .args(["--find", "--show"])
            .args(options)
            .arg(name)
            .current_dir(place.path("."))
            .output();
        let why = match call {
            Ok(out) if out.status.success() => {
                let device = String::from_utf8_lossy(&out.stdout).trim().to_owned();
                return Some(LoopDevice(device));
            }
            Ok(out) => String::from_utf8_lossy(&out.stderr).into_owned(),
            Err(e) => e.to_string(),
        };
        println!("skipped: no loop device: {why}");
        None
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // Best effort: if the test failed, it has reported the reason.
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
        // The device disappears when the last process has closed it, and any search for members on this machine opens it for a moment.
        let shown = format!("/sys/block/{}/loop", self.0.trim_start_matches("/dev/"));
        for _ in 0..2000 {
            if !std::fs::exists(&shown).unwrap_or(false) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
