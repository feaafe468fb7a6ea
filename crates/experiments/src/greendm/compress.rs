//! Figure 5.3 and Table 5.1: real compressors at their levels, on text, binary and random data.
//!
//! Processor time is measured here on one thread. The time on the thesis' server, a quad-core with 15 000 rpm disks and 1.3 GB to compress
//! (5.4.2), is extrapolated from it, and the energy comes from a model of a host. The directions depend on neither.

use std::io::Write;

use isotherm_core::random::SplitMix64;
use isotherm_models::enclosure::Host;
use rustix::time::{ClockId, clock_gettime};

use super::judge::{ends, greater, span};
use crate::Ctx;
use crate::outcome::{Cell, Outcome, Row, Table};
use isotherm_lab::LabError;

/// Bytes of each kind of data: a few times bzip2's largest block.
const BYTES: usize = 3 << 20;
/// The thesis' load: 20 files of 65 MB.
const LOAD_BYTES: f64 = 20.0 * 65e6;
/// Number of cores of the thesis' server.
const CORES: f64 = 4.0;
/// Rate of the thesis' SAS disk in bytes per second: typical of a 146 GB drive at 15 000 rpm.
const DISK_BYTES_PER_S: f64 = 110e6;
/// The thesis' server (a PowerEdge R710). The thesis prints watt-hours in plots only.
const HOST: Host = Host {
    idle_w: 130.0,
    busy_w: 210.0,
};
/// Ratios that differ from Table 5.1 by at most this share are near it.
const NEAR: f64 = 0.25;

/// The corpus of the text generator: pages of this project as they once were. It is a copy, since figures must not change with the pages.
const WORDS: &str = include_str!("corpus.txt");

/// Text of the wanted length: sentences and lines of the corpus, cut into runs of one to five words, in random order.
fn text(random: &mut SplitMix64) -> Vec<u8> {
    let words: Vec<&str> = WORDS.split(' ').collect();
    let mut out = Vec::with_capacity(BYTES + 256);
    while out.len() < BYTES {
        let from = (random.draw() % words.len() as u64) as usize;
        let run = (random.draw() % 5 + 1) as usize;
        for w in words[from..].iter().take(run) {
            out.extend_from_slice(w.as_bytes());
            out.push(b' ');
        }
    }
    out.truncate(BYTES);
    out
}

/// The machine code of this program.
fn binary() -> Result<Vec<u8>, String> {
    let path = std::env::current_exe().map_err(|e| e.to_string())?;
    let all = std::fs::read(path).map_err(|e| e.to_string())?;
    let code = code(&all).ok_or("it is no ELF program of 64 bits")?;
    Ok(code[..BYTES.min(code.len())].to_vec())
}

/// The executable part of an ELF64 little-endian program: its first loaded segment with the execute flag. Symbols and debugging data are
/// elsewhere; the thesis' binaries hardly had any, and they compress differently.
fn code(program: &[u8]) -> Option<&[u8]> {
    let at = |from: usize, n: usize| -> Option<u64> {
        let bytes = program.get(from..from.checked_add(n)?)?;
        Some(bytes.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b)))
    };
    program.starts_with(b"\x7fELF\x02\x01").then_some(())?;
    let (table, size, count) = (
        at(0x20, 8)? as usize,
        at(0x36, 2)? as usize,
        at(0x38, 2)? as usize,
    );
    for i in 0..count {
        let header = table.checked_add(i * size)?;
        let (kind, flags) = (at(header, 4)?, at(header + 4, 4)?);
        if kind == 1 && flags & 1 == 1 {
            let (from, len) = (at(header + 8, 8)? as usize, at(header + 32, 8)? as usize);
            return program.get(from..from.checked_add(len)?);
        }
    }
    None
}

fn random(random: &mut SplitMix64) -> Vec<u8> {
    let mut bytes = vec![0; BYTES];
    random.fill(&mut bytes);
    bytes
}

/// The output of a tool at a level for some data.
fn compressed(tool: &str, level: u32, data: &[u8]) -> std::io::Result<usize> {
    match tool {
        "gzip" => {
            let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(level));
            e.write_all(data)?;
            Ok(e.finish()?.len())
        }
        "bzip2" => {
            let mut e = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::new(level));
            e.write_all(data)?;
            Ok(e.finish()?.len())
        }
        _ => lzokay::compress::compress(data)
            .map(|v| v.len())
            .map_err(|e| std::io::Error::other(e.to_string())),
    }
}

fn cpu_s() -> f64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}

/// One tool at one level for one kind of data.
struct Point {
    data: &'static str,
    tool: &'static str,
    level: u32,
    ratio: f64,
    time_s: f64,
    energy_j: f64,
}

