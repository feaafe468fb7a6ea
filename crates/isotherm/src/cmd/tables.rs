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
                "name": p.name, "kind": p.kind(), "what": p.what, "source": p.source,
                "params": params.collect::<Vec<_>>(),
            })
        })
        .collect();
    args.json.print(&list, || {
        let mut rows = Vec::new();
        for p in PRESETS {
            rows.push(
                [p.name, p.kind(), p.what, p.source]
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
