//! Sizes as people write them: `64K`, `8G`, `10%`.

use std::fmt;
use std::str::FromStr;

/// A size, absolute or as a share of a whole that the command defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Bytes, at least 1.
    Bytes(u64),
    /// Millionths of the whole, 1 to 1 000 000 (`0.0001%` to `100%`).
    Share(u32),
}

/// The units, by letter: powers of 1024.
const UNITS: [(char, u32); 6] = [
    ('K', 10),
    ('M', 20),
    ('G', 30),
    ('T', 40),
    ('P', 50),
    ('E', 60),
];

impl Size {
    /// The size in bytes. A share is taken of `whole` and rounded down.
    pub fn of(self, whole: u64) -> u64 {
        match self {
            Size::Bytes(n) => n,
            // The product of 2^64 and 10^6 needs more than 64 bits.
            Size::Share(millionths) => {
                (u128::from(whole) * u128::from(millionths) / 1_000_000) as u64
            }
        }
    }

    /// The size, if it is absolute.
    pub fn bytes(self) -> Option<u64> {
        match self {
            Size::Bytes(n) => Some(n),
            Size::Share(_) => None,
        }
    }
}

/// The reason why a text is not a size. The message says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeError(String);

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SizeError {}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Size, SizeError> {
        let bad = || {
            SizeError(format!(
                "`{text}` is no size: write bytes, or a number with K, M, G, T or %"
            ))
        };
        if let Some(number) = text.strip_suffix('%') {
            let millionths = share(number).ok_or_else(bad)?;
            return match millionths {
                0 => Err(SizeError(format!(
                    "`{text}` is zero: a size must be at least 0.0001%"
                ))),
                1..=1_000_000 => Ok(Size::Share(millionths as u32)),
                _ => Err(SizeError(format!("`{text}` is more than 100%"))),
            };
        }
        match bytes(text)? {
            0 => Err(SizeError(format!(
                "`{text}` is zero: a size must be at least 1"
            ))),
            n => Ok(Size::Bytes(n)),
        }
    }
}

/// Parses a number of bytes; 0 is allowed. The number may have decimals before a unit (`1.5G`) and is then rounded down to whole bytes.
///
/// # Errors
/// The message says what to write instead.
pub fn bytes(text: &str) -> Result<u64, SizeError> {
    // 64K, 64k and 64KiB are the same power of 1024. 64KB is a power of 1000, as in the standards and in data sheets.
    let bad = || {
        SizeError(format!(
            "`{text}` is no size: write bytes, or a number with K, M, G, T or %"
        ))
    };
    let binary = text.strip_suffix("iB");
    let decimal = text.strip_suffix('B').filter(|_| binary.is_none());
    let number = binary.or(decimal).unwrap_or(text);
    let last = number.chars().last().map(|c| c.to_ascii_uppercase());
    let shift = UNITS.iter().find(|(c, _)| Some(*c) == last).map(|u| u.1);
    if binary.is_some() && shift.is_none() {
        return Err(bad());
    }
    let digits = shift.map_or(number, |_| number[..number.len() - 1].trim_end());
    let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
    let all = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    // A fraction of a byte is not a size.
    if !all(whole) || !all(part) || part.len() > 9 || (digits.contains('.') && shift.is_none()) {
        return Err(bad());
    }
    let too_large = || {
        SizeError(format!(
            "`{text}` is too large: sizes are below 16E (2^64 bytes)"
        ))
    };
    let unit = match (shift, decimal) {
        (Some(s), Some(_)) => 1000u128.pow(s / 10),
        (Some(s), None) => 1 << s,
        (None, _) => 1,
    };
    let whole: u64 = whole.parse().map_err(|_| too_large())?;
    let part: u128 = part.parse().map_err(|_| bad())?;
    let scale = 10u128.pow(digits.split_once('.').map_or(1, |d| d.1.len()) as u32);
    u64::try_from(u128::from(whole) * unit + part * unit / scale).map_err(|_| too_large())
}

/// A decimal percentage as millionths of the whole, with at most four decimals.
fn share(number: &str) -> Option<u64> {
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |s: &str| !s.is_empty() && s.len() <= 9 && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 4 {
        return None;
    }
    let part: u64 = format!("{part:0<4}").parse().ok()?;
    Some(whole.parse::<u64>().ok()? * 10_000 + part)
}

