//! Paths as keys of settings that are stored as text.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt::Write;

/// A path below the mount point. A path is any bytes on Unix, and JSON is text. So a path that is not UTF-8 is written with a slash first,
/// which no other path has, and its bytes that are not printable ASCII, and `%`, as `%XX`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathKey(pub Vec<u8>);

impl PathKey {
    /// The path as text; [`PathKey::parse`] is the inverse.
    pub fn text(&self) -> String {
        if let Ok(text) = std::str::from_utf8(&self.0) {
            return text.to_owned();
        }
        let mut text = String::from("/");
        for b in &self.0 {
            if b.is_ascii_graphic() && *b != b'%' || *b == b' ' {
                text.push(char::from(*b));
            } else {
                // Writing to a string does not fail.
                let _ = write!(text, "%{b:02X}");
            }
        }
        text
    }
    /// The path with this text; `None` if a `%` is not followed by two hexadecimal digits.
    pub fn parse(text: &str) -> Option<PathKey> {
        let Some(escaped) = text.strip_prefix('/') else {
            return Some(PathKey(text.as_bytes().to_vec()));
        };
        let (mut path, mut rest) = (Vec::new(), escaped.as_bytes());
        while let [first, tail @ ..] = rest {
            if *first == b'%' {
                let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
                path.push(u8::from_str_radix(digits, 16).ok()?);
                rest = &tail[2..];
            } else {
                path.push(*first);
                rest = tail;
            }
        }
        Some(PathKey(path))
    }
}

impl From<&str> for PathKey {
    fn from(path: &str) -> PathKey {
        PathKey(path.as_bytes().to_vec())
    }
}

impl Serialize for PathKey {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.text())
    }
}

impl<'de> Deserialize<'de> for PathKey {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<PathKey, D::Error> {
        let text = String::deserialize(from)?;
        let wrong = || serde::de::Error::custom(format!("{text}: `%` without two digits"));
        PathKey::parse(&text).ok_or_else(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_path_has_a_text_of_its_own() {
        for (path, text) in [
            (&b"a/b"[..], "a/b"),
            (b"", ""),
            ("gr\u{fc}n/100%".as_bytes(), "gr\u{fc}n/100%"),
            (b"x\xff/50% y\n", "/x%FF/50%25 y%0A"),
        ] {
            let key = PathKey(path.to_vec());
            assert_eq!(key.text(), text);
            assert_eq!(PathKey::parse(text), Some(key));
        }
        for wrong in ["/%", "/%f", "/%zz", "/%\u{fc}"] {
            assert_eq!(PathKey::parse(wrong), None, "{wrong}");
        }
    }
}