fn point(
    name: &'static str,
    data: &[u8],
    tool: &'static str,
    level: u32,
) -> Result<Point, LabError> {
    let mut best = f64::INFINITY;
    let mut size = 0;
    for _ in 0..2 {
        let begun = cpu_s();
        size = compressed(tool, level, data)
            .map_err(|e| LabError::setup(format!("{tool} on {name}: {e}")))?;
        best = best.min(cpu_s() - begun);
    }
    let ratio = data.len() as f64 / size as f64;
    let work_s = best * LOAD_BYTES / data.len() as f64 / CORES;
    let disk_s = (LOAD_BYTES + LOAD_BYTES / ratio) / DISK_BYTES_PER_S;
    // Faster disks and faster clocks both shorten the time (5.5.3), so the two do not overlap.
    let time_s = work_s + disk_s;
    Ok(Point {
        data: name,
        tool,
        level,
        ratio,
        time_s,
        energy_j: HOST.energy_j(time_s, work_s),
    })
}

/// The experiment.
///
/// # Errors
/// A compressor fails.
pub fn run(ctx: &Ctx<'_>, out: &mut Outcome) -> Result<(), LabError> {
    let mut r = SplitMix64::new(ctx.seed);
    let mut kinds = vec![("text", text(&mut r)), ("random", random(&mut r))];
    match binary() {
        Ok(b) => kinds.insert(1, ("binary", b)),
        Err(e) => out
            .substitutes
            .push(format!("no binary data: this program cannot be read ({e})")),
    }
    out.inputs.push("3 MiB each of text (this project's documents, cut into runs of words and shuffled), binary (this program's code) and random data; gzip by flate2, bzip2 by libbz2-rs, LZO by lzokay; best of two".to_owned());
    out.substitutes.push("machine: processor time is this machine's, spread over 4 cores; 1.3 GB from and to a disk of 110 MB/s; 130 W idle, 210 W busy: typical of the thesis' server, which it does not print".to_owned());
    out.substitutes.push("files: the thesis' are not to be had; gzip and bzip2 are other implementations of the same formats; of lzop's levels there is one, near 7 to 9".to_owned());
    let mut points = Vec::new();
    for (name, data) in &kinds {
        (ctx.progress)(&format!("greendm-5.1: {name}"));
        for tool in ["gzip", "bzip2"] {
            for level in 1..=9 {
                points.push(point(name, data, tool, level)?);
            }
        }
        points.push(point(name, data, "lzo", 0)?);
    }
    for (name, _) in &kinds {
        let rows = points.iter().filter(|p| p.data == *name).map(|p| {
            let label = if p.level == 0 {
                p.tool.to_owned()
            } else {
                format!("{}-{}", p.tool, p.level)
            };
            let printed = out
                .printed(&format!("{name} {label}"))
                .or_else(|| out.printed(&format!("{name} {}", p.tool)));
            Row::new(
                label,
                vec![
                    Cell::new("ratio", "", p.ratio).beside(printed),
                    Cell::new("elapsed", "s", p.time_s),
                    Cell::new("energy", "Wh", p.energy_j / 3600.0),
                ],
            )
        });
        let rows = rows.collect();
        out.tables.push(Table::new(*name, rows));
    }
    judge(out, &points);
    Ok(())
}

