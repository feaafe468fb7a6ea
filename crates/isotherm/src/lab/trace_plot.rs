//! A picture of a trace: where and when it accesses its devices, the sizes of its requests, and its reuse distances.

use std::path::Path;

use isotherm_traces::{HEAT_CELLS, Heats, Info};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::Failure;

const SIZE: (u32, u32) = (960, 720);
const INK: RGBColor = RGBColor(60, 60, 60);
const BAR: RGBColor = RGBColor(91, 122, 158);
const LINE: RGBColor = RGBColor(214, 110, 50);
/// Height of the heat map, the upper half.
const HEAT_HEIGHT: i32 = 380;
const LEFT: i32 = 80;
const TOP: i32 = 50;

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Writes an SVG.
///
/// # Errors
/// The file cannot be written.
pub fn draw(title: &str, info: &Info, heats: &Heats, file: &Path) -> Result<(), Failure> {
    paint(title, info, heats, file)
        .map_err(|e| Failure::failed(format!("{}: cannot draw: {e}", file.display())))
}

fn paint(title: &str, info: &Info, heats: &Heats, file: &Path) -> Drawn {
    let area = SVGBackend::new(file, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    write(&area, title, (20, 14), 20, HPos::Left)?;
    heat(&area, info, heats)?;
    let half = SIZE.0 as i32 / 2;
    sizes(&area, info, (LEFT, half - 30))?;
    reuse(&area, info, (half + 60, SIZE.0 as i32 - 30))?;
    area.present()?;
    Ok(())
}

fn write(area: &Area<'_>, text: &str, at: (i32, i32), size: i32, side: HPos) -> Drawn {
    let style = ("sans-serif", size)
        .into_font()
        .color(&INK)
        .pos(Pos::new(side, VPos::Top));
    area.draw(&Text::new(text, at, style))?;
    Ok(())
}

/// Bytes with a binary unit.
fn bytes(n: f64) -> String {
    let units = [
        (1u64 << 40, "TiB"),
        (1 << 30, "GiB"),
        (1 << 20, "MiB"),
        (1 << 10, "KiB"),
    ];
    units
        .iter()
        .find(|(unit, _)| n >= *unit as f64)
        .map_or_else(
            || format!("{n:.0} B"),
            |(unit, name)| format!("{:.3} {name}", n / *unit as f64),
        )
        .replace(".000", "")
}

/// A band for each device. Addresses go upwards and time to the right; darker is hotter, on a logarithmic scale.
fn heat(area: &Area<'_>, info: &Info, heats: &Heats) -> Drawn {
    let devices = heats.devices();
    let right = SIZE.0 as i32 - 30;
    let band = HEAT_HEIGHT / devices.len().max(1) as i32;
    for (d, h) in devices.iter().enumerate() {
        let cells = || (0..HEAT_CELLS).flat_map(|c| (0..HEAT_CELLS).map(move |r| (c, r)));
        let used: Vec<(usize, usize, u64)> = cells()
            .map(|(c, r)| (c, r, h.count(c, r)))
            .filter(|cell| cell.2 > 0)
            .collect();
        let most = used.iter().map(|cell| cell.2).max().unwrap_or(1);
        let columns = used.iter().map(|cell| cell.0 + 1).max().unwrap_or(1) as i32;
        let rows = used.iter().map(|cell| cell.1 + 1).max().unwrap_or(1) as i32;
        let top = TOP + d as i32 * band;
        let bottom = top + band - 8;
        let x = |c: i32| LEFT + c * (right - LEFT) / columns;
        let y = |r: i32| bottom - r * (bottom - top) / rows;
        for (c, r, count) in used {
            let heat = (count as f64).ln_1p() / (most as f64).ln_1p();
            let fade = |to: f64| (245.0 + (to - 245.0) * heat) as u8;
            let colour = RGBColor(fade(150.0), fade(40.0), fade(20.0));
            let (c, r) = (c as i32, r as i32);
            area.draw(&Rectangle::new(
                [(x(c), y(r + 1)), (x(c + 1), y(r))],
                colour.filled(),
            ))?;
        }
        area.draw(&Rectangle::new([(LEFT, top), (right, bottom)], INK))?;
        write(
            area,
            &bytes((rows as u64 * h.cell_bytes) as f64),
            (LEFT - 6, top),
            14,
            HPos::Right,
        )?;
        write(area, "0", (LEFT - 6, bottom - 14), 14, HPos::Right)?;
    }
    let below = TOP + HEAT_HEIGHT - 4;
    let time = info.duration_s.map_or_else(
        || "by request (no time in the trace)".to_owned(),
        |s| format!("{s:.1} s"),
    );
    write(
        area,
        "address over time, darker: more 4 KiB accesses (log)",
        (LEFT, below),
        14,
        HPos::Left,
    )?;
    write(area, &time, (right, below), 14, HPos::Right)
}

const PANEL_TOP: i32 = TOP + HEAT_HEIGHT + 60;
const PANEL_BOTTOM: i32 = SIZE.1 as i32 - 50;

/// Requests by size, in powers of two.
fn sizes(area: &Area<'_>, info: &Info, (left, right): (i32, i32)) -> Drawn {
    write(
        area,
        "share of requests by size (up to)",
        (left, PANEL_TOP - 30),
        16,
        HPos::Left,
    )?;
    let mut bins = std::collections::BTreeMap::<u32, u64>::new();
    for (&size, &count) in &info.sizes {
        *bins
            .entry(size.max(1).next_power_of_two().trailing_zeros())
            .or_default() += count;
    }
    let all: u64 = bins.values().sum();
    let (Some((&first, _)), Some((&last, _))) = (bins.first_key_value(), bins.last_key_value())
    else {
        return Ok(());
    };
    let width = (right - left) / (last - first + 1) as i32;
    for (bin, count) in bins {
        let x = left + (bin - first) as i32 * width;
        let share = count as f64 / all as f64;
        let y = PANEL_BOTTOM - (share * f64::from(PANEL_BOTTOM - PANEL_TOP)) as i32;
        area.draw(&Rectangle::new(
            [(x + 2, y), (x + width - 2, PANEL_BOTTOM)],
            BAR.filled(),
        ))?;
        let label = bytes((1u64 << bin) as f64);
        write(
            area,
            &label,
            (x + width / 2, PANEL_BOTTOM + 6),
            11,
            HPos::Center,
        )?;
        write(
            area,
            &format!("{:.0} %", share * 100.0),
            (x + width / 2, y - 14),
            11,
            HPos::Center,
        )?;
    }
    area.draw(&PathElement::new(
        [(left, PANEL_BOTTOM), (right, PANEL_BOTTOM)],
        INK,
    ))?;
    Ok(())
}

/// Hit ratio of an LRU cache as a function of its size, which is the cumulative distribution of reuse distances.
fn reuse(area: &Area<'_>, info: &Info, (left, right): (i32, i32)) -> Drawn {
    let r = &info.reuse;
    let title = format!(
        "reuse: LRU hit ratio by cache size (sampled {:.2} %)",
        r.sampling_rate * 100.0
    );
    write(area, &title, (left, PANEL_TOP - 30), 16, HPos::Left)?;
    area.draw(&Rectangle::new(
        [(left, PANEL_TOP), (right, PANEL_BOTTOM)],
        INK,
    ))?;
    write(area, "1", (left - 6, PANEL_TOP), 12, HPos::Right)?;
    write(area, "0", (left - 6, PANEL_BOTTOM - 12), 12, HPos::Right)?;
    let (Some(&(least, _)), Some(&(most, _))) = (r.lru_hit_ratio.first(), r.lru_hit_ratio.last())
    else {
        return Ok(());
    };
    let (low, high) = (least.log2(), most.log2().max(least.log2() + 1.0));
    let x = |b: f64| left + ((b.log2() - low) / (high - low) * f64::from(right - left)) as i32;
    let y = |ratio: f64| PANEL_BOTTOM - (ratio * f64::from(PANEL_BOTTOM - PANEL_TOP)) as i32;
    let mut line = vec![(left, PANEL_BOTTOM)];
    line.extend(r.lru_hit_ratio.iter().map(|&(b, ratio)| (x(b), y(ratio))));
    area.draw(&PathElement::new(line, LINE.stroke_width(2)))?;
    write(
        area,
        &bytes(least),
        (left, PANEL_BOTTOM + 6),
        12,
        HPos::Left,
    )?;
    let middle = i32::midpoint(left, right);
    write(
        area,
        "cache size (log)",
        (middle, PANEL_BOTTOM + 6),
        12,
        HPos::Center,
    )?;
    write(
        area,
        &bytes(most),
        (right, PANEL_BOTTOM + 6),
        12,
        HPos::Right,
    )
}
