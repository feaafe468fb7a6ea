//! A suggestion for `--columns`, for a text that is in no known format. It is a guess from the first lines, which the user must confirm.
//!
//! With three lines or more, the numbers tell the columns apart: times do not fall, addresses are the largest numbers, lengths stand beside
//! them. With fewer lines, only their order is left: time, offset, length.

use super::custom::{Custom, direction, separator};
use crate::field::no_record;

/// Lines that are examined.
const LINES: usize = 64;
/// Fewer lines than this say nothing about the order of times.
const ENOUGH: usize = 3;
/// Columns of a text for which a suggestion makes sense.
const WIDTHS: std::ops::RangeInclusive<usize> = 3..=12;

/// Words in the names of columns that count sectors, and of columns of addresses.
const SECTORS: [&str; 2] = ["lba", "sector"];
const ADDRESS: [&str; 4] = ["lba", "sector", "offset", "addr"];

/// A suggestion for a text that begins with `head`; none unless its lines (the first may hold names) have 3 to 12 fields, of which two are
/// numbers. A word that means a direction becomes `op`.
pub(crate) fn columns(head: &[u8]) -> Option<String> {
    let lines: Vec<&[u8]> = head
        .split(|&c| c == b'\n')
        .filter(|line| !no_record(line))
        .map(<[u8]>::trim_ascii_end)
        .take(LINES)
        .collect();
    let separator = separator(lines.get(1).or(lines.first())?);
    let mut rows: Vec<Vec<&[u8]>> = lines
        .iter()
        .map(|line| Custom::fields(separator, line))
        .collect();
    let numbers = |row: &[&[u8]]| row.iter().filter(|f| number(f).is_some()).count();
    let named = rows.len() > 1 && numbers(&rows[0]) < numbers(&rows[1]);
    let titles = if named { rows.remove(0) } else { Vec::new() };
    let width = rows[0].len();
    // A line that is cut off at the end of the head has another width.
    let rows: Vec<Vec<&[u8]>> = rows.into_iter().filter(|r| r.len() == width).collect();
    let title = |at| titles.get(at).copied().unwrap_or_default();
    let all = (0..width).filter_map(|at| Column::of(&rows, at, title(at)));
    let all: Vec<Column> = all.collect();
    if !WIDTHS.contains(&width) || all.len() < 2 {
        return None;
    }
    let mut names = vec!["-"; width];
    let op = (0..width).find(|&at| rows.iter().all(|r| direction(r[at]).is_ok()));
    if let Some(op) = op {
        names[op] = "op";
    }
    let found = if rows.len() < ENOUGH {
        by_order(&all)
    } else {
        by_value(&all)
    };
    for (column, name) in found {
        names[column.at] = name;
    }
    Some(names.join(","))
}

/// The values of a column that holds only numbers.
struct Column {
    /// Position in the line.
    at: usize,
    /// Its name in the first line, in small letters; empty if it has none.
    title: String,
    values: Vec<f64>,
    /// Whether a value has a decimal point.
    fraction: bool,
}

impl Column {
    /// The column at this position; `None` if it holds other text.
    fn of(rows: &[Vec<&[u8]>], at: usize, title: &[u8]) -> Option<Column> {
        let values = rows.iter().map(|r| number(r[at]));
        Some(Column {
            at,
            title: String::from_utf8_lossy(title).to_lowercase(),
            values: values.collect::<Option<_>>()?,
            fraction: rows.iter().any(|r| r[at].contains(&b'.')),
        })
    }

    fn varies(&self) -> bool {
        self.values
            .windows(2)
            .any(|w| w[0].total_cmp(&w[1]).is_ne())
    }

    /// Whether the values are like times of arrival.
    fn rises(&self) -> bool {
        self.varies() && self.values.windows(2).all(|w| w[0] <= w[1])
    }

    /// Whether the values number the lines.
    fn counts(&self) -> bool {
        self.values
            .windows(2)
            .all(|w| (w[1] - w[0]).total_cmp(&1.0).is_eq())
    }

