//! Quality-of-service promises to classes of data in the form in which people write them: rows `CLASSES+KEY=VALUE+…`, and `depth=N`.
//!
//! | key | values | meaning |
//! |---|---|---|
//! | floor | bytes per second (`5M`) | guaranteed as long as requests ask for it and the devices can deliver it |
//! | ceiling | bytes per second | never exceeded |
//! | latency | `100us` to `60s` | 95 of 100 requests are answered within it, as long as the devices can deliver it |
//! | share | 1 to 10000, default 100 | weight in the division of device time among the rows that compete for it |
//!
//! CLASSES are numbers and ranges, as in `1-7,19`. What a row promises applies to all of its classes together.

use isotherm_core::Nanos;
use isotherm_core::qos::{Row, SHARE, Spec};
use std::fmt::Write;

use crate::size;

/// The form of a row, for error messages.
pub const FORM: &str = "write CLASSES+KEY=VALUE+..., as 1-7+floor=5M+latency=20ms or 13-18+ceiling=50M; keys floor, ceiling (bytes per second), latency, share";

/// Keys of a row.
const KEYS: [&str; 4] = ["floor", "ceiling", "latency", "share"];

/// Whether the text is meant to be a row of promises; it may still be malformed.
pub fn is_row(text: &str) -> bool {
    let keys = text.split('+').skip(1);
    text.starts_with(|c: char| c.is_ascii_digit())
        && keys
            .map(|k| k.split('=').next().unwrap_or(""))
            .any(|k| KEYS.contains(&k))
}

/// One row.
///
/// # Errors
/// The message says what is wrong and how to write it.
pub fn row(text: &str) -> Result<Row, String> {
    let bad = |what: &str| format!("`{text}`: {what}: {FORM}");
    let mut parts = text.split('+');
    let classes = classes(parts.next().unwrap_or_default());
    let mut row = Row::of(classes.ok_or_else(|| bad("its classes are not numbers from 0 to 63"))?);
    for part in parts {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let rate = || {
            let bytes = size::bytes(value.trim_end_matches("/s"));
            bytes.map_err(|e| bad(&format!("{key}: {e}")))
        };
        match key {
            "floor" => row.floor = Some(rate()?),
            "ceiling" => row.ceiling = Some(rate()?),
            "latency" => {
                let time = time(value);
                row.latency = Some(time.ok_or_else(|| bad("latency: a time such as 20ms"))?);
            }
            "share" => {
                row.share = value
                    .parse()
                    .map_err(|_| bad("share: 1 to 10000, where what is not named has 100"))?;
            }
            _ => return Err(bad(&format!("no promise is called `{key}`"))),
        }
    }
    // `add` finds what is wrong with this row taken alone.
    Spec::default().add(row).map_err(bad)?;
    Ok(row)
}

/// Reads rows and `depth=N` in order. If two rows name the same class, the later one applies to it.
///
/// # Errors
/// The message names the wrong item.
pub fn spec<'a>(items: impl IntoIterator<Item = &'a str>) -> Result<Spec, String> {
    let mut spec = Spec::default();
    for item in items {
        if let Some(n) = item.strip_prefix("depth=") {
            let depth = n.parse().ok().filter(|n| (1..=4096).contains(n));
            spec.depth = depth.ok_or_else(|| {
                format!("`{item}`: depth: 1 to 4096 requests at the devices of a tier")
            })?;
            continue;
        }
        spec.add(row(item)?).map_err(|e| format!("`{item}`: {e}"))?;
    }
    Ok(spec)
}

/// The items from which [`spec`] reads the same specification.
pub fn items(spec: &Spec) -> Vec<String> {
    let usual = Spec::default().depth;
    let depth = (spec.depth != usual).then(|| format!("depth={}", spec.depth));
    depth
        .into_iter()
        .chain(spec.rows.iter().map(text))
        .collect()
}

