//! The schemas in `docs/json`, from the types.

use std::path::Path;

use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema};

use crate::{
    Adopted, AssembledVolume, Cache, CancelledReplace, Changed, Checked, Classes, Cleaned, Created,
    Diagnosis, FoundVolume, Grown, ListedVolume, OfVolume, PolicyInfo, RecordedEvents, Released,
    Replaced, Set, Stats, Status, Stopped, Warmed, WhatIf, Why, WhyFile, files,
};

/// No object has other keys than those that it states, and no number a width.
#[derive(Clone)]
struct Closed;

impl Transform for Closed {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        schema.remove("format");
        if schema.get("properties").is_some() {
            schema.insert("additionalProperties".to_owned(), false.into());
        }
    }
}

/// The name of a schema in `docs/json`, and its text.
pub type Made = (&'static str, String);

/// The schema of the answer of a command.
pub fn made<T: JsonSchema>(name: &'static str, command: &str) -> Made {
    (name, titled::<T>(&format!("{command} --json")))
}

/// The schema of a type whose title is not only a command.
pub fn titled<T: JsonSchema>(title: &str) -> String {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    Closed.transform(&mut schema);
    schema.insert("title".to_owned(), format!("isotherm {title}").into());
    serde_json::to_string_pretty(&schema).unwrap_or_default() + "\n"
}

/// Compares a schema in `docs/json` with what its type says; `ISOTHERM_BLESS=1` writes it. For tests.
///
/// # Errors
/// They differ, or the file cannot be read or written.
pub fn written(name: &str, text: &str, how: &str) -> Result<(), String> {
    same(&format!("json/{name}.schema.json"), text, how)
}

/// Compares a file in `docs` with what the program makes; `ISOTHERM_BLESS=1` writes it. For tests; `how` runs them.
///
/// # Errors
/// They differ, or the file cannot be read or written.
pub fn same(name: &str, now: &str, how: &str) -> Result<(), String> {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let file = Path::new(docs).join(name);
    let failed = |e: std::io::Error| format!("{}: {e}", file.display());
    if std::env::var_os("ISOTHERM_BLESS").is_some() {
        std::fs::write(&file, now).map_err(failed)?;
    }
    let there = std::fs::read_to_string(&file).map_err(failed)?;
    if there == now {
        return Ok(());
    }
    let differs = there.lines().zip(now.lines()).find(|(a, b)| a != b);
    Err(format!(
        "{name}: {differs:?}: write it again: ISOTHERM_BLESS=1 {how}"
    ))
}

/// The schemas of what volumes and mounted trees answer.
pub fn all() -> Vec<Made> {
    vec![
        made::<Adopted>("adopt", "adopt"),
        made::<Vec<AssembledVolume>>("assemble", "assemble"),
        made::<Cache>("cache", "cache"),
        made::<Checked>("check", "check"),
        made::<Classes>("classes", "classes show"),
        made::<Cleaned>("clean", "clean"),
        made::<Created>("create", "create"),
        made::<Diagnosis>("doctor", "doctor"),
        made::<files::Check>("files-check", "files check"),
        made::<files::Disks>("files-disk-list", "files disk list"),
        made::<files::WantedMoves>("files-dry-run", "files migrate --dry-run"),
        made::<files::Moves>("files-migrate", "files migrate"),
        made::<files::Stats>("files-stats", "files stats"),
        made::<files::Status>("files-status", "files status"),
        made::<files::Where>("files-where", "files where"),
        made::<files::Why>("files-why", "files why"),
        made::<Vec<FoundVolume>>("find", "find"),
        made::<Changed<Grown>>("grow", "grow"),
        made::<Vec<ListedVolume>>("list", "list"),
        made::<Vec<PolicyInfo>>("policies", "policies"),
        made::<RecordedEvents>("record-events", "record --events"),
        made::<Released>("release", "release"),
        made::<Changed<Replaced>>("replace", "replace"),
        made::<OfVolume<CancelledReplace>>("replace-cancel", "replace --cancel"),
        made::<Set>("set", "set"),
        made::<Stats>("stats", "stats"),
        made::<Status>("status", "status"),
        made::<Stopped>("stop", "stop"),
        made::<Warmed>("warm", "warm"),
        made::<WhatIf>("what-if", "what-if"),
        made::<Why>("why", "why"),
        made::<WhyFile>("why-file", "why --file"),
    ]
}
