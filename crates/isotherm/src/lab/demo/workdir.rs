//! The directory for all files of the demo.

use std::path::{Path, PathBuf};

use rustix::fs::statvfs;

use crate::Failure;

/// A directory that is removed at the end, unless something is still mounted inside.
pub struct WorkDir(Option<tempfile::TempDir>);

impl WorkDir {
    /// Creates it in `dir`, or in the directory for temporary files, if `room` bytes are free there.
    ///
    /// # Errors
    /// It cannot be created, or there is not enough space.
    pub fn new(dir: Option<&Path>, room: u64) -> Result<WorkDir, Failure> {
        let parent = dir.map_or_else(std::env::temp_dir, Path::to_owned);
        let failed = |e: std::io::Error| Failure::file(&parent, "make the work directory", &e);
        let made = tempfile::Builder::new()
            .prefix("isotherm-demo-")
            .tempdir_in(&parent)
            .map_err(failed)?;
        let space = statvfs(made.path()).map_err(|e| failed(e.into()))?;
        let free = space.f_bavail * space.f_frsize;
        if free < room {
            return Err(Failure::failed(format!(
                "{}: {} MiB free, the demo needs {}: name another place with --dir",
                parent.display(),
                free >> 20,
                room >> 20
            )));
        }
        Ok(WorkDir(Some(made)))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        self.0
            .as_ref()
            .map_or(Path::new(""), tempfile::TempDir::path)
    }

    /// Removes it.
    ///
    /// # Errors
    /// A message that says what is still there.
    pub fn close(mut self) -> Result<(), String> {
        self.end()
    }

    fn end(&mut self) -> Result<(), String> {
        let Some(dir) = self.0.take() else {
            return Ok(());
        };
        let inside = mounts_below(dir.path());
        if inside.is_empty() {
            let path = dir.path().display().to_string();
            return dir.close().map_err(|e| format!("{path}: not removed: {e}"));
        }
        // Deleting here would delete files in the mounted file systems.
        let kept = dir.keep();
        let list: Vec<String> = inside.iter().map(|m| m.display().to_string()).collect();
        Err(format!(
            "left behind: {}: still mounted: {}; unmount, then remove it",
            kept.display(),
            list.join(", ")
        ))
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        if let Err(left) = self.end() {
            eprintln!("isotherm: {left}");
        }
    }
}

/// Mount points inside `dir`.
pub fn mounts_below(dir: &Path) -> Vec<PathBuf> {
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    // The kernel writes blanks as \040. Names of this program have none, but directories above may.
    let points = table
        .lines()
        .filter_map(|l| l.split(' ').nth(1))
        .map(|p| PathBuf::from(p.replace("\\040", " ")));
    points.filter(|p| p.starts_with(dir)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_away_with_its_files_and_refuses_when_space_is_short() {
        let parent = tempfile::tempdir().expect("a directory");
        let w = WorkDir::new(Some(parent.path()), 1).expect("made");
        let path = w.path().to_owned();
        std::fs::write(path.join("x"), "x").expect("written");
        assert_eq!(w.close(), Ok(()));
        assert!(!path.exists());
        let e = WorkDir::new(Some(parent.path()), u64::MAX)
            .err()
            .map(|e| e.to_string())
            .unwrap_or_default();
        assert!(e.contains("--dir"), "{e}");
        assert_eq!(std::fs::read_dir(parent.path()).expect("read").count(), 0);
    }

    #[test]
    fn mounts_are_seen() {
        assert!(mounts_below(Path::new("/")).contains(&PathBuf::from("/")));
    }
}
