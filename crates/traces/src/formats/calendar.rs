//! Times as dates and times of day: `2023-02-01T10:00:00.5Z`, `2023-02-01`, `10:00:00,5`.

use crate::field::{parse_ns, parse_u64};

const SECOND: u64 = 1_000_000_000;
const DAY: u64 = 86_400 * SECOND;
/// Days before each month, in a year without a leap day.
const BEFORE_MONTH: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];

/// The nanoseconds of a date since 1970, of a time of day since midnight, or of both together; `None` for other text. A date has the form
/// year-month-day, and all is UTC.
pub(super) fn nanoseconds(text: &[u8]) -> Option<u64> {
    let text = text.strip_suffix(b"Z").unwrap_or(text);
    let (date, time) = match text.iter().position(|c| b"T ".contains(c)) {
        Some(at) => (Some(&text[..at]), Some(&text[at + 1..])),
        None if text.contains(&b':') => (None, Some(text)),
        None => (Some(text), None),
    };
    let date = date.map_or(Some(0), date_ns)?;
    date.checked_add(time.map_or(Some(0), time_ns)?)
}

fn date_ns(text: &[u8]) -> Option<u64> {
    let [year, month, day] = numbers(text, b'-')?;
    let month_fits = (1..=12).contains(&month) && (1..=31).contains(&day);
    if !month_fits || !(1970..2262).contains(&year) {
        return None;
    }
    let leaps = |until: u64| until / 4 - until / 100 + until / 400;
    let leap = leaps(year) > leaps(year - 1) && month > 2;
    let days = 365 * (year - 1970) + leaps(year - 1) - leaps(1969)
        + BEFORE_MONTH[month as usize - 1]
        + u64::from(leap)
        + day
        - 1;
    days.checked_mul(DAY)
}

fn time_ns(text: &[u8]) -> Option<u64> {
    let mut parts = text.splitn(3, |&c| c == b':');
    let (hour, minute) = (parse_u64(parts.next()?)?, parse_u64(parts.next()?)?);
    let seconds = parse_ns(parts.next()?, SECOND)?;
    let fits = hour < 24 && minute < 60 && seconds < 61 * SECOND;
    fits.then_some((hour * 3600 + minute * 60) * SECOND + seconds)
}

/// Three whole numbers between separators.
fn numbers(text: &[u8], separator: u8) -> Option<[u64; 3]> {
    let mut parts = text.split(|&c| c == separator).map(parse_u64);
    let three = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(three)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_count_from_1970() {
        for (text, seconds) in [
            ("1970-01-01", 0),
            ("1970-01-01T00:00:01Z", 1),
            ("2000-02-29 23:59:59", 951_868_799),
            ("2000-03-01", 951_868_800),
            ("2001-09-09T01:46:40", 1_000_000_000),
            ("2100-03-01", 4_107_542_400),
            ("23:59:59", 86_399),
        ] {
            assert_eq!(
                nanoseconds(text.as_bytes()),
                Some(seconds * SECOND),
                "{text}"
            );
        }
        assert_eq!(nanoseconds(b"00:00:00,25"), Some(SECOND / 4));
        for bad in [
            "",
            "2000",
            "2000-13-01",
            "2000-00-01",
            "1969-12-31",
            "10:00",
            "24:00:00",
            "1:2:3:4",
            "1-2",
            "x-1-1",
            "2000-01-01T",
        ] {
            assert_eq!(nanoseconds(bad.as_bytes()), None, "{bad}");
        }
    }
}
