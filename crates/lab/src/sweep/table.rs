//! All results as one Parquet table, with a column per figure.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DoubleType};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;
use serde_json::Value;

use crate::LabError;

/// The column with the name of a cell.
pub(super) const KEY: &str = "key";

/// One column: its name, and an optional value for each row.
enum Column {
    Text(Vec<Option<String>>),
    Number(Vec<Option<f64>>),
}

/// Writes `cells` to `path`. Figures that are tables themselves are in `cells.json` only; wear has columns `wear_eu_MEMBER`.
pub(super) fn write(path: &Path, cells: &[Value]) -> Result<(), LabError> {
    let columns = columns(cells);
    super::replace(path, |file| Ok(table(file, &columns)?))
}

fn columns(cells: &[Value]) -> Vec<(String, Column)> {
    let mut rows: Vec<Vec<(String, Value)>> = Vec::new();
    for c in cells {
        let mut row = vec![(KEY.to_owned(), c[KEY].clone())];
        for part in ["cell", "report"] {
            for (k, v) in c[part].as_object().into_iter().flatten() {
                match v {
                    Value::Object(of) if k == "wear_eu" => {
                        row.extend(of.iter().map(|(m, v)| (format!("wear_eu_{m}"), v.clone())));
                    }
                    Value::Object(_) | Value::Array(_) => {}
                    _ if row.iter().any(|(have, _)| have == k) => {}
                    v => row.push((k.clone(), v.clone())),
                }
            }
        }
        rows.push(row);
    }
    let mut names: Vec<String> = Vec::new();
    for (k, _) in rows.iter().flatten() {
        if !names.contains(k) {
            names.push(k.clone());
        }
    }
    names
        .into_iter()
        .map(|name| {
            let values: Vec<Option<&Value>> = rows
                .iter()
                .map(|r| r.iter().find(|(k, _)| *k == name).map(|(_, v)| v))
                .collect();
            let is_text = values.iter().flatten().any(|v| v.is_string());
            let column = if is_text {
                Column::Text(
                    values
                        .iter()
                        .map(|v| v.and_then(Value::as_str).map(str::to_owned))
                        .collect(),
                )
            } else {
                let number = |v: &Value| v.as_f64().or(v.as_bool().map(|b| f64::from(u8::from(b))));
                Column::Number(values.iter().map(|v| v.and_then(number)).collect())
            };
            (name, column)
        })
        .collect()
}

fn table(file: &File, columns: &[(String, Column)]) -> Result<(), ParquetError> {
    let field = |(name, c): &(String, Column)| {
        let b = match c {
            Column::Text(_) => Type::primitive_type_builder(name, Physical::BYTE_ARRAY)
                .with_logical_type(Some(LogicalType::String)),
            Column::Number(_) => Type::primitive_type_builder(name, Physical::DOUBLE),
        };
        Ok(Arc::new(b.with_repetition(Repetition::OPTIONAL).build()?))
    };
    let fields = columns
        .iter()
        .map(field)
        .collect::<Result<Vec<_>, ParquetError>>()?;
    let schema = Type::group_type_builder("cells")
        .with_fields(fields)
        .build()?;
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .build();
    let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))?;
    let mut group = writer.next_row_group()?;
    for (_, column) in columns {
        let Some(mut w) = group.next_column()? else {
            break;
        };
        match column {
            Column::Text(v) => {
                let levels: Vec<i16> = v.iter().map(|v| i16::from(v.is_some())).collect();
                let values: Vec<ByteArray> = v
                    .iter()
                    .flatten()
                    .map(|s| ByteArray::from(s.as_str()))
                    .collect();
                w.typed::<ByteArrayType>()
                    .write_batch(&values, Some(&levels), None)?;
            }
            Column::Number(v) => {
                let levels: Vec<i16> = v.iter().map(|v| i16::from(v.is_some())).collect();
                let values: Vec<f64> = v.iter().flatten().copied().collect();
                w.typed::<DoubleType>()
                    .write_batch(&values, Some(&levels), None)?;
            }
        }
        w.close()?;
    }
    group.close()?;
    writer.close()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_written_can_be_read() {
        let dir = std::env::temp_dir().join(format!("isotherm-table-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("made");
        let path = dir.join("t.parquet");
        let cell = |n: u64, energy: Value| {
            json!({
                "key": format!("k{n}"),
                "cell": {"policy": "lru", "depth": n},
                "report": {"policy": "lru", "energy_j": energy, "wear_eu": {"fast": 0.5}, "moves": {}},
            })
        };
        write(&path, &[cell(1, json!(2.5)), cell(2, Value::Null)]).expect("written");
        let reader = SerializedFileReader::new(File::open(&path).expect("there")).expect("Parquet");
        let rows: Vec<_> = reader
            .get_row_iter(None)
            .expect("rows")
            .map(|r| r.expect("a row"))
            .collect();
        let names: Vec<_> = rows[0].get_column_iter().map(|(n, _)| n.clone()).collect();
        assert_eq!(
            names,
            ["key", "policy", "depth", "energy_j", "wear_eu_fast"]
        );
        assert_eq!(rows[1].get_string(0).expect("a text"), "k2");
        assert!((rows[0].get_double(3).expect("a number") - 2.5).abs() < 1e-12);
        assert!(rows[1].get_double(3).is_err(), "null");
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
