//! The places of volumes that are named without a directory, and of their sockets.
//!
//! ```text
//! v ─► ./v.toml or ./v.sock ─► $XDG_CONFIG_HOME/isotherm/v.toml (not for root) ─► /etc/isotherm/v.toml
//!           │ socket ./v.sock        │ socket $XDG_RUNTIME_DIR/isotherm/v.sock         │ root's: /run/isotherm/v.sock
//! ```
//! A name with a slash is always a path. `ISOTHERM_CONFIG_DIR` and `ISOTHERM_RUNTIME_DIR` replace the system's directories.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use isotherm_live::volume::description;

use crate::beside;

/// Descriptions of the machine's volumes.
pub const SYSTEM_CONFIG: &str = "/etc/isotherm";
/// Sockets of the machine's volumes.
pub const SYSTEM_RUNTIME: &str = "/run/isotherm";
/// Of these, in a directory of this name, the sockets of volumes without room for one beside their description.
const SPARE: &str = "sockets";
/// Stable names of the volumes' devices.
pub const SYSTEM_DEVICES: &str = "/dev/isotherm";

fn variable(name: &str) -> Option<PathBuf> {
    let value = std::env::var_os(name).filter(|v| !v.is_empty())?;
    Some(value.into())
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The directories of descriptions, in order of preference.
pub fn config_dirs() -> Vec<PathBuf> {
    if let Some(dir) = variable("ISOTHERM_CONFIG_DIR") {
        return vec![dir];
    }
    let mut dirs = Vec::new();
    if !is_root() {
        let home = variable("HOME").map(|h| h.join(".config"));
        let own = variable("XDG_CONFIG_HOME").or(home);
        dirs.extend(own.map(|d| d.join("isotherm")));
    }
    dirs.push(SYSTEM_CONFIG.into());
    dirs
}

/// The directory for the sockets of volumes from those directories; `None` for a user who has no such directory.
pub fn runtime_dir() -> Option<PathBuf> {
    if let Some(dir) = variable("ISOTHERM_RUNTIME_DIR") {
        return Some(dir);
    }
    if is_root() {
        return Some(SYSTEM_RUNTIME.into());
    }
    let session = variable("XDG_RUNTIME_DIR").or_else(own_session);
    session.map(|d| d.join("isotherm"))
}

/// The user's runtime directory of a process without a session's variables, as under sudo or cron.
fn own_session() -> Option<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let dir = PathBuf::from(format!("/run/user/{user}"));
    let about = fs::symlink_metadata(&dir).ok()?;
    (about.is_dir() && about.uid() == user).then_some(dir)
}

/// All directories with sockets that this user may use.
pub fn runtime_dirs() -> Vec<PathBuf> {
    let mut dirs: Vec<PathBuf> = runtime_dir().into_iter().collect();
    if variable("ISOTHERM_RUNTIME_DIR").is_none() && !is_root() {
        dirs.push(SYSTEM_RUNTIME.into());
    }
    dirs
}

/// The directory for links to devices.
pub fn device_dir() -> PathBuf {
    variable("ISOTHERM_DEVICE_DIR").unwrap_or_else(|| SYSTEM_DEVICES.into())
}

/// The path of the volume that a command line calls `name`. A path is used unchanged; a bare name is searched for.
pub fn find(name: &Path) -> PathBuf {
    resolve(name, &config_dirs())
}

/// The path of the volume that is called `name`. It is used unchanged if it has a slash, or if the volume is in the working directory or
/// nowhere.
fn resolve(name: &Path, dirs: &[PathBuf]) -> PathBuf {
    let bare = name.components().count() == 1 && name.file_name() == Some(name.as_os_str());
    if !bare || description(name).exists() || beside(name, ".sock").exists() {
        return name.to_owned();
    }
    let places = dirs.iter().map(|d| d.join(name));
    places
        .into_iter()
        .find(|p| description(p).exists())
        .unwrap_or_else(|| name.to_owned())
}

/// Whether the description of `volume` is in one of the machine's (or the user's) directories.
pub fn is_registered(volume: &Path) -> bool {
    let Some(dir) = std::path::absolute(volume)
        .ok()
        .and_then(|p| p.parent().map(Path::to_owned))
    else {
        return false;
    };
    config_dirs()
        .iter()
        .any(|d| std::path::absolute(d).is_ok_and(|d| d == dir))
}

/// The control socket of volume `p/v`: `p/v.sock`, or a socket in the runtime directory for a volume of the machine.
pub fn socket_path(volume: &Path) -> PathBuf {
    let name = volume.file_name().filter(|_| is_registered(volume));
    let Some(name) = name else {
        return beside(volume, ".sock");
    };
    let inside = |dir: &PathBuf| beside(&dir.join(name), ".sock");
    let all: Vec<PathBuf> = runtime_dirs().iter().map(inside).collect();
    let taken = all.iter().find(|p| p.exists()).cloned();
    let own = runtime_dir().map(|d| inside(&d));
    taken.or(own).unwrap_or_else(|| beside(volume, ".sock"))
}

