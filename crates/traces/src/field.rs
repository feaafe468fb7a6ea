//! Hand-written parsers for numbers and fields in text: no allocation and no UTF-8 check per record.

use isotherm_core::Nanos;

use crate::error::Bad;
use crate::record::{Flags, Op, Record};

/// Bytes of a sector in every format that counts in sectors.
pub(crate) const SECTOR: u64 = 512;

/// A decimal number that takes up all of `text`.
pub(crate) fn parse_u64(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 20 {
        return None;
    }
    let mut n = 0u64;
    // Nineteen digits always fit, so only the twentieth needs checked arithmetic.
    for &c in &text[..text.len().min(19)] {
        let d = c.wrapping_sub(b'0');
        if d > 9 {
            return None;
        }
        n = n * 10 + u64::from(d);
    }
    match text.get(19) {
        None => Some(n),
        Some(c) => {
            let d = c.wrapping_sub(b'0');
            if d > 9 {
                None
            } else {
                n.checked_mul(10)?.checked_add(u64::from(d))
            }
        }
    }
}

/// A hexadecimal number that begins with `0x` and takes up all of `text`.
pub(crate) fn hex(text: &[u8]) -> Option<u64> {
    let digits = text.strip_prefix(b"0x").or(text.strip_prefix(b"0X"))?;
    let digits = std::str::from_utf8(digits).ok()?;
    let plain = digits.bytes().all(|c| c.is_ascii_hexdigit());
    plain
        .then(|| u64::from_str_radix(digits, 16).ok())
        .flatten()
}

/// A decimal fraction of `unit_ns` (a power of ten) in whole nanoseconds, exact; further digits are cut off. The fraction begins with a point, or a
/// comma as in some languages.
pub(crate) fn parse_ns(text: &[u8], unit_ns: u64) -> Option<u64> {
    let dot = text.iter().position(|&c| !c.is_ascii_digit());
    let Some(dot) = dot else {
        return parse_u64(text)?.checked_mul(unit_ns);
    };
    if !matches!(text[dot], b'.' | b',') {
        return parse_float_ns(text, unit_ns);
    }
    let whole = if dot == 0 {
        0
    } else {
        parse_u64(&text[..dot])?
    };
    let fraction = &text[dot + 1..];
    if dot == 0 && fraction.is_empty() {
        return None;
    }
    let (mut ns, mut digit_ns) = (0u64, unit_ns);
    for &c in fraction {
        let d = c.wrapping_sub(b'0');
        if d > 9 {
            return parse_float_ns(text, unit_ns);
        }
        digit_ns /= 10;
        ns += u64::from(d) * digit_ns;
    }
    whole.checked_mul(unit_ns)?.checked_add(ns)
}

/// Scientific notation, in which some scripts write small times. It is rare, so a slow parser is good enough.
fn parse_float_ns(text: &[u8], unit_ns: u64) -> Option<u64> {
    let value: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    let ns = (value * unit_ns as f64).round();
    (value.is_finite() && (0.0..1.8e19).contains(&ns)).then_some(ns as u64)
}

/// Splits a line at single separators. Fields are returned without blanks around them.
pub(crate) struct Fields<'a> {
    rest: Option<&'a [u8]>,
    separator: u8,
}

impl<'a> Fields<'a> {
    pub(crate) fn new(line: &'a [u8], separator: u8) -> Fields<'a> {
        Fields {
            rest: Some(line),
            separator,
        }
    }

    /// The next field, or an error that names the field that the line lacks.
    pub(crate) fn field(&mut self, expected: &str) -> Result<&'a [u8], Bad> {
        self.next()
            .ok_or_else(|| Bad::value(expected, "the end of the line"))
    }

    pub(crate) fn number(&mut self, expected: &str) -> Result<u64, Bad> {
        number(self.field(expected)?, expected)
    }

