//! Texts of other programs whose line of column names is known: each is read by the columns of a [`ColumnMap`].

use super::column_map::ColumnMap;
use super::custom::{fields, separators};
use crate::error::TraceError;
use crate::format::Format;
use crate::input::Input;

/// Lines among which the names of the columns are.
const LINES: usize = 32;

/// The columns of a program's output.
struct Preset {
    format: Format,
    /// The columns that all versions and options of the program have, as `ROLE=NAME`.
    need: &'static str,
    /// The columns that are read if they are there.
    more: &'static str,
}

const PRESETS: [Preset; 5] = [
    // Windows Performance Analyzer, the table of disk usage. Times are since the beginning of the recording.
    Preset {
        format: Format::Wpa,
        need: "op=IO Type,time_s=Init Time (s),offset_bytes=Min Offset,length_bytes=Size (B)",
        more: "device=Disk,done_s=Complete Time (s)",
    },
    // biosnoop of BCC prints a request when it completes.
    Preset {
        format: Format::Biosnoop,
        need: "done_s=TIME(s),device=DISK,op=T,offset_sectors=SECTOR,length_bytes=BYTES,latency_ms=LAT(ms)",
        more: "",
    },
    // iosnoop of perf-tools; it has times only if it is asked for them.
    Preset {
        format: Format::Iosnoop,
        need: "op=TYPE,device=DEV,offset_sectors=BLOCK,length_bytes=BYTES,latency_ms=LATms",
        more: "time_s=STARTs,done_s=ENDs",
    },
    // libCacheSim: the form of its examples, with the command of SCSI, and that of its converter.
    Preset {
        format: Format::LibCacheSim,
        need: "time_s=time,op=op,length_bytes=size,offset_sectors=lbn",
        more: "",
    },
    Preset {
        format: Format::LibCacheSim,
        need: "time_s=time,offset=obj_id,length_bytes=obj_size",
        more: "op=op",
    },
];

impl Preset {
    /// The columns, if these are names of columns and all that are needed are among them.
    fn fit(&self, names: &[&[u8]]) -> Option<ColumnMap> {
        let there = |column: &&str| {
            let name = column.split_once('=').map_or("", |(_, name)| name);
            names.contains(&name.as_bytes())
        };
        if !self.need.split(',').all(|column| there(&column)) {
            return None;
        }
        let more = self.more.split(',').filter(|c| !c.is_empty()).filter(there);
        let all: Vec<&str> = self.need.split(',').chain(more).collect();
        all.join(",").parse().ok()
    }
}

/// The format whose column names this line holds, and its columns.
fn of_line(line: &[u8], format: Option<Format>) -> Option<(Format, ColumnMap)> {
    let line = line.trim_ascii();
    let wanted = PRESETS
        .iter()
        .filter(|p| format.is_none_or(|f| f == p.format));
    let mut splits = separators(line).into_iter().map(|s| (s, fields(s, line)));
    splits.find_map(|(separator, names)| {
        wanted.clone().find_map(|preset| {
            let map = preset.fit(&names)?.separated_by(separator);
            Some((preset.format, map))
        })
    })
}

/// The format of a text that begins with `head`, if the names of its columns are known.
pub(crate) fn recognise(head: &[u8]) -> Option<Format> {
    let mut lines = head.split(|&c| c == b'\n').take(LINES);
    lines
        .find_map(|line| of_line(line, None))
        .map(|(format, _)| format)
}

/// Whether `format` is one of these.
pub(crate) fn has(format: Format) -> bool {
    PRESETS.iter().any(|p| p.format == format)
}

/// The columns of a text in `format`.
///
/// # Errors
/// No line at the beginning has the names.
pub(crate) fn columns(format: Format, mut input: Input) -> Result<ColumnMap, TraceError> {
    for at in 0..LINES {
        let Some(line) = input.line()? else { break };
        if let Some((_, map)) = of_line(line, Some(format)) {
            return Ok(ColumnMap { skip: at, ..map });
        }
    }
    let needs = PRESETS.iter().filter(|p| p.format == format).map(|p| {
        let names = p.need.split(',').filter_map(|c| c.split_once('='));
        names.map(|(_, name)| name).collect::<Vec<_>>().join(", ")
    });
    let needs: Vec<String> = needs.collect();
    Err(TraceError::unsupported(
        &input.path,
        format!(
            "is no {format}: none of its first {LINES} lines has the columns {}",
            needs.join("; or ")
        ),
    ))
}
