//! The table as a picture.

use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::report::{Report, Row, Workload};
use super::setup::SetUp;
use crate::Failure;

const SIZE: (u32, u32) = (960, 420);
const LEFT: i32 = 160;
const BAR: i32 = 30;
const INK: RGBColor = RGBColor(60, 60, 60);

type Figure = fn(&Row) -> f64;

fn colour(setup: SetUp) -> RGBColor {
    match setup {
        SetUp::Hdd => RGBColor(91, 122, 158),
        SetUp::Hybrid => RGBColor(214, 110, 50),
        SetUp::Ssd => RGBColor(230, 180, 80),
    }
}

/// Writes an SVG.
///
/// # Errors
/// The file cannot be written.
pub fn draw(report: &Report, file: &Path) -> Result<(), Failure> {
    paint(report, file)
        .map_err(|e| Failure::failed(format!("{}: cannot draw: {e}", file.display())))
}

/// Two panels side by side: elapsed time and median latency, bars by set-up from zero.
#[expect(clippy::too_many_lines, reason = "to be divided")]
fn paint(report: &Report, file: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::new(file, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let at = |h, v| Pos::new(h, v);
    let style = |size: i32, pos: Pos| ("sans-serif", size).into_font().color(&INK).pos(pos);
    let title =
        "The same work on a disk, a hybrid volume, and flash (all paced; shorter is better)";
    area.draw(&Text::new(
        title,
        (20, 16),
        style(24, at(HPos::Left, VPos::Top)),
    ))?;
    let panels: [(&str, Figure, &str, f64); 2] = [
        ("elapsed", |r| r.elapsed_s, "s", 1.0),
        ("median request", |r| r.latency_p50_s, "ms", 1e3),
    ];
    let width = (SIZE.0 as i32 - 20) / 2;
    for (i, (name, value, unit, scale)) in panels.into_iter().enumerate() {
        let x0 = i as i32 * width;
        let most = report.rows.iter().map(value).fold(1e-9, f64::max);
        let length = |v: f64| (v / most * f64::from(width - LEFT - 90)) as i32;
        let mut y = 56;
        area.draw(&Text::new(
            name,
            (x0 + LEFT, y),
            style(20, at(HPos::Left, VPos::Top)),
        ))?;
        y += 28;
        for workload in [Workload::Postmark, Workload::Trace] {
            let rows: Vec<&Row> = report
                .rows
                .iter()
                .filter(|r| r.workload == workload)
                .collect();
            for r in &rows {
                let middle = y + BAR / 2;
                let label = format!("{workload}, {}", r.setup.words());
                area.draw(&Text::new(
                    label,
                    (x0 + LEFT - 8, middle),
                    style(18, at(HPos::Right, VPos::Center)),
                ))?;
                let end = x0 + LEFT + length(value(r));
                area.draw(&Rectangle::new(
                    [(x0 + LEFT, y + 3), (end, y + BAR - 3)],
                    colour(r.setup).filled(),
                ))?;
                let v = value(r) * scale;
                let digits = if v >= 100.0 {
                    0
                } else if v >= 1.0 {
                    1
                } else {
                    2
                };
                let figure = format!("{v:.digits$} {unit}");
                area.draw(&Text::new(
                    figure,
                    (end + 6, middle),
                    style(18, at(HPos::Left, VPos::Center)),
                ))?;
                y += BAR;
            }
            y += if rows.is_empty() { 0 } else { 18 };
        }
    }
    let hybrid = report.rows.iter().filter(|r| r.setup == SetUp::Hybrid);
    let shares: Vec<String> = hybrid
        .map(|r| {
            let share = r.flash_bytes as f64 / r.volume_bytes.max(1) as f64 * 100.0;
            let hits = r.fast_hit_ratio.unwrap_or(0.0) * 100.0;
            format!(
                "{}: {share:.0} % of the volume is flash, {hits:.0} % of the accesses hit it",
                r.workload
            )
        })
        .collect();
    // A line each: side by side they do not fit the picture.
    for (i, share) in shares.iter().rev().enumerate() {
        area.draw(&Text::new(
            format!("Hybrid, {share}"),
            (20, SIZE.1 as i32 - 16 - 26 * i as i32),
            style(18, at(HPos::Left, VPos::Bottom)),
        ))?;
    }
    area.present()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_row_has_its_bar_and_figure() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("demo.svg");
        let row = |setup, s| {
            Row::new(
                setup,
                Workload::Trace,
                s,
                &json!({"latency_p50_s": s / 1000.0, "volume_bytes": 4}),
            )
        };
        let rows = vec![
            row(SetUp::Hdd, 60.0),
            row(SetUp::Hybrid, 20.0),
            row(SetUp::Ssd, 0.0),
        ];
        draw(
            &Report {
                rows,
                ..Report::default()
            },
            &file,
        )
        .expect("drawn");
        let svg = std::fs::read_to_string(&file).expect("written");
        for want in ["60.0 s", "20.0 ms", "0.00 s", "trace, SSD only"] {
            assert!(svg.contains(want), "{want}");
        }
        assert!(draw(&Report::default(), &dir.path().join("no/dir.svg")).is_err());
    }
}