#[expect(clippy::too_many_lines, reason = "claims in the paper's order")]
fn judge(out: &mut Outcome, points: &[Point]) {
    let of = |data: &str, tool: &str| -> Vec<&Point> {
        points
            .iter()
            .filter(|p| p.data == data && p.tool == tool)
            .collect()
    };
    let energy = |data: &str, tool: &str| -> Vec<f64> {
        of(data, tool).iter().map(|p| p.energy_j / 3600.0).collect()
    };
    let (gzip, bzip2) = (energy("text", "gzip"), energy("text", "bzip2"));
    let (low, high) = ends(gzip.iter().copied());
    let line = |i: usize| gzip[0] + (gzip[8] - gzip[0]) * i as f64 / 8.0;
    let bend = (0..9)
        .map(|i| (gzip[i] - line(i)).abs() / (high - low))
        .fold(0.0, f64::max);
    out.judge(
        "nonlinear",
        bend > 0.1,
        format!(
            "gzip on text is up to {:.0} % of its range off a line from level 1 to 9",
            bend * 100.0
        ),
    );
    let mut falls = Vec::new();
    for (data, tool) in [
        ("text", "gzip"),
        ("text", "bzip2"),
        ("binary", "gzip"),
        ("binary", "bzip2"),
        ("random", "gzip"),
        ("random", "bzip2"),
    ] {
        let e = energy(data, tool);
        for (i, w) in e.windows(2).enumerate().filter(|(_, w)| w[1] < w[0] * 0.97) {
            falls.push(format!(
                "{data} {tool}-{} to {}: {:.1} to {:.1} Wh",
                i + 1,
                i + 2,
                w[0],
                w[1]
            ));
        }
    }
    let none = "no level takes over 3 % less than the one below it".to_owned();
    out.judge(
        "nonmonotonic",
        !falls.is_empty(),
        if falls.is_empty() {
            none
        } else {
            falls.join(", ")
        },
    );
    let pairs: Vec<(f64, f64)> = points.iter().map(|p| (p.time_s, p.energy_j)).collect();
    let r = correlation(&pairs);
    out.judge(
        "energy-follows-time",
        r > 0.95,
        format!("correlation {r:.3} over {} points", pairs.len()),
    );
    let (low, high) = ends(bzip2.iter().copied());
    out.judge(
        "bzip2-stable",
        high / low < 1.5,
        format!("on text {}", span(low, high, "Wh")),
    );
    let mean = |v: &[f64]| v.iter().sum::<f64>() / v.len() as f64;
    let top = gzip.iter().copied().fold(0.0, f64::max);
    out.judge(
        "gzip-rises",
        mean(&gzip[6..]) > mean(&gzip[..3]) && gzip[8] < top,
        format!(
            "on text {} at levels 1, 6, 7, 8, 9",
            [0, 5, 6, 7, 8]
                .map(|i| format!("{:.3}", gzip[i]))
                .join(", ")
        ) + " Wh",
    );
    out.cannot(
        "lzo-levels",
        "no freely licensed LZO with lzop's levels: lzokay (MIT) has one, lzo2 and lzop are GPL",
    );
    let lzo = mean(&energy("text", "lzo"));
    out.cannot(
        "bzip2-over-lzo",
        format!("lzop's fast levels; the one LZO here, as tight as its levels 7 to 9: {lzo:.2} Wh, bzip2 {:.2} Wh on text", mean(&bzip2)),
    );
    let binary = energy("binary", "gzip");
    if binary.is_empty() {
        out.cannot("binary-over-text", "binary data");
    } else {
        greater(
            out,
            "binary-over-text",
            ("gzip, mean of levels, binary:", mean(&binary)),
            ("text:", mean(&gzip)),
            "Wh",
        );
    }
    for (key, tool) in [("ratios-gzip", "gzip"), ("ratios-bzip2", "bzip2")] {
        let off = |data: &str| {
            let printed = |p: &&Point| out.printed(&format!("{data} {tool}-{}", p.level));
            of(data, tool)
                .iter()
                .filter_map(|p| Some((p.ratio / printed(p)?.low - 1.0).abs() * 100.0))
                .fold(0.0, f64::max)
        };
        let (binary, text) = (off("binary"), off("text"));
        if of("binary", tool).is_empty() {
            out.cannot(key, "binary data");
            continue;
        }
        // One program is like another program. Shuffled documents are not like the thesis' text, so their ratio is shown and not judged.
        let why = format!(
            "binary at most {binary:.0} % off (near: {:.0} %); text at most {text:.0} %, not judged: theirs is not to be had",
            NEAR * 100.0
        );
        out.judge(key, binary <= NEAR * 100.0, why);
    }
    let ratio = |tool: &str, level: u32| {
        of("text", tool)
            .iter()
            .find(|p| p.level == level)
            .map_or(f64::NAN, |p| p.ratio)
    };
    greater(
        out,
        "ratios-order",
        ("text, bzip2-9:", ratio("bzip2", 9)),
        ("gzip-9:", ratio("gzip", 9)),
        "",
    );
    let (low, high) = ends(
        points
            .iter()
            .filter(|p| p.data == "random")
            .map(|p| p.ratio),
    );
    out.judge(
        "ratios-random",
        low > 0.985 && high < 1.005,
        span(low, high, ""),
    );
}

fn correlation(pairs: &[(f64, f64)]) -> f64 {
    let n = pairs.len() as f64;
    let (x, y) = pairs
        .iter()
        .fold((0.0, 0.0), |(a, b), (x, y)| (a + x / n, b + y / n));
    let sum = |f: &dyn Fn(f64, f64) -> f64| pairs.iter().map(|(a, b)| f(a - x, b - y)).sum::<f64>();
    sum(&|a, b| a * b) / (sum(&|a, _| a * a) * sum(&|_, b| b * b)).sqrt()
}