    /// Whether its name contains one of these words.
    fn is_titled(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.title.contains(word))
    }

    /// Whether every value is a positive multiple of a sector.
    fn are_sectors(&self) -> bool {
        self.values.iter().all(|v| *v > 0.0 && v % 512.0 == 0.0)
    }

    fn most(&self) -> f64 {
        self.values.iter().copied().fold(0.0, f64::max)
    }

    /// The name of this column as one of times, with the unit that its name states or its size suggests: clocks that count from 1601 or 1970
    /// have a known number of digits, other times are mostly in microseconds.
    fn time(&self) -> &'static str {
        const UNITS: [(&str, &str); 4] = [
            ("ns", "time_ns"),
            ("us", "time_us"),
            ("ms", "time_ms"),
            ("s", "time_s"),
        ];
        let mut words = self.title.split(|c: char| !c.is_ascii_alphanumeric());
        let stated = words.find_map(|word| UNITS.iter().find(|(unit, _)| *unit == word));
        if let Some((_, name)) = stated {
            return name;
        }
        let first = self.values.first().copied().unwrap_or_default();
        let digits = if first < 1.0 {
            0
        } else {
            first.log10() as u32 + 1
        };
        match digits {
            _ if self.fraction => "time_s",
            18 => "time_100ns",
            19.. => "time_ns",
            13 => "time_ms",
            10 if self.most() - first < 1e6 => "time_s",
            _ => "time_us",
        }
    }

    fn offset(&self) -> &'static str {
        if self.bytes() {
            "offset_bytes"
        } else {
            "offset_sectors"
        }
    }

    fn length(&self) -> &'static str {
        if self.bytes() {
            "length_bytes"
        } else {
            "length_sectors"
        }
    }

    /// Whether the values can be bytes on a block device: then most of them are multiples of a sector.
    fn bytes(&self) -> bool {
        if self.is_titled(&SECTORS) {
            return false;
        }
        let whole = self.values.iter().filter(|&&v| v % 512.0 == 0.0).count();
        2 * whole > self.values.len() || self.values.len() < ENOUGH
    }
}

/// The value of a field that is a number of at least zero, with digits and a decimal point only.
fn number(field: &[u8]) -> Option<f64> {
    let plain = |c: &u8| c.is_ascii_digit() || *c == b'.';
    if !field.iter().all(plain) {
        return None;
    }
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// The meaning of the first numbers of a line by their order: time, offset and length, or offset and length.
fn by_order(all: &[Column]) -> Vec<(&Column, &'static str)> {
    let timed = all.len() > 2;
    let mut found = Vec::new();
    if timed {
        found.push((&all[0], all[0].time()));
    }
    let rest = &all[usize::from(timed)..];
    found.push((&rest[0], rest[0].offset()));
    found.push((&rest[1], rest[1].length()));
    found
}

/// The meaning of columns by their values.
fn by_value(all: &[Column]) -> Vec<(&Column, &'static str)> {
    let mut left: Vec<&Column> = all.iter().collect();
    let mut found = Vec::new();
    let rising: Vec<&Column> = left.iter().copied().filter(|c| c.rises()).collect();
    // A column that numbers the lines is a time only if there is no other.
    let time = rising.iter().find(|c| !c.counts()).or(rising.first());
    if let Some(time) = time.filter(|_| left.len() > 2) {
        found.push((*time, time.time()));
        left.retain(|c| c.at != time.at && !(c.rises() && c.counts()));
    }
    let whole = |c: &&&Column| !c.fraction;
    let largest = |a: &&&Column, b: &&&Column| a.most().total_cmp(&b.most());
    let titled = left.iter().filter(whole).find(|c| c.is_titled(&ADDRESS));
    let offset = titled.or_else(|| left.iter().filter(whole).max_by(largest));
    let Some(&offset) = offset else {
        return found;
    };
    found.push((offset, offset.offset()));
    left.retain(|c| c.at != offset.at);
    // Lengths stand beside addresses, or they are whole sectors, even if all are alike (a benchmark's).
    let beside = left.iter().filter(whole).find(|c| c.at == offset.at + 1);
    let sectors = left.iter().filter(whole).find(|c| c.are_sectors());
    let length = beside.or(sectors).or_else(|| {
        let varying = left.iter().filter(whole).filter(|c| c.varies());
        varying.max_by(largest).or(left.iter().find(whole))
    });
    if let Some(&length) = length {
        found.push((length, length.length()));
    }
    found
}
