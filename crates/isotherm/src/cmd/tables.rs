//! `policies` and `formats`: what there is.

use isotherm_core::policy::PRESETS;
use isotherm_traces::Format;
use serde_json::{Value, json};

use crate::Failure;
use crate::args::ListArgs;
use crate::table::table;

/// `isotherm policies`.
///
/// # Errors
/// The output cannot be written.
pub fn policies(args: &ListArgs) -> Result<(), Failure> {
    let list: Vec<Value> = PRESETS
        .iter()
        .map(|p| {
            let params = p
                .parameters()
                .map(|q| json!({"name": q.name, "what": q.what, "default": q.default}));
            json!({
                "name": p.name, "kind": p.kind, "what": p.what, "source": p.source,
                "params": params.collect::<Vec<_>>(),
            })
        })
        .collect();
    args.json.print(&list, || {
        let mut rows = Vec::new();
        for p in PRESETS {
            rows.push(
                [p.name, p.kind, p.what, p.source]
                    .map(str::to_owned)
                    .to_vec(),
            );
            for q in p.parameters() {
                let what = format!("{}; default {}", q.what, q.default);
                rows.push(vec![
                    format!("  {}", q.name),
                    String::new(),
                    what,
                    String::new(),
                ]);
            }
        }
        table(&["policy", "kind", "what", "source"], &rows)
    })
}

/// `isotherm devices`.
///
/// # Errors
/// The output cannot be written.
pub fn devices(args: &ListArgs) -> Result<(), Failure> {
    let sheets = isotherm_models::presets().map_err(|e| Failure::failed(e.to_string()))?;
    let list: Vec<Value> = sheets
        .iter()
        .map(|s| {
            json!({
                "name": s.name, "kind": s.kind(), "capacity_bytes": s.capacity(), "what": s.description,
                "price_usd": s.price_usd,
            })
        })
        .collect();
    args.json.print(&list, || {
        let gb = |bytes: u64| format!("{:.0}", bytes as f64 / 1e9);
        let rows: Vec<_> = sheets
            .iter()
            .map(|s| {
                vec![
                    s.name.clone(),
                    s.kind().to_owned(),
                    gb(s.capacity()),
                    s.description.clone(),
                ]
            })
            .collect();
        table(&["device", "kind", "GB", "what"], &rows)
    })
}

/// `isotherm formats`.
///
/// # Errors
/// The output cannot be written.
pub fn formats(args: &ListArgs) -> Result<(), Failure> {
    let list: Vec<Value> = Format::all()
        .map(|f| json!({"name": f.name(), "what": f.description()}))
        .collect();
    args.json.print(&list, || {
        let rows: Vec<_> = Format::all()
            .map(|f| vec![f.name().to_owned(), f.description().to_owned()])
            .collect();
        table(&["format", "a record"], &rows)
    })
}
