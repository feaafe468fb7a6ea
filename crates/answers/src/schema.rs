//! The schemas in `docs/json`, from the types.

use schemars::generate::SchemaSettings;
use schemars::transform::{Transform, transform_subschemas};
use schemars::{JsonSchema, Schema};

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

fn of<T: JsonSchema>(command: &str) -> String {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    Closed.transform(&mut schema);
    schema.insert(
        "title".to_owned(),
        format!("isotherm {command} --json").into(),
    );
    serde_json::to_string_pretty(&schema).unwrap_or_default() + "\n"
}

/// The name of each schema in `docs/json`, and its text.
pub fn all() -> Vec<(&'static str, String)> {
    vec![
        ("stats", of::<crate::Stats>("stats")),
        ("status", of::<crate::Status>("status")),
        ("why", of::<crate::Why>("why")),
    ]
}
