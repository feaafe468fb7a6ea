//! Charts as pictures: SVG, and PNG that is rendered from it. The fonts of the system are not used.

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;

use super::chart::{Axis, Bars, Chart, Heat, Line, LineStyle, Lines, Plot, Scale, Scatter};
use super::marks::{self, Pen};
use super::table::greatest;
use isotherm_lab::LabError;

/// The font, reduced to the characters that pictures use (scripts/vendor-charts).
const FONT: &[u8] = include_bytes!("vendor/dejavu-sans-subset.ttf");
/// The first fonts in the list have the same letter widths as those of the PNGs.
const FAMILY: &str = "DejaVu Sans, Verdana, sans-serif";

/// Number of shades of a heat map: more than an eye can distinguish, and few enough that neighbouring cells can be merged.
const SHADES: f64 = 32.0;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Plane<'a> = ChartContext<'a, SVGBackend<'a>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
/// Name, number of labels, and the label at a place.
type Across<'a> = (&'a str, usize, &'a dyn Fn(&f64) -> String);
type Drawn = Result<(), String>;

impl Chart {
    /// The chart as SVG of that size in pixels, black on white, for documents and print.
    ///
    /// # Errors
    /// The size is too small for a chart.
    pub fn svg(&self, width: u32, height: u32) -> Result<String, LabError> {
        if width < 240 || height < 160 {
            return Err(LabError::setup(format!(
                "a picture of {width} × {height} pixels is too small: give at least 240 × 160"
            )));
        }
        let mut out = String::new();
        draw(self, &mut out, (width, height))
            .map_err(|e| LabError::setup(format!("picture of `{}`: {e}", self.title)))?;
        Ok(out)
    }

    /// The chart as PNG. A `scale` of 2 gives twice as many pixels in each direction.
    ///
    /// # Errors
    /// The size is too small for a chart, or there is not enough memory for it.
    pub fn png(&self, width: u32, height: u32, scale: f32) -> Result<Vec<u8>, LabError> {
        use resvg::{tiny_skia, usvg};
        let svg = self.svg(width, height)?;
        let failed = |e: &dyn std::fmt::Display| {
            LabError::setup(format!("picture of `{}`: {e}", self.title))
        };
        let mut options = usvg::Options::default();
        options.fontdb_mut().load_font_data(FONT.to_vec());
        "DejaVu Sans".clone_into(&mut options.font_family);
        let tree = usvg::Tree::from_str(&svg, &options).map_err(|e| failed(&e))?;
        let side = |n: u32| (n as f32 * scale).round() as u32;
        let mut pixels = tiny_skia::Pixmap::new(side(width), side(height))
            .ok_or_else(|| failed(&"no memory for so many pixels, choose a smaller scale"))?;
        resvg::render(
            &tree,
            tiny_skia::Transform::from_scale(scale, scale),
            &mut pixels.as_mut(),
        );
        png(&pixels).map_err(|e| failed(&e))
    }
}

/// Encodes without the alpha channel, because nothing is transparent, and with good compression: a fifth of the renderer's own encoder.
fn png(pixels: &resvg::tiny_skia::Pixmap) -> Result<Vec<u8>, png::EncodingError> {
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, pixels.width(), pixels.height());
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_compression(png::Compression::High);
    encoder.set_filter(png::Filter::NoFilter);
    let rgb: Vec<u8> = pixels
        .pixels()
        .iter()
        .flat_map(|p| [p.red(), p.green(), p.blue()])
        .collect();
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&rgb)?;
    writer.finish()?;
    Ok(out)
}

fn text<E: std::fmt::Debug>(e: E) -> String {
    format!("{e:?}")
}

fn font(size: i32) -> TextStyle<'static> {
    (FAMILY, size).into_font().color(&BLACK)
}

fn draw(chart: &Chart, out: &mut String, size: (u32, u32)) -> Drawn {
    let root = SVGBackend::with_string(out, size).into_drawing_area();
    root.fill(&WHITE).map_err(text)?;
    root.draw(&Text::new(
        marks::clip(&chart.title, size.0),
        (12, 8),
        font(17),
    ))
    .map_err(text)?;
    let names = legend(&chart.plot);
    let top = if names.len() > 1 {
        36 + marks::legend(&root, &names, size.0, 36, &font(13))?
    } else {
        36
    };
    let (_, body) = root.split_vertically(top);
    match &chart.plot {
        Plot::Lines(l) => lines(l, &body),
        Plot::Bars(b) => bars(b, &body),
        Plot::Heat(h) => heat(h, &body),
        Plot::Scatter(s) => scatter(s, &body),
    }?;
    root.present().map_err(text)
}

