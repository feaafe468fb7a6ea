//! `isotherm formats`: the formats of traces that the program reads.

use isotherm_traces::Format;
use serde_json::{Value, json};

use super::args::ListArgs;
use crate::Failure;
use crate::table::table;

/// `isotherm formats`.
///
/// # Errors
/// The output cannot be written.
pub fn run(args: &ListArgs) -> Result<(), Failure> {
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
