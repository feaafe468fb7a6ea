//! The secret that allows changes to a volume.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

use rustix::rand::{GetRandomFlags, getrandom};
use subtle::ConstantTimeEq;

/// Length of a generated token: 256 bits.
const MADE: usize = 64;
/// Shortest token that is accepted; a shorter one could be guessed.
const LEAST: usize = 20;
/// Longest token that is read.
const MOST: u64 = 1024;

/// The token in `file`. If the file does not exist, it is created with a random token and is readable by its owner only.
///
/// # Errors
/// The file cannot be read or created, other users may read it, or its content is too short.
pub fn token(file: &Path) -> Result<String, String> {
    let said = |e: io::Error| format!("{}: {}", file.display(), isotherm_paths::reason(&e));
    match isotherm_paths::read_secret(file, MOST) {
        Ok(text) => {
            let text = text.trim();
            if text.len() < LEAST || !text.bytes().all(|b| b.is_ascii_graphic()) {
                return Err(format!(
                    "{}: a token is one line of at least {LEAST} letters or digits; delete the file to have one made",
                    file.display()
                ));
            }
            Ok(text.to_owned())
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let text = random().map_err(said)?;
            let mut new = isotherm_paths::create(file, 0o600).map_err(said)?;
            writeln!(new, "{text}").map_err(said)?;
            new.sync_all().map_err(said)?;
            Ok(text)
        }
        Err(e) => Err(said(e)),
    }
}

fn random() -> io::Result<String> {
    let mut bytes = [0u8; MADE / 2];
    let mut at = 0;
    while at < bytes.len() {
        at += getrandom(&mut bytes[at..], GetRandomFlags::empty())?;
    }
    let mut text = String::with_capacity(MADE);
    for b in bytes {
        let _ = write!(text, "{b:02x}"); // writing to a String cannot fail
    }
    Ok(text)
}

/// Whether two tokens are equal. The time of the comparison does not depend on how much of the token is right.
pub(crate) fn is_same(known: &str, given: &str) -> bool {
    known.as_bytes().ct_eq(given.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn tokens_are_made_once_and_bad_ones_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("t");
        let made = token(&file).expect("made");
        assert_eq!(made.len(), MADE);
        assert_eq!(token(&file), Ok(made.clone()));
        let mode = fs::metadata(&file).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(is_same(&made, &made) && !is_same(&made, &made[1..]));
        let set = |mode| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).expect("set");
        set(0o644);
        assert!(token(&file).is_err_and(|e| e.contains("chmod 600")));
        set(0o600);
        for bad in ["", "short", "with spaces in between them all"] {
            fs::write(&file, bad).expect("written");
            assert!(
                token(&file).is_err_and(|e| e.contains("at least 20")),
                "{bad}"
            );
        }
        assert!(token(&dir.path().join("no/such")).is_err());
    }
}