/// Bytes in the largest unit that divides them: `65536` is `64K`.
pub fn exact(bytes: u64) -> String {
    let unit = UNITS
        .iter()
        .rev()
        .find(|(_, s)| bytes != 0 && bytes.is_multiple_of(1 << s));
    unit.map_or_else(|| bytes.to_string(), |(c, s)| format!("{}{c}", bytes >> s))
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Size::Bytes(n) => f.write_str(&exact(*n)),
            Size::Share(m) => write!(f, "{}%", f64::from(*m) / 10_000.0),
        }
    }
}

/// An absolute size, for clap.
///
/// # Errors
/// The message says what to write instead.
pub fn absolute(text: &str) -> Result<u64, SizeError> {
    text.parse::<Size>()?
        .bytes()
        .ok_or_else(|| SizeError(format!("`{text}`: a share makes no sense here, give bytes")))
}

/// An extent size, for clap: a power of two from 4K to 4M.
///
/// # Errors
/// The message says what to write instead.
pub fn extent(text: &str) -> Result<u32, SizeError> {
    let n = absolute(text)?;
    if n.is_power_of_two() && (4096..=4 << 20).contains(&n) {
        Ok(n as u32)
    } else {
        Err(SizeError(format!(
            "`{text}`: an extent is a power of two from 4K to 4M, such as 64K"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_people_write() {
        for (text, size) in [
            ("1", Size::Bytes(1)),
            ("512B", Size::Bytes(512)),
            ("64K", Size::Bytes(65536)),
            ("64k", Size::Bytes(65536)),
            ("64KiB", Size::Bytes(65536)),
            ("64KB", Size::Bytes(64_000)),
            ("50MB", Size::Bytes(50_000_000)),
            ("64KiB", Size::Bytes(65536)),
            ("8G", Size::Bytes(8 << 30)),
            ("1.5G", Size::Bytes(3 << 29)),
            ("2 TiB", Size::Bytes(2 << 40)),
            ("1.5GB", Size::Bytes(1_500_000_000)),
            ("0.001K", Size::Bytes(1)),
            ("15E", Size::Bytes(15 << 60)),
            ("10%", Size::Share(100_000)),
            ("0.5%", Size::Share(5_000)),
            ("12.5%", Size::Share(125_000)),
            ("100%", Size::Share(1_000_000)),
        ] {
            assert_eq!(text.parse(), Ok(size), "{text}");
        }
    }

    #[test]
    fn what_is_refused_and_why() {
        for (text, why) in [
            ("", "is no size"),
            ("K", "is no size"),
            ("12iB", "is no size"),
            ("-1", "is no size"),
            ("1.5", "is no size"),
            ("1.G", "is no size"),
            (".5G", "is no size"),
            ("1.5.5G", "is no size"),
            ("0.0000000001K", "is no size"),
            ("0.0001K", "is zero"),
            ("64X", "is no size"),
            ("6 4K", "is no size"),
            ("0", "is zero"),
            ("0K", "is zero"),
            ("0%", "is zero"),
            ("0.00001%", "is no size"),
            ("101%", "more than 100%"),
            ("%", "is no size"),
            ("16E", "too large"),
            ("99999999999999999999", "too large"),
            ("é", "is no size"),
            ("1é", "is no size"),
        ] {
            let e = text.parse::<Size>().expect_err(text).to_string();
            assert!(e.contains(why), "{text}: {e}");
        }
        assert!(extent("12K").is_err() && extent("2K").is_err() && extent("8M").is_err());
        assert_eq!(extent("64K"), Ok(65536));
    }

    proptest! {
        #[test]
        fn exact_sizes_come_back(n in 1u64..) {
            prop_assert_eq!(exact(n).parse(), Ok(Size::Bytes(n)));
        }

        #[test]
        fn shares_come_back(m in 1u32..=1_000_000) {
            prop_assert_eq!(Size::Share(m).to_string().parse(), Ok(Size::Share(m)));
        }

        #[test]
        fn shares_never_exceed_the_whole(m in 1u32..=1_000_000, whole: u64) {
            prop_assert!(Size::Share(m).of(whole) <= whole);
        }

        #[test]
        fn no_text_panics(text in ".{0,12}") {
            let _ = text.parse::<Size>();
        }
    }
}
