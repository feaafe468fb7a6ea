//! Pens of the pictures. Colour, dash, marker and pattern vary together, so that series can be told apart in greyscale.

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::unit::Unit;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Plane<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// The colours of `page.js`, after Paul Tol's high- and medium-contrast schemes.
const COLORS: [RGBColor; 8] = [
    RGBColor(0x00, 0x44, 0x88),
    RGBColor(0xc0, 0x8a, 0x00),
    RGBColor(0xbb, 0x44, 0x55),
    RGBColor(0x66, 0x99, 0xcc),
    RGBColor(0x22, 0x22, 0x22),
    RGBColor(0x7a, 0x5c, 0x00),
    RGBColor(0xdd, 0x88, 0xaa),
    RGBColor(0x3a, 0x8a, 0x5f),
];
/// Lengths in pixels of the drawn and of the omitted parts.
const DASHES: [(u32, u32); 8] = [
    (1, 0),
    (8, 4),
    (2, 3),
    (14, 4),
    (5, 2),
    (3, 6),
    (10, 8),
    (6, 6),
];
const HEAT: [RGBColor; 6] = [
    RGBColor(0xdf, 0xf2, 0xb4),
    RGBColor(0x7f, 0xcd, 0xbb),
    RGBColor(0x41, 0xb6, 0xc4),
    RGBColor(0x1d, 0x91, 0xc0),
    RGBColor(0x25, 0x34, 0x94),
    RGBColor(0x08, 0x1d, 0x58),
];

/// How a series is drawn, with its index.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pen {
    Line(usize),
    Bar(usize),
    Area(usize),
    Mark(usize),
}

fn color(i: usize) -> RGBColor {
    COLORS[i % COLORS.len()]
}

/// Dashes, marks and patterns advance by one with each round of the colours, so that the ninth series is not drawn like the first, as in
/// `page.js`.
const fn turn(i: usize) -> usize {
    i + i / COLORS.len()
}

fn dash(i: usize) -> (u32, u32) {
    DASHES[turn(i) % DASHES.len()]
}

fn text<E: std::fmt::Debug>(e: E) -> String {
    format!("{e:?}")
}

/// The colour for a share of the maximum, 0…1.
pub(super) fn heat(share: f64) -> RGBColor {
    let place = share.clamp(0.0, 1.0) * (HEAT.len() - 1) as f64;
    let i = (place as usize).min(HEAT.len() - 2);
    let t = place - i as f64;
    let mix = |a: u8, b: u8| (f64::from(a) * (1.0 - t) + f64::from(b) * t).round() as u8;
    let (a, b) = (HEAT[i], HEAT[i + 1]);
    RGBColor(mix(a.0, b.0), mix(a.1, b.1), mix(a.2, b.2))
}

/// `text` cut to about this many pixels at a font size of 13 px.
pub(super) fn clip(text: &str, width: u32) -> String {
    let letters = (width / 7).max(3) as usize;
    if text.chars().count() <= letters {
        return text.to_owned();
    }
    text.chars().take(letters - 1).chain(['…']).collect()
}

pub(super) fn line(plane: &mut Plane<'_>, points: &[(f64, f64)], i: usize) -> Result<(), String> {
    let style = color(i).stroke_width(2);
    let (on, off) = dash(i);
    let points = points.iter().copied();
    if off == 0 {
        plane
            .draw_series(LineSeries::new(points, style))
            .map_err(text)?;
    } else {
        plane
            .draw_series(DashedLineSeries::new(points, on, off, style))
            .map_err(text)?;
    }
    Ok(())
}

pub(super) fn area(
    plane: &mut Plane<'_>,
    points: &[(f64, f64)],
    i: usize,
    base: f64,
) -> Result<(), String> {
    // The area is opaque: an area that shows through from below would change the colour of the legend.
    let series = AreaSeries::new(points.iter().copied(), base, color(i).filled());
    plane
        .draw_series(series.border_style(WHITE.stroke_width(1)))
        .map_err(text)?;
    Ok(())
}

/// A bar with the pattern of its series.
pub(super) fn bar(
    plane: &mut Plane<'_>,
    from: (f64, f64),
    to: (f64, f64),
    i: usize,
) -> Result<(), String> {
    plane
        .draw_series(std::iter::once(Rectangle::new(
            [from, to],
            color(i).filled(),
        )))
        .map_err(text)?;
    let (a, b) = (plane.backend_coord(&from), plane.backend_coord(&to));
    let area = plane.plotting_area().strip_coord_spec();
    let (left, top) = area.get_base_pixel();
    pattern(&area, (a.0 - left, b.1 - top), (b.0 - left, a.1 - top), i)
}

