//! Sizes as people write them.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Bytes; in a description `65536`, `"64K"`, `"8G"` (powers of 1024), `"50MB"` (of 1000).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl Size {
    /// From text such as `64K` or `1.5G`.
    ///
    /// # Errors
    /// What is wrong with it, without the place.
    pub fn parse(text: &str) -> Result<Size, String> {
        let t = text.trim();
        let (number, unit) =
            t.split_at(t.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(t.len()));
        let unit: u64 = match unit.to_ascii_uppercase().as_str() {
            "" | "B" => 1,
            "K" | "KIB" => 1 << 10,
            "M" | "MIB" => 1 << 20,
            "G" | "GIB" => 1 << 30,
            "T" | "TIB" => 1 << 40,
            "KB" => 1000,
            "MB" => 1_000_000,
            "GB" => 1_000_000_000,
            "TB" => 1_000_000_000_000,
            _ => {
                return Err(format!(
                    "`{text}` is not a size: write bytes or a number with K, M, G or T"
                ));
            }
        };
        let whole = number
            .trim()
            .parse::<u64>()
            .ok()
            .and_then(|n| n.checked_mul(unit));
        let broken = || {
            let n = number.trim().parse::<f64>().ok()? * unit as f64;
            (n.is_finite() && (0.0..1.8e19).contains(&n)).then_some(n as u64)
        };
        whole.or_else(broken).map(Size).ok_or_else(|| {
            format!("`{text}` is not a size: write bytes or a number with K, M, G or T")
        })
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