/// The names in the legend, with their pens.
fn legend(plot: &Plot) -> Vec<(String, Pen)> {
    let pens = |names: Vec<&String>, kind: fn(usize) -> Pen| {
        names
            .into_iter()
            .enumerate()
            .map(|(i, n)| (n.clone(), kind(i)))
            .collect()
    };
    match plot {
        Plot::Lines(l) if l.style == LineStyle::Stacked => {
            pens(l.series.iter().map(|s| &s.name).collect(), Pen::Area)
        }
        Plot::Lines(l) => pens(l.series.iter().map(|s| &s.name).collect(), Pen::Line),
        Plot::Bars(b) => pens(b.series.iter().map(|s| &s.name).collect(), Pen::Bar),
        Plot::Scatter(s) => pens(groups(s), Pen::Mark),
        Plot::Heat(_) => Vec::new(),
    }
}

fn groups(s: &Scatter) -> Vec<&String> {
    let mut all: Vec<&String> = Vec::new();
    for p in &s.points {
        if !all.contains(&&p.group) {
            all.push(&p.group);
        }
    }
    all
}

/// An axis for drawing: values divided by the unit's step, or logarithms.
struct Ruler<'a> {
    axis: &'a Axis,
    factor: f64,
    name: String,
    from: f64,
    to: f64,
}

impl<'a> Ruler<'a> {
    /// The axis for these values. A linear axis starts at zero unless `close`.
    fn new(axis: &'a Axis, values: impl Iterator<Item = f64> + Clone, close: bool) -> Ruler<'a> {
        let log = axis.scale == Scale::Log;
        let (factor, unit) = if log {
            (1.0, String::new())
        } else {
            axis.unit.step(greatest(values.clone()))
        };
        let notes = [unit.as_str(), if log { "log" } else { "" }];
        let notes: Vec<&str> = notes
            .into_iter()
            .filter(|n| !["", "$"].contains(n))
            .collect();
        let name = if notes.is_empty() {
            axis.label.clone()
        } else {
            format!("{} ({})", axis.label, notes.join(", "))
        };
        let mut r = Ruler {
            axis,
            factor,
            name,
            from: 0.0,
            to: 1.0,
        };
        let mut all = values.filter_map(|v| r.at(v));
        let first = all.next();
        let (low, high) = first.map_or((0.0, 1.0), |f| {
            all.fold((f, f), |(a, b), v| (a.min(v), b.max(v)))
        });
        if log {
            (r.from, r.to) = (low.floor(), high.ceil().max(low.floor() + 1.0));
        } else {
            let low = if close && low > 0.0 {
                low
            } else {
                low.min(0.0)
            };
            let room = if high > low {
                (high - low) * 0.05
            } else {
                high.abs().max(1.0) * 0.1
            };
            r.from = if close && low > 0.0 {
                (low - room).max(0.0)
            } else {
                low
            };
            r.to = high + room;
        }
        r
    }
    fn tight(mut self, to: f64) -> Ruler<'a> {
        if let Some(to) = self.at(to).filter(|t| *t > self.from) {
            self.to = to;
        }
        self
    }
    /// The position of a value; `None` if it cannot be drawn.
    fn at(&self, v: f64) -> Option<f64> {
        match self.axis.scale {
            _ if !v.is_finite() => None,
            Scale::Linear => Some(v / self.factor),
            Scale::Log => (v > 0.0).then(|| v.log10()),
        }
    }
    fn tick(&self, at: f64) -> String {
        match self.axis.scale {
            Scale::Linear => self.axis.unit.tick(at * self.factor, self.factor, false),
            Scale::Log if (at - at.round()).abs() > 1e-6 => String::new(),
            Scale::Log => self.axis.unit.tick(10_f64.powf(at.round()), 1.0, true),
        }
    }
}

fn plane<'a>(
    area: &Area<'a>,
    x: &Ruler<'_>,
    y: &Ruler<'_>,
    across: Across<'_>,
) -> Result<Plane<'a>, String> {
    let mut chart = ChartBuilder::on(area)
        .margin_left(8)
        .margin_right(22)
        .margin_bottom(8)
        .x_label_area_size(46)
        .y_label_area_size(66)
        .build_cartesian_2d(x.from..x.to, y.from..y.to)
        .map_err(text)?;
    let (name, labels, tick) = across;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(RGBColor(0xdd, 0xdd, 0xdd))
        .axis_style(RGBColor(0x77, 0x77, 0x77))
        .label_style(font(12))
        .axis_desc_style(font(13))
        .x_desc(name)
        .y_desc(&y.name)
        .x_labels(labels)
        .y_labels(if y.axis.scale == Scale::Log {
            (y.to - y.from) as usize + 1
        } else {
            6
        })
        .x_label_formatter(tick)
        .y_label_formatter(&|v| y.tick(*v))
        .draw()
        .map_err(text)?;
    Ok(chart)
}