/// The text from which [`row`] reads the same row.
pub fn text(row: &Row) -> String {
    let mut text = class_text(row.classes);
    for (key, rate) in [("floor", row.floor), ("ceiling", row.ceiling)] {
        if let Some(bytes) = rate {
            let _ = write!(text, "+{key}={}", size::exact(bytes)); // writing to a String cannot fail
        }
    }
    if let Some(t) = row.latency {
        let (n, unit) = match t.0 {
            n if n % 1_000_000_000 == 0 => (n / 1_000_000_000, "s"),
            n if n % 1_000_000 == 0 => (n / 1_000_000, "ms"),
            n => (n / 1000, "us"),
        };
        let _ = write!(text, "+latency={n}{unit}"); // writing to a String cannot fail
    }
    if row.share != SHARE {
        let _ = write!(text, "+share={}", row.share); // writing to a String cannot fail
    }
    text
}

/// `1-7,19` from a mask with one bit per class.
pub fn class_text(classes: u64) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut c = 0;
    while c < 64 {
        let n = (classes >> c).trailing_ones();
        match n {
            0 => {}
            1 => parts.push(c.to_string()),
            _ => parts.push(format!("{c}-{}", c + n - 1)),
        }
        c += n.max(1);
    }
    parts.join(",")
}

fn classes(text: &str) -> Option<u64> {
    let mut all = 0u64;
    for part in text.split(',') {
        let (a, b) = part.split_once('-').unwrap_or((part, part));
        let (a, b): (u32, u32) = (a.parse().ok()?, b.parse().ok()?);
        if a > b || b > 63 {
            return None;
        }
        all |= u64::MAX >> (63 - b) & u64::MAX << a;
    }
    Some(all)
}

/// Parses `20ms`, `500us` or `1.5s`. The result is a whole number of microseconds.
fn time(text: &str) -> Option<Nanos> {
    let unit = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit);
    let factor = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    let micros = number * factor;
    (micros.is_finite() && (0.0..=1e9).contains(&micros)).then(|| Nanos::from_micros(micros as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_and_written() {
        for (given, written) in [
            ("1-7+floor=5M+latency=20ms", "1-7+floor=5M+latency=20ms"),
            ("13-18+ceiling=50M/s", "13-18+ceiling=50M"),
            ("0,2-3,63+share=400", "0,2-3,63+share=400"),
            ("8+latency=1.5s", "8+latency=1500ms"),
            ("8+latency=250us+share=100", "8+latency=250us"),
            ("0-63+ceiling=8192", "0-63+ceiling=8K"),
        ] {
            let r = row(given).unwrap();
            assert_eq!(text(&r), written);
            assert_eq!(row(written), Ok(r));
            assert!(is_row(given));
        }
        for (bad, why) in [
            ("64+floor=5M", "0 to 63"),
            ("9-8+floor=5M", "0 to 63"),
            ("+floor=5M", "0 to 63"),
            ("1+floor=fast", "floor: "),
            ("1+floor=100", "4096 to 10^12"),
            ("1+floor=2M+ceiling=1M", "above the ceiling"),
            ("1+latency=20", "a time such as 20ms"),
            ("1+latency=20m", "a time such as 20ms"),
            ("1+latency=70s", "100us to 60s"),
            ("1+share=0", "share: 1 to 10000"),
            ("1+share=x", "share: 1 to 10000"),
            ("1+flor=1M", "no promise is called `flor`"),
        ] {
            let error = row(bad).unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
        assert!(!is_row("1-7+pin") && !is_row("bytes/0-8G=db-index"));
    }

    #[test]
    fn the_later_word_counts() {
        let s = spec(["depth=4", "1-7+floor=5M", "3+share=200"]).unwrap();
        let again = items(&s);
        assert_eq!(again, ["depth=4", "1-2,4-7+floor=5M", "3+share=200"]);
        assert_eq!(spec(again.iter().map(String::as_str)), Ok(s));
        assert!(items(&Spec::default()).is_empty());
        assert!(spec(["depth=0"]).is_err());
    }
}
