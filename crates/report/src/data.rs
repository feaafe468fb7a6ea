//! Converts charts to the JSON from which the page's script draws them.

use serde_json::{Value, json};

use super::chart::{Axis, Bars, Better, Chart, Heat, LineStyle, Lines, Plot, Scale, Scatter};
use super::table::greatest;

/// Six digits are more than a screen can show, and take a third of the space.
fn short(v: f64) -> Value {
    let rounded = format!("{v:.5e}")
        .parse::<f64>()
        .ok()
        .filter(|v| v.is_finite());
    match rounded {
        // Without the `.0`.
        Some(r) if r.fract() == 0.0 && r.abs() < 1e15 => json!(r as i64),
        Some(r) => json!(r),
        None => Value::Null,
    }
}

fn axis(a: &Axis, max: f64) -> Value {
    let (factor, unit) = a.unit.step(max);
    let log = a.scale == Scale::Log;
    json!({
        "label": a.label, "kind": a.unit.kind, "symbol": a.unit.symbol, "log": log,
        "factor": if log { 1.0 } else { factor }, "unit": if log { String::new() } else { unit },
    })
}

/// The JSON that `page.js` reads.
pub(super) fn chart_json(c: &Chart) -> Value {
    let mut v = match &c.plot {
        Plot::Lines(l) => lines(l),
        Plot::Bars(b) => bars(b),
        Plot::Heat(h) => heat(h),
        Plot::Scatter(s) => scatter(s),
    };
    v["title"] = json!(c.title);
    v
}

fn lines(l: &Lines) -> Value {
    let all = || l.series.iter().flat_map(|s| &s.points);
    // Stacked areas add up, so the axis must cover their sum.
    let y_max = if l.style == LineStyle::Stacked {
        let n = l.series.iter().map(|s| s.points.len()).max().unwrap_or(0);
        let at = |i: usize| {
            l.series
                .iter()
                .filter_map(move |s| Some(s.points.get(i)?.1))
                .sum()
        };
        greatest((0..n).map(at))
    } else {
        greatest(all().map(|p| p.1))
    };
    let series: Vec<Value> = l
        .series
        .iter()
        .map(|s| {
            let x: Vec<Value> = s.points.iter().map(|p| short(p.0)).collect();
            let y: Vec<Value> = s.points.iter().map(|p| short(p.1)).collect();
            json!({ "name": s.name, "x": x, "y": y })
        })
        .collect();
    json!({
        "type": "lines", "x": axis(&l.x, greatest(all().map(|p| p.0))), "y": axis(&l.y, y_max), "series": series,
        "steps": l.style == LineStyle::Steps, "stacked": l.style == LineStyle::Stacked,
    })
}

fn bars(b: &Bars) -> Value {
    let value =
        |s: &super::chart::BarSeries, i: usize| s.values.get(i).copied().flatten().unwrap_or(0.0);
    let y_max = if b.stacked {
        greatest((0..b.categories.len()).map(|i| b.series.iter().map(|s| value(s, i)).sum()))
    } else {
        greatest(
            b.series
                .iter()
                .flat_map(|s| s.values.iter().flatten().copied()),
        )
    };
    let series: Vec<Value> = b
        .series
        .iter()
        .map(|s| {
            let values: Vec<Value> = s
                .values
                .iter()
                .map(|v| v.map_or(Value::Null, short))
                .collect();
            json!({ "name": s.name, "values": values })
        })
        .collect();
    json!({
        "type": "bars", "x_label": b.x_label, "categories": b.categories, "y": axis(&b.y, y_max), "series": series,
        "stacked": b.stacked, "lying": b.lying,
    })
}

fn heat(h: &Heat) -> Value {
    let (columns, cells) = h.shape();
    let layers: Vec<Value> = h
        .layers
        .iter()
        .map(|l| json!({ "name": l.name, "columns": l.columns }))
        .collect();
    json!({
        "type": "heat", "x": axis(&h.x, columns as f64 * h.x_bin), "y": axis(&h.y, cells as f64 * h.y_bin),
        "x_bin": short(h.x_bin), "y_bin": short(h.y_bin), "label": h.label, "cells": cells, "layers": layers,
    })
}

fn scatter(s: &Scatter) -> Value {
    let metrics: Vec<Value> = s
        .metrics
        .iter()
        .enumerate()
        .map(|(m, metric)| {
            let values = s
                .points
                .iter()
                .filter_map(|p| p.values.get(m).copied().flatten());
            let mut v = axis(&metric.axis, greatest(values));
            v["higher"] = json!(metric.better == Better::Higher);
            v
        })
        .collect();
    let points: Vec<Value> = s
        .points
        .iter()
        .map(|p| {
            let values: Vec<Value> = p
                .values
                .iter()
                .map(|v| v.map_or(Value::Null, short))
                .collect();
            json!({ "name": p.name, "group": p.group, "values": values, "reference": p.reference })
        })
        .collect();
    json!({ "type": "scatter", "metrics": metrics, "points": points, "px": s.x, "py": s.y })
}
