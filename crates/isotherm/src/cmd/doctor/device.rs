//! What the kernel and the drive itself say of a device.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{Finding, Level};

/// What the kernel says of a device (Documentation/ABI/stable/sysfs-block). Everything of a file is unknown but its size.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    /// Its size.
    pub bytes: u64,
    /// The drive that it is on, as the kernel names it.
    pub disk: Option<String>,
    /// The path of the drive's device file.
    node: Option<PathBuf>,
    /// `write back` if it has a volatile cache that it must be told to flush.
    write_cache: String,
    zoned: String,
    rotational: bool,
    /// The drive's place among the buses, as a path.
    bus: String,
    /// First byte of the partition.
    start: u64,
    /// Bytes that the drive reads and writes at once.
    physical: u64,
}

impl Facts {
    /// The facts about the device at `path`; `/sys` is below `root`.
    pub(super) fn of(path: &Path, root: &Path) -> Facts {
        let Ok(meta) = fs::metadata(path) else {
            return Facts::default();
        };
        if !meta.file_type().is_block_device() {
            return Facts {
                bytes: meta.len(),
                ..Facts::default()
            };
        }
        let (major, minor) = (
            rustix::fs::major(meta.rdev()),
            rustix::fs::minor(meta.rdev()),
        );
        let own = root.join(format!("sys/dev/block/{major}:{minor}"));
        Facts::of_sysfs(&own)
    }

    fn of_sysfs(own: &Path) -> Facts {
        let Ok(own) = fs::canonicalize(own) else {
            return Facts::default();
        };
        let is_partition = own.join("partition").exists();
        let drive = match own.parent().filter(|_| is_partition) {
            Some(drive) => drive.to_owned(),
            None => own.clone(),
        };
        let text = |at: PathBuf| fs::read_to_string(at).unwrap_or_default().trim().to_owned();
        let number = |at: PathBuf| text(at).parse::<u64>().unwrap_or(0);
        let name = drive.file_name().map(|n| n.to_string_lossy().into_owned());
        Facts {
            bytes: number(own.join("size")) * 512,
            node: name
                .as_ref()
                .map(|n| Path::new("/dev").join(n.replace('!', "/"))),
            disk: name,
            write_cache: text(drive.join("queue/write_cache")),
            zoned: text(drive.join("queue/zoned")),
            rotational: number(drive.join("queue/rotational")) == 1,
            bus: drive.display().to_string(),
            start: number(own.join("start")) * 512,
            physical: number(drive.join("queue/physical_block_size")),
        }
    }

    /// What is wrong with the device or at risk.
    pub(super) fn findings(&self, name: &str, is_flash: bool) -> Vec<Finding> {
        let mut found = Vec::new();
        let mut say =
            |level, what: String, todo: &str| found.push(Finding::new(level, name, what, todo));
        if self.zoned == "host-managed" {
            let todo = "use another disk: it takes only writes in order";
            say(Level::Wrong, "is a host-managed SMR disk".into(), todo);
        }
        if self.physical > 0 && !self.start.is_multiple_of(self.physical) {
            let what = format!(
                "its partition begins at byte {}, in the middle of a block of {} bytes: each write is read, changed and written",
                self.start, self.physical
            );
            say(
                Level::Risk,
                what,
                "make the partition anew, at a multiple of 1 MiB, and `isotherm replace` it",
            );
        }
        if is_flash && self.rotational {
            say(
                Level::Risk,
                "is a disk, and the tier is for flash".into(),
                "give the volume an SSD (`isotherm replace`)",
            );
        }
        if self.write_cache == "write through" && self.bus.contains("/usb") {
            let todo = "if its adapter has no battery, switch the drive's cache off (`hdparm -W 0`), or use SATA or NVMe";
            say(Level::Risk, "is behind USB and says that it has no write cache: a flush may not reach the drive".into(), todo);
        }
        if is_flash && self.write_cache == "write back" {
            let todo =
                "nothing is lost; a drive with power-loss protection answers a FLUSH at once";
            say(
                Level::Note,
                "has a volatile write cache: each FLUSH waits until it is empty".into(),
                todo,
            );
        }
        found
    }
}

/// What the drive reports of its own health, by smartctl(8).
///
/// # Errors
/// Why nothing is known.
pub(super) fn smart(facts: &Facts, name: &str, todo: &str) -> Result<Vec<Finding>, String> {
    let Some(node) = &facts.node else {
        return Err("it is a file".into());
    };
    let mut command = Command::new("smartctl");
    let out = command.args(["--json", "-H", "-A"]).arg(node).output();
    let out = out.map_err(|_| "smartctl is not installed (package smartmontools)".to_owned())?;
    let said: Value = serde_json::from_slice(&out.stdout).map_err(|e| format!("smartctl: {e}"))?;
    judged(&said, name, todo).ok_or_else(|| "the drive reports none".to_owned())
}

