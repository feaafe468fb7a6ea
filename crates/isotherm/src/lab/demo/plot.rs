//! The table as a picture.

use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::report::{Report, Row, Workload};
use super::setup::SetUp;
use crate::Failure;

const SIZE: (u32, u32) = (960, 420);
const LEFT: i32 = 160;
const BAR: i32 = 30;
const INK: RGBColor = RGBColor(60, 60, 60);

/// The width of a panel.
const PANEL: i32 = (SIZE.0 as i32 - 20) / 2;

type Figure = fn(&Row) -> f64;
type Painted = Result<(), Box<dyn std::error::Error>>;

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
fn paint(report: &Report, file: &Path) -> Painted {
    let canvas = Canvas(SVGBackend::new(file, SIZE).into_drawing_area());
    canvas.0.fill(&WHITE)?;
    let title =
        "The same work on a disk, a hybrid volume, and flash (all paced; shorter is better)";
    canvas.text(title, (20, 16), 24, Pos::new(HPos::Left, VPos::Top))?;
    let panels = [
        Panel {
            name: "elapsed",
            value: |r| r.elapsed_s,
            unit: "s",
            scale: 1.0,
            left: 0,
        },
        Panel {
            name: "median request",
            value: |r| r.latency_p50_s,
            unit: "ms",
            scale: 1e3,
            left: PANEL,
        },
    ];
    for panel in &panels {
        canvas.panel(panel, &report.rows)?;
    }
    canvas.shares(&report.rows)?;
    canvas.0.present()?;
    Ok(())
}

/// A panel shows one figure of every row.
struct Panel {
    name: &'static str,
    value: Figure,
    unit: &'static str,
    /// The number of the panel's units in one unit of the row.
    scale: f64,
    left: i32,
}

impl Panel {
    /// The figure of a row as text, with three digits or, for small figures, two decimals.
    fn text(&self, row: &Row) -> String {
        let v = (self.value)(row) * self.scale;
        let digits = if v >= 100.0 {
            0
        } else if v >= 1.0 {
            1
        } else {
            2
        };
        format!("{v:.digits$} {}", self.unit)
    }
}

/// The picture while it is drawn.
struct Canvas<'a>(DrawingArea<SVGBackend<'a>, Shift>);

impl Canvas<'_> {
    fn text(&self, text: impl Into<String>, at: (i32, i32), size: i32, pos: Pos) -> Painted {
        let (text, font): (String, _) = (text.into(), ("sans-serif", size).into_font());
        self.0
            .draw(&Text::new(text, at, font.color(&INK).pos(pos)))?;
        Ok(())
    }

    /// Draws the panel with a bar for each row, by workload.
    fn panel(&self, panel: &Panel, rows: &[Row]) -> Painted {
        let left = panel.left + LEFT;
        let most = rows.iter().map(panel.value).fold(1e-9, f64::max);
        let mut y = 56;
        self.text(panel.name, (left, y), 20, Pos::new(HPos::Left, VPos::Top))?;
        y += 28;
        for workload in [Workload::Postmark, Workload::Trace] {
            let mut any = false;
            for r in rows.iter().filter(|r| r.workload == workload) {
                any = true;
                let length = ((panel.value)(r) / most * f64::from(PANEL - LEFT - 90)) as i32;
                self.bar(panel, r, (left, y), left + length)?;
                y += BAR;
            }
            y += if any { 18 } else { 0 };
        }
        Ok(())
    }

    /// Draws the bar of a row from `from` to the column `end`, between its name and its figure.
    fn bar(&self, panel: &Panel, row: &Row, from: (i32, i32), end: i32) -> Painted {
        let (left, y) = from;
        let middle = y + BAR / 2;
        let name = format!("{}, {}", row.workload, row.setup.words());
        let right = Pos::new(HPos::Right, VPos::Center);
        self.text(name, (left - 8, middle), 18, right)?;
        self.0.draw(&Rectangle::new(
            [(left, y + 3), (end, y + BAR - 3)],
            colour(row.setup).filled(),
        ))?;
        let figure = Pos::new(HPos::Left, VPos::Center);
        self.text(panel.text(row), (end + 6, middle), 18, figure)
    }

    /// Writes the share of flash and of hits of the hybrid volumes at the bottom.
    fn shares(&self, rows: &[Row]) -> Painted {
        let hybrid = rows.iter().filter(|r| r.setup == SetUp::Hybrid);
        // A line each: side by side they do not fit the picture.
        for (i, r) in hybrid.rev().enumerate() {
            let share = r.flash_bytes as f64 / r.volume_bytes.max(1) as f64 * 100.0;
            let hits = r.fast_hit_ratio.unwrap_or(0.0) * 100.0;
            let text = format!(
                "Hybrid, {}: {share:.0} % of the volume is flash, {hits:.0} % of the accesses hit it",
                r.workload
            );
            let y = SIZE.1 as i32 - 16 - 26 * i as i32;
            self.text(text, (20, y), 18, Pos::new(HPos::Left, VPos::Bottom))?;
        }
        Ok(())
    }
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
                &crate::overview::tests::stats(
                    json!({"latency_p50_s": s / 1000.0, "volume_bytes": 4}),
                ),
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