/// The socket at which a server of `volume` listens. Its directory is created.
///
/// # Errors
/// The directory cannot be created.
pub fn socket_to_listen(volume: &Path) -> io::Result<PathBuf> {
    let (Some(name), Some(dir)) = (
        volume.file_name().filter(|_| is_registered(volume)),
        runtime_dir(),
    ) else {
        return Ok(beside(volume, ".sock"));
    };
    make_dir(&dir)?;
    Ok(beside(&dir.join(name), ".sock"))
}

/// The socket of this process if there is no room where [`socket_to_listen`] is. Its directory is created.
pub fn spare_to_listen() -> Option<PathBuf> {
    let dir = runtime_dir()?.join(SPARE);
    make_dir(&dir).ok()?;
    Some(dir.join(format!("{}.sock", std::process::id())))
}

/// The sockets of processes that have recorded that they serve `volume` and had no room for its own socket.
pub fn spare_sockets(volume: &Path) -> Vec<PathBuf> {
    let place = |v: &Path| fs::canonicalize(description(v)).ok();
    let wanted = place(volume);
    let ours = |(note, served): (PathBuf, PathBuf)| {
        let dir = note.parent()?.parent()?.join(SPARE);
        let socket = beside(&dir.join(note.file_name()?), ".sock");
        (wanted.is_some() && place(&served) == wanted && socket.exists()).then_some(socket)
    };
    notes().into_iter().filter_map(ours).collect()
}

/// Creates a directory, if it does not exist, that other users may read and not write.
///
/// # Errors
/// It cannot be created.
pub fn make_dir(dir: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(dir)
}

/// The directories with the records of served volumes; the first one is for those of this user. Without a runtime directory (`su`, cron) it is
/// in the home directory, which other machines may share and which outlives a boot, so it has the boot's number in its name.
fn records() -> Vec<PathBuf> {
    let all = |dirs: Vec<PathBuf>| dirs.into_iter().map(|d| d.join("served")).collect();
    if variable("ISOTHERM_RUNTIME_DIR").is_some() || is_root() {
        return all(runtime_dirs());
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let home = variable("XDG_STATE_HOME").or(variable("HOME").map(|h| h.join(".local/state")));
    let home = home.map(|h| h.join("isotherm").join(boot.trim()));
    let user = rustix::process::geteuid().as_raw();
    let session = PathBuf::from(format!("/run/user/{user}/isotherm"));
    let own = runtime_dir().into_iter().chain(home);
    all(own.chain([session, SYSTEM_RUNTIME.into()]).collect())
}

/// A file in the runtime directory that records which process serves which volume, so that `list` finds volumes from anywhere. Dropping the
/// value removes the file.
pub struct Registered(Option<PathBuf>);

impl Registered {
    /// Writes the record. A user who has neither a runtime directory nor a home is not listed but serves all the same.
    pub fn new(volume: &Path) -> Registered {
        let note = || {
            let dir = records().into_iter().next()?;
            make_dir(&dir).ok()?;
            let note = dir.join(std::process::id().to_string());
            // A record left behind by an earlier process with the same process id.
            let _ = fs::remove_file(&note);
            let target = std::path::absolute(volume).ok()?;
            std::os::unix::fs::symlink(target, &note).ok()?;
            Some(note)
        };
        Registered(note())
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(note) = &self.0 {
            // If this fails, the record is ignored, because no server listens there.
            let _ = fs::remove_file(note);
        }
    }
}

/// The records of processes that serve volumes, and the volumes.
fn notes() -> Vec<(PathBuf, PathBuf)> {
    let notes = records().into_iter().filter_map(|d| fs::read_dir(d).ok());
    notes
        .flatten()
        .flatten()
        .filter_map(|n| {
            let alive = Path::new("/proc").join(n.file_name()).exists();
            if !alive {
                // Its process was killed. If the record cannot be removed, the next server replaces it.
                let _ = fs::remove_file(n.path());
            }
            let served = alive.then(|| fs::read_link(n.path()).ok())?;
            Some((n.path(), served?))
        })
        .collect()
}

/// Volumes that processes of this machine have recorded as served.
pub fn served_volumes() -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = notes().into_iter().map(|n| n.1).collect();
    all.sort();
    all
}

/// Volumes that have a description in the machine's directories (or the user's).
pub fn described_volumes() -> Vec<PathBuf> {
    let mut all = Vec::new();
    for dir in config_dirs() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension() == Some(OsStr::new("toml")) && path.is_file() {
                all.push(path.with_extension(""));
            }
        }
    }
    all.sort();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_names_are_looked_up_and_paths_are_left_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let (first, second) = (dir.path().join("a"), dir.path().join("b"));
        for d in [&first, &second] {
            fs::create_dir(d).expect("made");
            fs::write(d.join("vol-1.2.toml"), "").expect("written");
        }
        fs::write(second.join("only.toml"), "").expect("written");
        let dirs = [first.clone(), second.clone()];
        let of = |name: &str| resolve(Path::new(name), &dirs);
        assert_eq!(of("vol-1.2"), first.join("vol-1.2"));
        assert_eq!(of("only"), second.join("only"));
        assert_eq!(of("nowhere"), Path::new("nowhere"));
        assert_eq!(of("./only"), Path::new("./only"));
        assert_eq!(of("x/only"), Path::new("x/only"));
        assert_eq!(of(".."), Path::new(".."));
    }
}