/// The findings in smartctl's answer; `None` if it has none of what is looked for.
fn judged(said: &Value, name: &str, todo: &str) -> Option<Vec<Finding>> {
    let nvme = &said["nvme_smart_health_information_log"];
    let table = said["ata_smart_attributes"]["table"].as_array();
    let passed = said["smart_status"]["passed"].as_bool();
    if nvme.is_null() && table.is_none() && passed.is_none() {
        return None;
    }
    let mut found = Vec::new();
    let mut say = |level, what: String| found.push(Finding::new(level, name, what, todo));
    if passed == Some(false) {
        say(Level::Wrong, "the drive says that it fails".into());
    }
    if let Some(n) = nvme["critical_warning"].as_u64().filter(|&n| n > 0) {
        say(
            Level::Wrong,
            format!("the drive reports critical warning {n}"),
        );
    }
    if let Some(n) = nvme["percentage_used"].as_u64().filter(|&n| n >= 80) {
        say(
            Level::Risk,
            format!("{n} % of its write endurance are used"),
        );
    }
    let errors = nvme["media_errors"].as_u64().filter(|&n| n > 0);
    if let Some(n) = errors {
        say(Level::Risk, format!("the drive counts {n} media errors"));
    }
    // Reallocated, pending and uncorrectable sectors.
    for row in table.into_iter().flatten() {
        let id = row["id"].as_u64().unwrap_or(0);
        let raw = row["raw"]["value"].as_u64().unwrap_or(0);
        if [5, 197, 198].contains(&id) && raw > 0 {
            let what = row["name"].as_str().unwrap_or("bad sectors");
            say(Level::Risk, format!("the drive counts {raw} of {what}"));
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn facts(of: &[(&str, &str)], is_partition: bool) -> Facts {
        let dir = tempfile::tempdir().expect("a directory");
        let drive = dir.path().join("sys/devices/pci/usb1/block/sdz");
        let own = if is_partition {
            drive.join("sdz1")
        } else {
            drive.clone()
        };
        for d in [own.clone(), drive.join("queue")] {
            fs::create_dir_all(d).expect("made");
        }
        if is_partition {
            fs::write(own.join("partition"), "1\n").expect("written");
        }
        for (name, text) in of {
            let at = if name.contains('/') {
                drive.join(name)
            } else {
                own.join(name)
            };
            fs::write(at, format!("{text}\n")).expect("written");
        }
        Facts::of_sysfs(&own)
    }

    fn words(found: &[Finding]) -> String {
        let all: Vec<String> = (found.iter())
            .map(|f| format!("{}: {}", f.level.word(), f.what))
            .collect();
        all.join("\n")
    }

    #[test]
    fn the_kernel_is_asked() {
        let f = facts(
            &[
                ("size", "2048"),
                ("start", "63"),
                ("queue/physical_block_size", "4096"),
                ("queue/write_cache", "write through"),
            ],
            true,
        );
        assert_eq!((f.bytes, f.disk.as_deref()), (1 << 20, Some("sdz")));
        let said = words(&f.findings("x", false));
        assert!(
            said.contains("begins at byte 32256") && said.contains("behind USB"),
            "{said}"
        );
        let good = [
            ("size", "2048"),
            ("start", "2048"),
            ("queue/physical_block_size", "4096"),
            ("queue/write_cache", "write back"),
        ];
        assert_eq!(words(&facts(&good, true).findings("x", false)), "");
        let said = words(&facts(&good, true).findings("x", true));
        assert!(
            said.starts_with("note: has a volatile write cache"),
            "{said}"
        );
        let said = words(
            &facts(
                &[("queue/zoned", "host-managed"), ("queue/rotational", "1")],
                false,
            )
            .findings("x", true),
        );
        assert!(
            said.contains("wrong: is a host-managed") && said.contains("is a disk"),
            "{said}"
        );
        assert_eq!(words(&facts(&[], false).findings("x", true)), "");
    }

    #[test]
    fn the_drive_is_asked() {
        let of = |v: Value| judged(&v, "x", "").map(|f| words(&f));
        assert_eq!(of(json!({})), None);
        assert_eq!(
            of(json!({"smart_status": {"passed": true}})),
            Some(String::new())
        );
        let nvme = |used: u64, warning: u64| json!({"nvme_smart_health_information_log": {"percentage_used": used, "critical_warning": warning, "media_errors": 0}});
        assert_eq!(of(nvme(79, 0)), Some(String::new()));
        assert_eq!(
            of(nvme(80, 0)),
            Some("risk: 80 % of its write endurance are used".into())
        );
        assert_eq!(
            of(nvme(3, 4)),
            Some("wrong: the drive reports critical warning 4".into())
        );
        let ata = |id: u64, raw: u64| json!({"smart_status": {"passed": false}, "ata_smart_attributes": {"table": [{"id": id, "name": "Current_Pending_Sector", "raw": {"value": raw}}]}});
        assert_eq!(
            of(ata(9, 9000)),
            Some("wrong: the drive says that it fails".into())
        );
        let said = of(ata(197, 8)).unwrap_or_default();
        assert!(
            said.contains("risk: the drive counts 8 of Current_Pending_Sector"),
            "{said}"
        );
    }
}