fn lines(l: &Lines, area: &Area<'_>) -> Drawn {
    let stacked = l.style == LineStyle::Stacked;
    let summed = stack(l);
    let series: &[Line] = if stacked { &summed } else { &l.series };
    let all = || series.iter().flat_map(|s| &s.points);
    let xs = all().map(|p| p.0);
    let last = xs
        .clone()
        .filter(|x| x.is_finite())
        .fold(f64::MIN, f64::max);
    let x = Ruler::new(&l.x, xs, true).tight(last);
    let y = Ruler::new(&l.y, all().map(|p| p.1), false);
    let mut plane = plane(area, &x, &y, (&x.name, 8, &|v| x.tick(*v)))?;
    // Drawn from the top of the stack downwards, so that the lower areas stay visible.
    let order: Vec<usize> = if stacked {
        (0..series.len()).rev().collect()
    } else {
        (0..series.len()).collect()
    };
    for i in order {
        for run in runs(&series[i], &x, &y, l.style == LineStyle::Steps) {
            if stacked {
                marks::area(&mut plane, &run, i, y.from)?;
            } else {
                let solid = series.len() == 1;
                marks::line(&mut plane, &run, if solid { 0 } else { i })?;
            }
        }
        if !stacked && series.len() > 1 {
            let points: Vec<_> = series[i]
                .points
                .iter()
                .filter_map(|p| Some((x.at(p.0)?, y.at(p.1)?)))
                .collect();
            let every = (points.len() / 9).max(1);
            let from = every * i / series.len();
            for p in points.into_iter().skip(from).step_by(every) {
                marks::mark(&mut plane, p, i, 4)?;
            }
        }
    }
    Ok(())
}

/// Adds each line to the sum of the lines before it.
fn stack(l: &Lines) -> Vec<Line> {
    let mut sums: Vec<f64> = Vec::new();
    let each = l.series.iter().map(|s| {
        sums.resize(sums.len().max(s.points.len()), 0.0);
        let points = s.points.iter().zip(&mut sums).map(|(p, sum)| {
            // A gap in one line is a gap in the sum.
            *sum += p.1;
            (p.0, *sum)
        });
        Line {
            name: s.name.clone(),
            points: points.collect(),
        }
    });
    each.collect()
}

/// The pieces of a line between gaps.
fn runs(line: &Line, x: &Ruler<'_>, y: &Ruler<'_>, steps: bool) -> Vec<Vec<(f64, f64)>> {
    let mut runs = vec![Vec::new()];
    for p in &line.points {
        let (Some(px), Some(py)) = (x.at(p.0), y.at(p.1)) else {
            runs.push(Vec::new());
            continue;
        };
        if let Some(run) = runs.last_mut() {
            if let (true, Some(&(_, before))) = (steps, run.last()) {
                run.push((px, before));
            }
            run.push((px, py));
        }
    }
    runs.retain(|r| !r.is_empty());
    runs
}

fn bars(b: &Bars, area: &Area<'_>) -> Drawn {
    let n = b.categories.len();
    let value = |i: usize, c: usize| {
        b.series[i]
            .values
            .get(c)
            .copied()
            .flatten()
            .filter(|v| v.is_finite())
    };
    let values: Vec<f64> = if b.stacked {
        (0..n)
            .map(|c| (0..b.series.len()).filter_map(|i| value(i, c)).sum())
            .collect()
    } else {
        (0..n)
            .flat_map(|c| (0..b.series.len()).filter_map(move |i| value(i, c)))
            .collect()
    };
    let y = Ruler::new(&b.y, values.into_iter(), false);
    let none = Axis::new(&b.x_label, super::unit::Unit::PLAIN);
    let mut x = Ruler::new(&none, std::iter::empty(), false);
    (x.from, x.to) = (-0.5, n as f64 - 0.5);
    // Names that do not fit side by side are cut. The page has them in full.
    let room = (area.dim_in_pixel().0.saturating_sub(96)) / n.max(1) as u32;
    let tick = |v: &f64| {
        let whole = (v - v.round()).abs() < 1e-6 && *v > -0.5;
        let name = b.categories.get(v.round() as usize).filter(|_| whole);
        name.map_or(String::new(), |s| marks::clip(s, room))
    };
    let mut plane = plane(area, &x, &y, (&b.x_label, n.max(2), &tick))?;
    // The bars have a maximum width, so that a bar does not look like an area.
    let widest = 70.0 / f64::from(room.max(1));
    let each = if b.stacked { 1 } else { b.series.len().max(1) };
    let width = (0.8 / each as f64).min(widest);
    for c in 0..n {
        let mut base = y.from;
        for i in 0..b.series.len() {
            let Some(v) = value(i, c).and_then(|v| y.at(v)) else {
                continue;
            };
            let place = if b.stacked { 0.0 } else { i as f64 };
            let left = c as f64 + width * (place - each as f64 / 2.0);
            let top = if b.stacked { base + v } else { v };
            marks::bar(
                &mut plane,
                (left + width * 0.04, base),
                (left + width * 0.96, top),
                i,
            )?;
            if b.stacked {
                base = top;
            }
        }
    }
    Ok(())
}