    /// Makes sure that nothing follows the field `last`.
    pub(crate) fn end(&mut self, last: &str) -> Result<(), Bad> {
        match self.next() {
            None => Ok(()),
            Some(more) => Err(Bad::text(format!("the end of the line after {last}"), more)),
        }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest?;
        // Fields are a few bytes long: a plain loop beats memchr here.
        let field = if let Some(i) = rest.iter().position(|&c| c == self.separator) {
            self.rest = Some(&rest[i + 1..]);
            &rest[..i]
        } else {
            self.rest = None;
            rest
        };
        Some(field.trim_ascii())
    }
}

/// The next word of a line that is split at white space, and the rest after it.
pub(crate) fn word(line: &[u8]) -> (&[u8], &[u8]) {
    let line = line.trim_ascii_start();
    let end = line
        .iter()
        .position(u8::is_ascii_whitespace)
        .unwrap_or(line.len());
    line.split_at(end)
}

/// Splits a line at white space.
pub(crate) struct Words<'a>(pub(crate) &'a [u8]);

impl<'a> Words<'a> {
    pub(crate) fn field(&mut self, expected: &str) -> Result<&'a [u8], Bad> {
        self.next()
            .ok_or_else(|| Bad::value(expected, "the end of the line"))
    }

    pub(crate) fn number(&mut self, expected: &str) -> Result<u64, Bad> {
        number(self.field(expected)?, expected)
    }
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let (first, rest) = word(self.0);
        self.0 = rest;
        (!first.is_empty()).then_some(first)
    }
}

/// A decimal number, or an error that names what was expected.
pub(crate) fn number(text: &[u8], expected: &str) -> Result<u64, Bad> {
    parse_u64(text).ok_or_else(|| Bad::text(format!("{expected} (a whole number)"), text))
}

/// A decimal number, or `None` for an empty field.
pub(crate) fn optional(text: &[u8], expected: &str) -> Result<Option<u64>, Bad> {
    if text.is_empty() {
        Ok(None)
    } else {
        number(text, expected).map(Some)
    }
}

/// A class of data.
pub(crate) fn class(n: u64) -> Result<u8, Bad> {
    if n < 64 {
        Ok(n as u8)
    } else {
        Err(Bad::value("a class of 0 to 63", n))
    }
}

/// Whether a line holds no record: nothing but white space, or a comment, which begins with `#`.
pub(crate) fn no_record(line: &[u8]) -> bool {
    line.first() == Some(&b'#') || line.iter().all(u8::is_ascii_whitespace)
}

/// `R`, `W`, `Read` or `Write`, in either case.
pub(crate) fn read_or_write(text: &[u8], expected: &str) -> Result<Op, Bad> {
    let is = |name: &[u8]| text.eq_ignore_ascii_case(name) || text.eq_ignore_ascii_case(&name[..1]);
    if is(b"Read") {
        Ok(Op::Read)
    } else if is(b"Write") {
        Ok(Op::Write)
    } else {
        Err(Bad::text(format!("{expected} (read or write)"), text))
    }
}

/// Seconds with an optional fraction, as nanoseconds.
pub(crate) fn seconds(text: &[u8], expected: &str) -> Result<u64, Bad> {
    parse_ns(text, 1_000_000_000).ok_or_else(|| Bad::text(format!("{expected} (seconds)"), text))
}

/// `count` units of `unit` bytes as an offset.
pub(crate) fn offset(count: u64, unit: u64) -> Result<u64, Bad> {
    count
        .checked_mul(unit)
        .ok_or_else(|| Bad::value("an address below 2^64 bytes", format!("{count} × {unit} B")))
}

/// `count` units of `unit` bytes as a length.
pub(crate) fn length(count: u64, unit: u64) -> Result<u32, Bad> {
    count
        .checked_mul(unit)
        .and_then(|n| u32::try_from(n).ok())
        .ok_or_else(|| Bad::value("a length below 4 GiB", format!("{count} × {unit} B")))
}

/// A plain request, if it ends below 2^64.
#[inline]
pub(crate) fn request(time: u64, op: Op, offset: u64, len: u32) -> Result<Record, Bad> {
    if offset.checked_add(u64::from(len)).is_none() {
        return Err(Bad::value(
            "a request that ends below 2^64 bytes",
            format!("{len} B at {offset}"),
        ));
    }
    Ok(Record::new(Nanos(time), op, offset, len))
}

