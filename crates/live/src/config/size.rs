//! Sizes as people write them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Bytes; in a description `65536`, `"64K"`, `"8G"` (powers of 1024), `"50MB"` (of 1000).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl Size {
    /// Parses a text such as `64K` or `1.5G`.
    ///
    /// # Errors
    /// The fault in the text, without its place.
    pub fn parse(text: &str) -> Result<Size, String> {
        let bytes = isotherm_words::size::bytes(text.trim());
        bytes.map(Size).map_err(|e| e.to_string())
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = ["", "K", "M", "G", "T"];
        let mut n = self.0;
        let mut i = 0;
        while n != 0 && n.is_multiple_of(1024) && i + 1 < unit.len() {
            n /= 1024;
            i += 1;
        }
        write!(f, "{n}{}", unit[i])
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Size, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Size;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("a size: bytes, or text such as \"64K\" or \"8G\"")
            }
            fn visit_i64<E: serde::de::Error>(self, n: i64) -> Result<Size, E> {
                u64::try_from(n)
                    .map(Size)
                    .map_err(|_| E::custom("a size cannot be negative"))
            }
            fn visit_str<E: serde::de::Error>(self, s: &str) -> Result<Size, E> {
                Size::parse(s).map_err(E::custom)
            }
        }
        d.deserialize_any(Visitor)
    }
}