fn heat(h: &Heat, area: &Area<'_>) -> Drawn {
    let (columns, cells) = h.shape();
    let ends = |bin: f64, n: usize| [0.0, bin * n.max(1) as f64].into_iter();
    let x = Ruler::new(&h.x, ends(h.x_bin, columns), false).tight(h.x_bin * columns.max(1) as f64);
    let y = Ruler::new(&h.y, ends(h.y_bin, cells), false).tight(h.y_bin * cells.max(1) as f64);
    let (left, key) = area.split_horizontally(area.dim_in_pixel().0.saturating_sub(86));
    let mut plane = plane(&left, &x, &y, (&x.name, 8, &|v| x.tick(*v)))?;
    let all = (0..columns).flat_map(|c| (0..cells).map(move |r| h.sum(c, r)));
    let most = all.max().unwrap_or(1).max(1);
    let corner =
        |c: usize, r: usize| (h.x_bin * c as f64 / x.factor, h.y_bin * r as f64 / y.factor);
    let shade = |c: usize, r: usize| {
        let n = h.sum(c, r) as f64;
        let share = if most > 1 {
            n.ln() / (most as f64).ln()
        } else {
            1.0
        };
        (n > 0.0).then(|| (share * SHADES).round() as u32)
    };
    for r in 0..cells {
        let mut c = 0;
        while c < columns {
            let from = c;
            c += 1;
            let Some(own) = shade(from, r) else { continue };
            while c < columns && shade(c, r) == Some(own) {
                c += 1;
            }
            let color = marks::heat(f64::from(own) / SHADES);
            let cell = Rectangle::new([corner(from, r), corner(c, r + 1)], color.filled());
            plane.draw_series(std::iter::once(cell)).map_err(text)?;
        }
    }
    marks::key(&key, &h.label, most, &font(12))
}

fn scatter(s: &Scatter, area: &Area<'_>) -> Drawn {
    let (Some(mx), Some(my)) = (s.metrics.get(s.x), s.metrics.get(s.y)) else {
        return Err("a trade-off needs two figures".to_owned());
    };
    let value = |i: usize, m: usize| {
        s.points[i]
            .values
            .get(m)
            .copied()
            .flatten()
            .unwrap_or(f64::NAN)
    };
    let n = s.points.len();
    let x = Ruler::new(&mx.axis, (0..n).map(|i| value(i, s.x)), true);
    let y = Ruler::new(&my.axis, (0..n).map(|i| value(i, s.y)), true);
    let mut plane = plane(area, &x, &y, (&x.name, 8, &|v| x.tick(*v)))?;
    let at = |i: usize| Some((x.at(value(i, s.x))?, y.at(value(i, s.y))?));
    let front = s.front(s.x, s.y);
    let path: Vec<(f64, f64)> = front.iter().filter_map(|i| at(*i)).collect();
    let grey = RGBColor(0x77, 0x77, 0x77);
    plane
        .draw_series(DashedLineSeries::new(
            path.iter().copied(),
            4,
            4,
            grey.into(),
        ))
        .map_err(text)?;
    let groups = groups(s);
    for (i, p) in s.points.iter().enumerate() {
        let group = groups.iter().position(|g| **g == p.group).unwrap_or(0);
        if let Some(place) = at(i) {
            marks::mark(
                &mut plane,
                place,
                group,
                if front.contains(&i) { 6 } else { 4 },
            )?;
        }
    }
    let rings = path
        .iter()
        .map(|p| Circle::new(*p, 10, BLACK.stroke_width(1)));
    plane.draw_series(rings).map_err(text)?;
    Ok(())
}
