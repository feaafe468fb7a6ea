//! Small files that are read whole.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::OFlags;

/// Bits of a mode that let the group change a file or others do anything with it.
const NOT_OF_ROOT: u32 = 0o037;
/// Bits of a mode that let anybody but the owner do anything.
const NOT_OWN: u32 = 0o077;

fn wrong(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}

/// Opens a regular file. Neither this nor a later read waits for anybody.
fn open(file: &Path) -> io::Result<(File, Metadata)> {
    let refuse = |m: &Metadata| {
        let kind = m.file_type();
        let what = match () {
            () if kind.is_file() => return Ok(()),
            () if kind.is_dir() => "a directory",
            () if kind.is_fifo() => "a pipe",
            () if kind.is_socket() => "a socket",
            () => "a device",
        };
        Err(wrong(format!("is {what}: give a regular file")))
    };
    // The opening of a device can already have an effect.
    refuse(&std::fs::metadata(file)?)?;
    let opened = File::options()
        .read(true)
        .custom_flags((OFlags::NONBLOCK | OFlags::NOCTTY).bits() as i32)
        .open(file)?;
    let m = opened.metadata()?;
    refuse(&m)?;
    Ok((opened, m))
}

fn all_of(file: File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(wrong(format!(
            "has more than {most} bytes: this is no such file"
        )));
    }
    Ok(bytes)
}

/// The contents of a regular file of at most `most` bytes.
///
/// # Errors
/// It is larger, or something else than a regular file, or cannot be read.
pub fn read(file: &Path, most: u64) -> io::Result<Vec<u8>> {
    all_of(open(file)?.0, most)
}

fn text(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|_| wrong("is not text in UTF-8".into()))
}

/// As [`read`], as text.
///
/// # Errors
/// As [`read`], or the contents are no UTF-8.
pub fn read_text(file: &Path, most: u64) -> io::Result<String> {
    text(read(file, most)?)
}

/// As [`read_text`], for a file that nobody else may read: a key, a token, a password.
///
/// # Errors
/// As [`read_text`]; the file belongs to somebody else than this process' user or root; or others than its owner have any right to it. (A
/// service that is not root's may get a file of root's by its group.)
pub fn read_secret(file: &Path, most: u64) -> io::Result<String> {
    let (opened, m) = open(file)?;
    check(m.mode(), m.uid(), rustix::process::geteuid().as_raw(), file)
        .map_err(|what| io::Error::new(io::ErrorKind::PermissionDenied, what))?;
    text(all_of(opened, most)?)
}

/// Whether a secret with this mode and owner is one for the user `own`.
fn check(mode: u32, owner: u32, own: u32, file: &Path) -> Result<(), String> {
    let shown = file.display();
    if owner != own && owner != 0 {
        return Err(format!(
            "belongs to the user with number {owner}, who can change this secret: `chown {own} {shown}`"
        ));
    }
    let others = if owner == own { NOT_OWN } else { NOT_OF_ROOT };
    if mode & others == 0 {
        return Ok(());
    }
    let fix = if owner == own { "600" } else { "640" };
    Err(format!(
        "others may read or change this secret: `chmod {fix} {shown}`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// All nine bits, all three kinds of owner, for root and for another user.
    #[test]
    fn a_secret_is_refused_for_each_bit_that_lets_others_in() {
        let file = Path::new("f");
        for mode in 0..0o1000 {
            for own in [0, 7] {
                let fine = |owner| check(mode | 0o100_000, owner, own, file).is_ok();
                let is_private = matches!(mode & 0o77, 0);
                assert_eq!(fine(own), is_private, "{mode:o} of {own} itself");
                let by_group = [0, 0o40].contains(&(mode & 0o77));
                let want = if own == 0 { is_private } else { by_group };
                assert_eq!(fine(0), want, "{mode:o} of root, for {own}");
                assert!(!fine(8), "{mode:o} of a stranger, for {own}");
            }
        }
        let said = check(0o644, 7, 7, file).unwrap_err();
        assert!(said.contains("`chmod 600 f`"), "{said}");
        let said = check(0o644, 0, 7, file).unwrap_err();
        assert!(said.contains("`chmod 640 f`"), "{said}");
        let said = check(0o600, 8, 0, file).unwrap_err();
        assert!(said.contains("`chown 0 f`"), "{said}");
    }

    #[test]
    fn only_regular_files_are_read_and_nothing_is_waited_for() {
        let dir = tempfile::tempdir().expect("a directory");
        let pipe = dir.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.expect("runs").success());
        let socket = dir.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("binds");
        let zero = Path::new("/dev/zero");
        for (file, word) in [
            (pipe.as_path(), "a pipe"),
            (&socket, "a socket"),
            (zero, "a device"),
            (dir.path(), "a directory"),
        ] {
            for said in [read(file, 9).err(), read_secret(file, 9).err()] {
                let said = said.expect("refused").to_string();
                assert!(said.contains(word), "{said}");
            }
        }
        let file = dir.path().join("file");
        std::fs::write(&file, "123456789").expect("written");
        assert_eq!(read_text(&file, 9).expect("fits"), "123456789");
        assert!(read_text(&file, 8).is_err());
        let set = |mode| std::fs::set_permissions(&file, PermissionsExt::from_mode(mode));
        set(0o604).expect("set");
        assert!(read_secret(&file, 9).is_err());
        set(0o600).expect("set");
        assert_eq!(read_secret(&file, 9).expect("own"), "123456789");
        std::fs::write(&file, [0xff]).expect("written");
        assert!(read_text(&file, 9).is_err());
    }
}
