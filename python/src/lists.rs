//! What there is: the lists of `isotherm formats`, `policies`, `devices` and `trace generators`, as JSON.

use isotherm_core::policy::PRESETS;
use isotherm_models::Sleep;
use isotherm_traces::Format;
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::failed;

/// Trace formats.
#[pyfunction]
pub fn formats() -> String {
    let list = Format::all().map(|f| json!({"name": f.name(), "what": f.description()}));
    Value::Array(list.collect()).to_string()
}

/// Placement policies with their parameters.
#[pyfunction]
pub fn policies() -> String {
    let list = PRESETS.iter().map(|p| {
        let params = p
            .parameters()
            .map(|q| json!({"name": q.name, "what": q.what, "default": q.default}));
        json!({
            "name": p.name, "kind": p.kind(), "what": p.what, "source": p.source,
            "params": params.collect::<Vec<_>>(),
        })
    });
    Value::Array(list.collect()).to_string()
}

/// Device models.
#[pyfunction]
pub fn devices() -> PyResult<String> {
    let sheets = isotherm_models::presets().map_err(failed)?;
    let list = sheets.iter().map(|s| {
        json!({
            "name": s.name, "kind": s.kind(), "capacity_bytes": s.capacity(), "what": s.description,
            "price_usd": s.price_usd, "break_even_s": Sleep::of_sheet(s).and_then(|s| s.break_even_s()),
        })
    });
    Ok(Value::Array(list.collect()).to_string())
}

/// Workload generators with their parameters.
#[pyfunction]
pub fn generators() -> String {
    let list = isotherm_traces::generate::generators().iter().map(|g| {
        let params = g.params.iter().map(|p| {
            json!({
                "name": p.name, "what": p.what, "unit": p.unit, "default": p.default, "min": p.min, "max": p.max,
            })
        });
        json!({
            "name": g.name, "what": g.what, "source": g.source, "scale": g.scale, "devices": g.devices,
            "params": params.collect::<Vec<_>>(),
        })
    });
    Value::Array(list.collect()).to_string()
}
