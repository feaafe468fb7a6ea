//! CHAP (RFC 1994, with the keys of RFC 7143, section 12.1.3): the initiators that may use the target, and the answers to challenges.

use md5::{Digest, Md5};
use std::fmt;
use std::io;
use std::path::Path;

/// Minimum length of a secret in bytes: RFC 7143 requires 96 random bits.
const SHORTEST: usize = 12;
/// Maximum length of a name and of a secret in bytes.
const LONGEST: usize = 255;

/// Largest file that is read, in bytes.
const BYTES_MAX: u64 = 1 << 20;

/// Names and secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct Secrets {
    /// Initiators: name, secret.
    users: Vec<(String, String)>,
    /// Name and secret of this target, for initiators that authenticate it.
    own: Option<(String, String)>,
}

impl fmt::Debug for Secrets {
    /// Prints the names only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.users.iter().map(|u| u.0.as_str()).collect();
        write!(
            f,
            "Secrets({names:?}, own: {:?})",
            self.own.as_ref().map(|o| &o.0)
        )
    }
}

impl Secrets {
    /// Reads a file: a line `NAME SECRET` for each initiator, `mutual NAME SECRET` for the target itself; `#` begins a comment.
    ///
    /// # Errors
    /// The file cannot be read, users other than its owner can read it, or a line is wrong (the message has its number).
    pub fn load(path: &Path) -> io::Result<Secrets> {
        let place = path.display();
        let failed = |e: io::Error| io::Error::new(e.kind(), format!("{place}: {e}"));
        let text = isotherm_paths::read_secret(path, BYTES_MAX).map_err(failed)?;
        Secrets::parse(&text)
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, format!("{place}: {e}")))
    }

    /// The contents of such a file.
    ///
    /// # Errors
    /// A line is wrong; the message has its number.
    pub fn parse(text: &str) -> Result<Secrets, String> {
        let (mut users, mut own) = (Vec::<(String, String)>::new(), None);
        for (n, line) in (1..).zip(text.lines()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (is_own, name, secret) = match words[..] {
                [] => continue,
                [first, ..] if first.starts_with('#') => continue,
                ["mutual", name, secret] => (true, name, secret),
                [name, secret] => (false, name, secret),
                _ => {
                    return Err(format!(
                        "line {n}: write NAME SECRET, or mutual NAME SECRET"
                    ));
                }
            };
            if !(SHORTEST..=LONGEST).contains(&secret.len()) || name.len() > LONGEST {
                return Err(format!(
                    "line {n}: a secret has {SHORTEST} to {LONGEST} bytes, a name at most {LONGEST}"
                ));
            }
            let pair = (name.to_owned(), secret.to_owned());
            let taken = if is_own {
                own.replace(pair).is_some()
            } else {
                let twice = users.iter().any(|u| u.0 == name);
                users.push(pair);
                twice
            };
            if taken {
                return Err(format!("line {n}: {name} is there already"));
            }
        }
        if users.is_empty() {
            return Err("no line NAME SECRET: nobody could log in".into());
        }
        if let Some(o) = &own
            && users.iter().any(|u| u.1 == o.1)
        {
            return Err(
                "the target's own secret is also an initiator's: use different ones".into(),
            );
        }
        Ok(Secrets { users, own })
    }

    /// Returns true if `response` answers this challenge for the user `name`.
    pub fn is_right(&self, name: &str, id: u8, challenge: &[u8], response: &[u8]) -> bool {
        // The check of an unknown name takes as long as that of a wrong secret.
        let user = self.users.iter().find(|u| u.0 == name);
        let want = answer(id, user.map_or("", |u| &u.1), challenge);
        let differ = (want.iter().zip(response)).fold(0, |d, (a, b)| d | (a ^ b));
        user.is_some() && response.len() == want.len() && differ == 0
    }

    /// The target's own name and its answer to an initiator's challenge, if it has a secret.
    pub fn own(&self, id: u8, challenge: &[u8]) -> Option<(&str, [u8; 16])> {
        let (name, secret) = self.own.as_ref()?;
        Some((name, answer(id, secret, challenge)))
    }
}

/// The answer to a challenge for `secret`.
pub fn answer(id: u8, secret: &str, challenge: &[u8]) -> [u8; 16] {
    let mut md5 = Md5::new();
    md5.update([id]);
    md5.update(secret.as_bytes());
    md5.update(challenge);
    md5.finalize().into()
}

/// `0x…`
pub fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().map(|b| format!("{b:02x}"));
    std::iter::once("0x".to_owned()).chain(digits).collect()
}

/// Reads `0x…`, at most 1 KiB. Base64 (`0b…`) is not supported, because the initiators in use do not offer it.
pub fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text
        .strip_prefix("0x")
        .or_else(|| text.strip_prefix("0X"))?
        .as_bytes();
    if digits.len() % 2 != 0 || digits.len() > 2048 {
        return None;
    }
    let digit = |d: u8| (d as char).to_digit(16);
    digits
        .chunks_exact(2)
        .map(|p| Some((digit(p[0])? << 4 | digit(p[1])?) as u8))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_those_of_md5() {
        // `printf 'abcdefghijklmn' | md5sum`, with the identifier `a` in front.
        assert_eq!(
            hex(&answer(b'a', "bcdefghijklm", b"n")),
            "0x0845a5972cd9ad4a46bad66f1253581f"
        );
    }

    #[test]
    fn a_name_needs_its_own_secret() {
        let s = Secrets::parse("# who\njoe secret-of-joe\nann secret-of-ann\n").expect("valid");
        let told = answer(7, "secret-of-joe", b"challenge");
        assert!(s.is_right("joe", 7, b"challenge", &told));
        for (name, id, challenge) in [
            ("ann", 7, &b"challenge"[..]),
            ("joe", 8, b"challenge"),
            ("joe", 7, b"other"),
            ("bob", 7, b"challenge"),
        ] {
            assert!(!s.is_right(name, id, challenge, &told), "{name}");
        }
        assert!(!s.is_right("joe", 7, b"challenge", &told[..15]));
        assert!(!s.is_right("bob", 7, b"challenge", &answer(7, "", b"challenge")));
    }

    #[test]
    fn useless_files_are_refused_with_the_line() {
        for (text, says) in [
            ("", "nobody"),
            ("joe short", "line 1: a secret has 12"),
            ("joe", "line 1: write"),
            ("\njoe secret-of-joe\njoe secret-of-joe", "line 3"),
            ("joe secret-of-joe\nmutual me secret-of-joe", "different"),
        ] {
            let e = Secrets::parse(text).expect_err(text);
            assert!(e.contains(says), "{text:?}: {e}");
        }
    }

    #[test]
    fn numbers_are_read_as_they_are_written() {
        assert_eq!(unhex(&hex(&[0, 255, 16])), Some(vec![0, 255, 16]));
        assert_eq!(unhex("0xabc"), None);
        assert_eq!(unhex("0xzz"), None);
        assert_eq!(unhex("12"), None);
    }
}
