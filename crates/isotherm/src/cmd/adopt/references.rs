//! Places in the system's configuration that name a device itself, instead of what it holds. After an adoption, such a name leads to the
//! device below the volume.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Files that name devices, below the root directory.
const FILES: [&str; 8] = [
    "etc/fstab",
    "etc/crypttab",
    "etc/mdadm/mdadm.conf",
    "etc/mdadm.conf",
    "etc/lvm/devices/system.devices",
    "etc/default/grub",
    "etc/initramfs-tools/conf.d/resume",
    "etc/exports",
];
/// A line that names the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// The file.
    pub file: PathBuf,
    /// The number of the line, from 1 on.
    pub line: usize,
    /// The name in it.
    pub name: String,
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} line {}: {}",
            self.file.display(),
            self.line,
            self.name
        )
    }
}

/// All lines that name `device`, in files below `root`. (A file that cannot be read names nothing.)
pub fn find(device: &Path, root: &Path) -> Vec<Reference> {
    let own = fs::canonicalize(device).unwrap_or_else(|_| device.to_owned());
    let mut found = Vec::new();
    for file in FILES.map(|f| root.join(f)) {
        let text = fs::read_to_string(&file).unwrap_or_default();
        for (n, line) in text.lines().enumerate() {
            let line = line.split('#').next().unwrap_or_default();
            let words = line.split(|c: char| c.is_whitespace() || matches!(c, '"' | ',' | '\''));
            // `IDNAME=/dev/sda2`, `resume=PARTUUID=12-34`: the name follows the first `=`, unless it has one itself.
            let mut words = words.flat_map(|w| [w, w.split_once('=').map_or("", |p| p.1)]);
            if let Some(name) = words.find(|w| names(w, (device, &own), root)) {
                found.push(Reference {
                    file: file.clone(),
                    line: n + 1,
                    name: name.to_owned(),
                });
            }
        }
    }
    found
}

/// What else must be done when these lines were changed: the early root file system (initramfs) may have copies of their files.
pub fn rebuild(names: &[Reference], root: &Path) -> String {
    let copied = [
        "fstab",
        "crypttab",
        "mdadm.conf",
        "system.devices",
        "resume",
    ];
    let is_copied = |r: &Reference| copied.iter().any(|name| r.file.ends_with(name));
    let tools = [
        ("update-initramfs", "update-initramfs -u"),
        ("dracut", "dracut -f"),
        ("mkinitcpio", "mkinitcpio -P"),
    ];
    let dirs = ["usr/sbin", "usr/bin", "sbin", "bin"].map(|d| root.join(d));
    let has = |tool: &str| dirs.iter().any(|d| d.join(tool).exists());
    let tool = tools.iter().find(|t| has(t.0));
    match tool.filter(|_| names.iter().any(is_copied)) {
        Some((_, call)) => {
            format!(", let `{call}` renew the initramfs, which may have a copy of it")
        }
        None => String::new(),
    }
}

/// Whether a word is a name of the device itself, by any link below `/dev`, or of its partition. UUID and label name what it holds. Other paths
/// are not followed: they may be mounts that hang.
fn names(word: &str, (device, own): (&Path, &Path), root: &Path) -> bool {
    let dev = root.join("dev");
    let link = match word.split_once('=') {
        Some(("PARTUUID", id)) => dev.join("disk/by-partuuid").join(id),
        Some(("PARTLABEL", id)) => dev.join("disk/by-partlabel").join(id),
        _ => PathBuf::from(word),
    };
    let of_contents = ["disk/by-uuid", "disk/by-label"].map(|d| dev.join(d));
    let is_link = link.starts_with(&dev) && !of_contents.iter().any(|d| link.starts_with(d));
    link == device || link == own || (is_link && fs::canonicalize(&link).is_ok_and(|p| p == own))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn names_of_the_device_are_found_and_its_uuid_is_not() {
        let root = tempfile::tempdir().unwrap();
        let at = |p: &str| root.path().join(p);
        for dir in [
            "etc/default",
            "dev/disk/by-partuuid",
            "dev/disk/by-uuid",
            "dev/vg",
        ] {
            fs::create_dir_all(at(dir)).unwrap();
        }
        fs::write(at("dev/sda2"), "").unwrap();
        symlink(at("dev/sda2"), at("dev/disk/by-partuuid/12-34")).unwrap();
        symlink(at("dev/sda2"), at("dev/disk/by-uuid/ab")).unwrap();
        symlink(at("dev/sda2"), at("dev/vg/lv")).unwrap();
        let own = at("dev/sda2").display().to_string();
        let text = format!(
            "UUID=1 / ext4\n# {own} /old ext4\n{own} /data ext4\nPARTUUID=12-34 /x ext4\n{own}2 /y ext4\n{} /z ext4\n",
            at("dev/disk/by-uuid/ab").display()
        );
        fs::write(at("etc/fstab"), text).unwrap();
        let volume = at("dev/vg/lv");
        fs::write(
            at("etc/default/grub"),
            format!("GRUB=\"quiet resume={}\"\n", volume.display()),
        )
        .unwrap();
        let found = find(&at("dev/sda2"), root.path());
        let lines: Vec<(String, usize)> = found
            .iter()
            .map(|r| {
                (
                    r.file.file_name().unwrap().to_string_lossy().into_owned(),
                    r.line,
                )
            })
            .collect();
        assert_eq!(rebuild(&found, root.path()), "");
        fs::create_dir_all(at("usr/bin")).unwrap();
        fs::write(at("usr/bin/dracut"), "").unwrap();
        assert!(rebuild(&found, root.path()).contains("`dracut -f`"));
        assert_eq!(rebuild(&found[2..], root.path()), "");
        assert_eq!(
            lines,
            [("fstab".into(), 3), ("fstab".into(), 4), ("grub".into(), 1)]
        );
    }
}
