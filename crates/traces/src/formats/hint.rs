//! A suggestion for `--columns`, for a text that is in no known format. It is a guess from the first lines, which the user must confirm.
//!
//! With three lines or more, the numbers tell the columns apart: times do not fall, addresses are the largest numbers, lengths stand beside
//! them. With fewer lines, only their order is left: time, offset, length. A unit that neither names nor numbers show is left out of the
//! suggestion, so that the reader infers it and says so.

use super::calendar::nanoseconds;
use super::custom::{chatter, direction, fields, separators, whole};
use crate::units::{PAGE, Row, weigh};

/// Lines that are examined.
const LINES: usize = 64;
/// Fewer lines than this say nothing about the order of times.
const ENOUGH: usize = 3;
/// Columns of a text for which a suggestion makes sense.
const WIDTHS: std::ops::RangeInclusive<usize> = 3..=16;

/// Words in the names of columns that count sectors, of columns of addresses, of times and of devices.
const SECTORS: [&str; 2] = ["lba", "sector"];
const ADDRESS: [&str; 4] = ["lba", "sector", "offset", "addr"];
const TIME: [&str; 3] = ["time", "stamp", "start"];
const DEVICE: [&str; 4] = ["dev", "device", "disk", "volume"];

/// A suggestion for a text that begins with `head`; none unless its lines (the first may hold names) have 3 to 12 fields, of which two are
/// numbers. A word that means a direction becomes `op`.
pub(crate) fn columns(head: &[u8]) -> Option<String> {
    let lines: Vec<&[u8]> = head
        .split(|&c| c == b'\n')
        .filter(|line| !chatter(line))
        .map(<[u8]>::trim_ascii_end)
        .take(LINES)
        .collect();
    let all = separators(lines.get(1).or(lines.first())?);
    // A comma inside words, as in `259,0`, leaves few columns of numbers.
    let split = all.iter().filter_map(|&s| Text::split(&lines, s));
    let text = split.rev().max_by_key(|text| text.numbers.len())?;
    let (width, all) = (text.width, &text.numbers);
    if !WIDTHS.contains(&width) || all.len() < 2 {
        return None;
    }
    let mut names = vec!["-"; width];
    let letters = |f: &[u8]| f.iter().any(u8::is_ascii_alphabetic) && direction(f).is_ok();
    let op = (0..width).find(|&at| text.rows.iter().all(|r| letters(r[at])));
    if let Some(op) = op {
        names[op] = "op";
    }
    if let Some(device) = (0..width).find(|&at| text.is_device(at)) {
        names[device] = "device";
    }
    let found = if text.rows.len() < ENOUGH {
        by_order(all)
    } else {
        by_value(all)
    };
    for (column, name) in found {
        names[column.at] = name;
    }
    Some(names.join(","))
}

/// The first lines, divided into columns.
struct Text<'a> {
    /// The names of the columns; empty if there are none.
    titles: Vec<&'a [u8]>,
    rows: Vec<Vec<&'a [u8]>>,
    width: usize,
    /// The columns that hold only numbers.
    numbers: Vec<Column>,
}

impl<'a> Text<'a> {
    fn split(lines: &[&'a [u8]], separator: u8) -> Option<Text<'a>> {
        let mut rows: Vec<Vec<&[u8]>> = lines.iter().map(|l| fields(separator, l)).collect();
        let numbers = |row: &[&[u8]]| row.iter().filter(|f| number(f).is_some()).count();
        let named = rows.len() > 1 && numbers(&rows[0]) < numbers(&rows[1]);
        let titles = if named { rows.remove(0) } else { Vec::new() };
        let width = rows.first()?.len();
        // A line that is cut off at the end of the head has another width.
        rows.retain(|r| r.len() == width);
        let title = |at| titles.get(at).copied().unwrap_or_default();
        let numbers = (0..width).filter_map(|at| Column::of(&rows, at, title(at)));
        let numbers = numbers.collect();
        Some(Text {
            titles,
            rows,
            width,
            numbers,
        })
    }

    /// Whether a column names devices: by its title, or as `major,minor`.
    fn is_device(&self, at: usize) -> bool {
        let pair = |f: &[u8]| {
            let mut parts = f.split(|&c| c == b',');
            let digits = |p: &[u8]| !p.is_empty() && p.iter().all(u8::is_ascii_digit);
            f.contains(&b',') && parts.clone().count() == 2 && parts.all(digits)
        };
        let title = self.titles.get(at).copied().unwrap_or_default();
        DEVICE
            .iter()
            .any(|name| title.eq_ignore_ascii_case(name.as_bytes()))
            || self.titles.is_empty() && self.rows.iter().all(|r| pair(r[at]))
    }
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
            fraction: rows.iter().any(|r| whole(r[at], "").is_err()),
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

    /// The name of this column as one of times, with its unit if its title or its numbers state one.
    fn time(&self) -> &'static str {
        stated_time(&self.title, &self.values).unwrap_or("time")
    }

    /// Whether the values are a clock that counts from 1601 or 1970: no addresses, and times even if they are not in order.
    fn is_clock(&self) -> bool {
        let rising = self.values.windows(2).filter(|w| w[0] <= w[1]).count();
        let titled = self.is_titled(&TIME) && !self.is_titled(&ADDRESS);
        clock(&self.values).is_some()
            && (titled || 5 * rising >= 4 * (self.values.len() - 1) && !self.are_sectors())
    }
}

/// The role of a column of times with its unit, if its title or its numbers state that.
pub(super) fn stated_time(title: &str, values: &[f64]) -> Option<&'static str> {
    const UNITS: [(&str, &str); 4] = [
        ("ns", "time_ns"),
        ("us", "time_us"),
        ("ms", "time_ms"),
        ("s", "time_s"),
    ];
    let title = title.to_lowercase();
    let mut words = title.split(|c: char| !c.is_ascii_alphanumeric());
    let stated = words.find_map(|word| UNITS.iter().find(|(unit, _)| *unit == word));
    stated.map(|(_, name)| *name).or_else(|| clock(values))
}