/// White lines over a filled box: in turn none, slanted, horizontal, vertical.
fn pattern(area: &Area<'_>, from: (i32, i32), to: (i32, i32), i: usize) -> Result<(), String> {
    let style = WHITE.mix(0.75).stroke_width(1);
    let stroke = |a: (i32, i32), b: (i32, i32)| {
        area.draw(&PathElement::new(vec![a, b], style))
            .map_err(text)
    };
    let (w, h) = (to.0 - from.0, to.1 - from.1);
    match turn(i) % 4 {
        1 => {
            // First the lines through the left edge, then those through the bottom.
            for d in (5..w + h).step_by(6) {
                let a = (from.0 + (d - h).max(0), from.1 + d.min(h));
                let b = (from.0 + d.min(w), from.1 + (d - w).max(0));
                stroke(a, b)?;
            }
        }
        2 => {
            for y in (from.1 + 3..to.1).step_by(5) {
                stroke((from.0, y), (to.0, y))?;
            }
        }
        3 => {
            for x in (from.0 + 3..to.0).step_by(5) {
                stroke((x, from.1), (x, to.1))?;
            }
        }
        _ => {}
    }
    Ok(())
}

pub(super) fn mark(
    plane: &mut Plane<'_>,
    at: (f64, f64),
    i: usize,
    size: i32,
) -> Result<(), String> {
    let pixel = plane.backend_coord(&at);
    let area = plane.plotting_area().strip_coord_spec();
    let (left, top) = area.get_base_pixel();
    marker(&area, (pixel.0 - left, pixel.1 - top), i, size)
}

fn marker(area: &Area<'_>, (x, y): (i32, i32), i: usize, r: i32) -> Result<(), String> {
    let shape = turn(i) % 8;
    let hollow = shape >= 4;
    let style = if hollow {
        color(i).stroke_width(2)
    } else {
        color(i).filled()
    };
    let corners = match shape % 4 {
        0 => return area.draw(&Circle::new((x, y), r, style)).map_err(text),
        1 => vec![
            (x - r, y - r),
            (x + r, y - r),
            (x + r, y + r),
            (x - r, y + r),
        ],
        2 => vec![(x, y - r - 1), (x + r + 1, y + r), (x - r - 1, y + r)],
        _ => vec![
            (x, y - r - 2),
            (x + r + 2, y),
            (x, y + r + 2),
            (x - r - 2, y),
        ],
    };
    if hollow {
        let closed: Vec<_> = corners.iter().chain(corners.first()).copied().collect();
        area.draw(&PathElement::new(closed, style)).map_err(text)
    } else {
        area.draw(&Polygon::new(corners, style)).map_err(text)
    }
}

/// Draws the names in rows from `top` on and returns their height.
pub(super) fn legend(
    area: &Area<'_>,
    names: &[(String, Pen)],
    width: u32,
    top: i32,
    font: &TextStyle<'_>,
) -> Result<i32, String> {
    let (mut x, mut y) = (74, top + 8);
    for (name, pen) in names {
        let name = clip(name, width / 2);
        let room = 52 + 8 * name.chars().count() as i32;
        if x > 74 && x + room > width as i32 - 12 {
            (x, y) = (74, y + 20);
        }
        match *pen {
            Pen::Line(i) => {
                let (on, off) = dash(i);
                let step = if off == 0 { 30 } else { on + off };
                for at in (0..30).step_by(step as usize) {
                    let end = if off == 0 {
                        30
                    } else {
                        (at + on as i32).min(30)
                    };
                    let stroke =
                        PathElement::new(vec![(x + at, y), (x + end, y)], color(i).stroke_width(2));
                    area.draw(&stroke).map_err(text)?;
                }
                marker(area, (x + 15, y), i, 4)?;
            }
            Pen::Area(i) | Pen::Bar(i) => {
                let corners = [(x + 6, y - 6), (x + 30, y + 6)];
                area.draw(&Rectangle::new(corners, color(i).filled()))
                    .map_err(text)?;
                if matches!(pen, Pen::Bar(_)) {
                    pattern(area, corners[0], corners[1], i)?;
                }
            }
            Pen::Mark(i) => marker(area, (x + 18, y), i, 5)?,
        }
        area.draw(&Text::new(name, (x + 37, y - 7), font.clone()))
            .map_err(text)?;
        x += room;
    }
    Ok(y - top + 14)
}

/// The key to the colours of a heat map: from 1 to `most`, by powers.
pub(super) fn key(
    area: &Area<'_>,
    label: &str,
    most: u64,
    font: &TextStyle<'_>,
) -> Result<(), String> {
    let height = (area.dim_in_pixel().1 as i32 - 120).max(40);
    for i in 0..height {
        let share = 1.0 - f64::from(i) / f64::from(height);
        let slice = Rectangle::new([(8, 34 + i), (22, 35 + i)], heat(share).filled());
        area.draw(&slice).map_err(text)?;
    }
    area.draw(&Text::new(clip(label, 84), (0, 8), font.clone()))
        .map_err(text)?;
    for (y, n) in [
        (32, most),
        (30 + height / 2, (most as f64).sqrt().round() as u64),
        (28 + height, 1),
    ] {
        let tick = Unit::COUNT.tick(n as f64, 1.0, false);
        area.draw(&Text::new(tick, (27, y), font.clone()))
            .map_err(text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_of_many_series_are_drawn_alike() {
        let looks: std::collections::BTreeSet<_> = (0..64)
            .map(|i| (i % COLORS.len(), turn(i) % DASHES.len()))
            .collect();
        assert_eq!(looks.len(), 64);
        let lines: std::collections::BTreeSet<_> = (0..16)
            .map(|i| (color(i).rgb(), dash(i), turn(i) % 8))
            .collect();
        assert_eq!(lines.len(), 16);
    }
}
