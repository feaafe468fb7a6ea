//! `isotherm formats`: the formats of traces that the program reads.

use isotherm_traces::Format;
use serde::Serialize;

use super::args::ListArgs;
use crate::Failure;
use crate::table::table;

/// A format in `isotherm formats --json`.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(super) struct Known {
    /// Its name.
    name: &'static str,
    /// What a record has.
    what: &'static str,
}

/// `isotherm formats`.
///
/// # Errors
/// The output cannot be written.
pub fn run(args: &ListArgs) -> Result<(), Failure> {
    let list: Vec<Known> = Format::all()
        .map(|f| Known {
            name: f.name(),
            what: f.description(),
        })
        .collect();
    args.json.print(&list, || {
        let rows: Vec<_> = (list.iter())
            .map(|f| vec![f.name.to_owned(), f.what.to_owned()])
            .collect();
        table(&["format", "a record"], &rows)
    })
}