/// The role of times that count from 1970, or from 1601 as Windows', by their number of digits: those of the years 2001 to 2036.
fn clock(values: &[f64]) -> Option<&'static str> {
    const CLOCKS: [(f64, f64, &str); 5] = [
        (1e9, 2.1e9, "time_s"),
        (1e12, 2.1e12, "time_ms"),
        (1e15, 2.1e15, "time_us"),
        (1e18, 2.1e18, "time_ns"),
        (1.26e17, 1.375e17, "time_100ns"),
    ];
    let all = |&(from, to, _): &(f64, f64, &str)| {
        !values.is_empty() && values.iter().all(|v| (from..to).contains(v))
    };
    CLOCKS.iter().find(|clock| all(clock)).map(|clock| clock.2)
}

/// The roles of the columns of addresses and sizes, with their units if titles or numbers show them.
fn place(offset: &Column, length: &Column) -> [&'static str; 2] {
    let rows: Vec<Row> = std::iter::zip(&offset.values, &length.values)
        .map(|(&at, &size)| Row {
            device: 0,
            at: at as u64,
            size: size as u64,
        })
        .collect();
    let bytes = length.is_titled(&["byte"]).then_some(1);
    let shown = weigh(&rows, bytes).map(|(units, _)| units);
    let at = if offset.is_titled(&SECTORS) {
        Some(512)
    } else if offset.is_titled(&["byte"]) {
        Some(1)
    } else {
        shown.map(|u| u.at)
    };
    let size = bytes
        .or(length.is_titled(&SECTORS).then_some(512))
        .or(shown.map(|u| u.size));
    let role = |unit, names: [&'static str; 4]| match unit {
        Some(1) => names[0],
        Some(512) => names[1],
        Some(PAGE) => names[2],
        _ => names[3],
    };
    [
        role(
            at,
            ["offset_bytes", "offset_sectors", "offset_4k", "offset"],
        ),
        role(
            size,
            ["length_bytes", "length_sectors", "length_4k", "length"],
        ),
    ]
}

/// The value of a field that is a number of at least zero, or a date or time of day.
pub(super) fn number(field: &[u8]) -> Option<f64> {
    if let Some(n) = whole(field, "").ok().or_else(|| nanoseconds(field)) {
        return Some(n as f64);
    }
    let plain = |c: &u8| c.is_ascii_digit() || matches!(c, b'.' | b',');
    if field.is_empty() || !field.iter().all(plain) {
        return None;
    }
    std::str::from_utf8(field)
        .ok()?
        .replace(',', ".")
        .parse()
        .ok()
}

/// The meaning of the first numbers of a line by their order: time, offset and length, or offset and length.
fn by_order(all: &[Column]) -> Vec<(&Column, &'static str)> {
    let timed = all.len() > 2;
    let mut found = Vec::new();
    if timed {
        found.push((&all[0], all[0].time()));
    }
    let rest = &all[usize::from(timed)..];
    let [offset, length] = place(&rest[0], &rest[1]);
    found.push((&rest[0], offset));
    found.push((&rest[1], length));
    found
}

/// The meaning of columns by their values.
fn by_value(all: &[Column]) -> Vec<(&Column, &'static str)> {
    let mut left: Vec<&Column> = all.iter().collect();
    let mut found = Vec::new();
    let times = |c: &&Column| c.is_clock() || c.rises() && !c.are_sectors();
    let rising: Vec<&Column> = left.iter().copied().filter(times).collect();
    // A clock is surely a time, and a column that numbers the lines is one only if there is no other.
    let time = rising
        .iter()
        .find(|c| c.is_clock())
        .or(rising.iter().find(|c| !c.counts()));
    if let Some(time) = time.or(rising.first()).filter(|_| left.len() > 2) {
        found.push((*time, time.time()));
        left.retain(|c| c.at != time.at && !c.is_clock() && !(c.rises() && c.counts()));
    }
    let whole = |c: &&&Column| !c.fraction;
    let largest = |a: &&&Column, b: &&&Column| a.most().total_cmp(&b.most());
    let titled = left.iter().filter(whole).find(|c| c.is_titled(&ADDRESS));
    let offset = titled.or_else(|| left.iter().filter(whole).max_by(largest));
    let Some(&offset) = offset else {
        return found;
    };
    left.retain(|c| c.at != offset.at);
    // Lengths stand beside addresses, or they are whole sectors, even if all are alike (a benchmark's).
    let beside = left.iter().filter(whole).find(|c| c.at == offset.at + 1);
    let sectors = left.iter().filter(whole).find(|c| c.are_sectors());
    let length = beside.or(sectors).or_else(|| {
        let varying = left.iter().filter(whole).filter(|c| c.varies());
        varying.max_by(largest).or(left.iter().find(whole))
    });
    if let Some(&length) = length {
        let [at, size] = place(offset, length);
        found.extend([(offset, at), (length, size)]);
    }
    found
}
