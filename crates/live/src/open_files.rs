//! The processes that have a file open, by what `/proc` says of their descriptors. Nothing on the file system of the file is touched, because
//! its server may be the one that asks.

use std::fs;
use std::path::Path;

/// The name of a process that has `path` open, or works in the directory `path`; udev, which looks at each device for a moment, does not count.
/// `None`: no process that can be seen from here has it. What is left then is the system's own work of closing it.
pub(crate) fn user_of(path: &Path) -> Option<String> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = all.filter(|p| {
        let name = p.file_name();
        name.as_encoded_bytes().iter().all(u8::is_ascii_digit)
    });
    numbers.map(|p| p.path()).find_map(|process| {
        let files = fs::read_dir(process.join("fd"));
        let mut links = files.into_iter().flatten().flatten().map(|f| f.path());
        let uses = |link: &Path| fs::read_link(link).is_ok_and(|to| to == path);
        if !links.any(|l| uses(&l)) && !uses(&process.join("cwd")) {
            return None;
        }
        let name = fs::read_to_string(process.join("comm")).ok()?;
        let name = name.trim().to_owned();
        (!name.contains("udev")).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_file_and_a_working_directory_have_a_user() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let path = dir.join("file");
        let file = fs::File::create(&path).unwrap();
        assert!(user_of(&path).is_some());
        drop(file);
        assert_eq!(user_of(&path), None);
        let mut child = std::process::Command::new("sleep");
        let mut child = child.arg("1000").current_dir(&dir).spawn().unwrap();
        assert!(user_of(&dir).is_some());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(user_of(&dir), None);
    }
}
