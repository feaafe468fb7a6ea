//! Whether the devices below a member are there again after the next boot, as far as files in `/etc` say so; and who else reads them.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use isotherm_live::stack::tree::{Node, Tree};

use super::{Finding, Level};

/// A member, and the system that boots.
pub(super) struct Boot<'a> {
    /// The member's path.
    pub name: &'a str,
    /// The volume's name, as in `/dev/isotherm/NAME`.
    pub volume: &'a str,
    pub tree: &'a Tree,
    /// Whether it is a disk that is sent to sleep.
    pub sleeps: bool,
    /// The directory that has `etc`.
    pub root: &'a Path,
}

/// Lines of a table in `/etc` as words, without comments.
fn table(root: &Path, file: &str) -> Result<Vec<Vec<String>>, ErrorKind> {
    let text = match fs::read_to_string(root.join(file)) {
        Ok(text) => text,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e.kind()),
    };
    let words = |l: &str| l.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let lines = text.lines().filter(|l| !l.trim_start().starts_with('#'));
    Ok(lines.map(words).filter(|l| !l.is_empty()).collect())
}

/// The UUID in the name that cryptsetup gives a device: `CRYPT-LUKS2-<32 digits>-NAME`.
fn luks_uuid(uuid: &str) -> Option<String> {
    let hex = uuid
        .split('-')
        .nth(2)
        .filter(|h| h.len() == 32 && h.is_ascii())?;
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    Some(parts.join("-"))
}

impl Boot<'_> {
    /// What will be missing, and what could not be read.
    pub(super) fn findings(&self, unknown: &mut Vec<String>) -> Vec<Finding> {
        let mut found = Vec::new();
        for node in &self.tree.nodes {
            let file = if node.is_crypt() {
                "etc/crypttab"
            // What cryptsetup makes for LUKS with integrity is opened with it.
            } else if node.uuid().starts_with("CRYPT-INTEGRITY-") && !node.path().ends_with("_dif")
            {
                "etc/integritytab"
            } else {
                continue;
            };
            match table(self.root, file) {
                Ok(lines) => found.extend(self.opened(node, file, &lines)),
                Err(e) => unknown.push(format!(
                    "{}: whether {} is opened at boot: /{file}: {e}",
                    self.name,
                    node.path()
                )),
            }
        }
        found.extend(self.scanned());
        found
    }

    fn opened(&self, node: &Node, file: &str, lines: &[Vec<String>]) -> Option<Finding> {
        let path = node.path();
        let name = path.trim_start_matches("/dev/mapper/");
        let say =
            |level, what: String, todo: String| Some(Finding::new(level, self.name, what, todo));
        let Some(line) = lines.iter().find(|l| l.first().is_some_and(|n| n == name)) else {
            let what = format!(
                "{path} is not in /{file}: after the next boot it is closed, and the volume lacks this member"
            );
            let below = node.below.first().and_then(|&at| self.tree.nodes.get(at));
            let device = luks_uuid(node.uuid()).map_or_else(
                || below.map_or_else(String::new, Node::path),
                |uuid| format!("UUID={uuid}"),
            );
            let kind = if node.uuid().contains("LUKS") {
                " none luks"
            } else {
                ""
            };
            return say(
                Level::Risk,
                what,
                format!("echo '{name} {device}{kind}' | sudo tee -a /{file}"),
            );
        };
        let word = |n: usize| line.get(n).map_or("", String::as_str);
        let has = |wanted: &[&str]| word(3).split(',').any(|o| wanted.contains(&o));
        if has(&["noauto"]) {
            let what = format!("{path} is not opened at boot (noauto in /{file})");
            return say(
                Level::Risk,
                what,
                format!("take noauto out of the line of {name}"),
            );
        }
        if let Some(mount) = self
            .mounts()
            .into_iter()
            .find(|m| m != "/" && Path::new(word(2)).starts_with(m))
        {
            let what = format!(
                "the key of {path} lies on {mount}, which is on this volume: neither can be opened first"
            );
            let todo = format!(
                "keep the key elsewhere (systemd-cryptenroll for a TPM), and change the line of {name} in /{file}"
            );
            return say(Level::Wrong, what, todo);
        }
        if file == "etc/crypttab"
            && self.mounts().iter().any(|m| m == "/")
            && !has(&["initramfs", "x-initrd.attach"])
        {
            let what = format!(
                "{path} is opened too late: the root file system is on this volume, and the initramfs opens only what is marked"
            );
            let todo = format!(
                "the option `initramfs` (with dracut: x-initrd.attach) in the line of {name} in /{file}, then update-initramfs -u"
            );
            return say(Level::Risk, what, todo);
        }
        None
    }

    /// Where fstab mounts the volume.
    fn mounts(&self) -> Vec<String> {
        let device = format!("/dev/isotherm/{}", self.volume);
        let lines = table(self.root, "etc/fstab").unwrap_or_default();
        let own = lines
            .into_iter()
            .filter(|l| l.first().is_some_and(|d| *d == device));
        own.filter_map(|l| l.get(1).cloned()).collect()
    }

    /// LVM reads every device that nobody excludes, when it looks for its own.
    fn scanned(&self) -> Option<Finding> {
        let at = |file: &str| self.root.join("etc/lvm").join(file);
        let own = self.tree.nodes.first()?;
        let is_lvm = own.uuid().starts_with("LVM-");
        if !self.sleeps
            || is_lvm
            || !at("lvm.conf").exists()
            || at("devices/system.devices").exists()
        {
            return None;
        }
        let text = |file| fs::read_to_string(at(file)).unwrap_or_default();
        let both = text("lvm.conf") + &text("lvmlocal.conf");
        let is_filter = |l: &str| l.starts_with("global_filter") || l.starts_with("filter");
        if both.lines().any(|l| is_filter(l.trim_start())) {
            return None;
        }
        let what = "should sleep, and LVM reads it when it looks for its own devices (vgcreate, pvs -a), because no filter excludes it";
        let todo = format!(
            "global_filter = [ \"r|^{}$|\" ] in the section devices of /etc/lvm/lvm.conf",
            self.name
        );
        Some(Finding::new(Level::Note, self.name, what, todo))
    }
}