/// Multiplies a time into nanoseconds.
#[inline]
pub(crate) fn scaled(count: u64, unit_ns: u64) -> Result<u64, Bad> {
    count
        .checked_mul(unit_ns)
        .ok_or_else(|| Bad::value("a time below 2^64 ns", format!("{count} × {unit_ns} ns")))
}

/// The block layer's letters (`R`, `WS`, `FWFSM`, `RA`, `D`…), in either case. `None`: not a request.
///
/// A leading `F` is a flush before the request, an `F` after the direction is FUA (Linux `blk_fill_rwbs`).
pub(crate) fn rwbs(text: &[u8]) -> Option<(Op, Flags)> {
    let (mut flags, mut rest) = (Flags::NONE, text);
    if rest.first().is_some_and(|c| c.eq_ignore_ascii_case(&b'F')) {
        flags = flags.with(Flags::PREFLUSH, true);
        rest = &rest[1..];
    }
    let op = match rest.first()?.to_ascii_uppercase() {
        b'R' => Op::Read,
        b'W' => Op::Write,
        b'D' => Op::Discard,
        b'N' | b'F' if flags.contains(Flags::PREFLUSH) => Op::Flush,
        _ => return None,
    };
    for c in &rest[1..] {
        let flag = match c.to_ascii_uppercase() {
            b'F' => Flags::FUA,
            b'A' => Flags::AHEAD,
            b'S' => Flags::SYNC,
            b'M' => Flags::META,
            // Secure erase, barrier, vacant: these have no meaning for placement.
            b'E' | b'B' | b'V' | b'U' => Flags::NONE,
            _ => return None,
        };
        flags = flags.with(flag, true);
    }
    Some((op, flags))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fill_their_field() {
        assert_eq!(parse_u64(b"0"), Some(0));
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
        for bad in [
            &b""[..],
            b"18446744073709551616",
            b"99999999999999999999",
            b"123456789012345678901",
            b"-1",
            b"1x",
            b" 1",
        ] {
            assert_eq!(parse_u64(bad), None, "{:?}", bad.escape_ascii().to_string());
        }
    }

    #[test]
    fn times_are_exact() {
        let s = 1_000_000_000;
        assert_eq!(
            parse_ns(b"1456095145.133076000", s),
            Some(1_456_095_145_133_076_000)
        );
        assert_eq!(parse_ns(b"0.0114139999", s), Some(11_413_999));
        assert_eq!(parse_ns(b"0,25", s), Some(250_000_000));
        assert_eq!(parse_ns(b".5", s), Some(500_000_000));
        assert_eq!(parse_ns(b"5.", s), Some(5_000_000_000));
        assert_eq!(parse_ns(b"2e-05", s), Some(20_000));
        assert_eq!(parse_ns(b"1.5", 1_000_000), Some(1_500_000));
        for bad in [
            &b""[..],
            b".",
            b"-1.0",
            b"nan",
            b"1e30",
            b"1.2.3",
            b"1,2,3",
            b"99999999999999999999.0",
        ] {
            assert_eq!(
                parse_ns(bad, s),
                None,
                "{:?}",
                bad.escape_ascii().to_string()
            );
        }
    }

    #[test]
    fn block_layer_letters() {
        assert_eq!(rwbs(b"RA"), Some((Op::Read, Flags::AHEAD)));
        assert_eq!(rwbs(b"w"), Some((Op::Write, Flags::NONE)));
        let all = Flags::PREFLUSH
            .with(Flags::FUA, true)
            .with(Flags::SYNC, true)
            .with(Flags::META, true);
        assert_eq!(rwbs(b"FWFSM"), Some((Op::Write, all)));
        assert_eq!(rwbs(b"FN"), Some((Op::Flush, Flags::PREFLUSH)));
        assert_eq!(rwbs(b"N"), None);
        assert_eq!(rwbs(b""), None);
        assert_eq!(rwbs(b"X"), None);
    }
}
