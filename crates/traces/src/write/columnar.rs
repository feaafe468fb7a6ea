//! Writes this project's recorded format; see the reader of the same name for its columns.

use std::fs::File;
use std::io::{self, BufWriter};
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{ColumnPath, Type};

use super::sink::Target;
use super::{Encode, Refusal, WriteOptions, Written, device_name};
use crate::devices::DEVICES_MAX;
use crate::formats::parquet::{COLUMNS, KEY_DEVICES, KEY_HEADER, KEY_NOTES, KEY_TIMED};
use crate::notes::Notes;
use crate::record::Record;

/// Rows of a row group. This bounds the memory of writer and reader to some MiB.
const GROUP: usize = 128 << 10;

/// The width in bits of each column, and whether it may be null.
const SHAPES: [(i8, bool); COLUMNS.len()] = [
    (64, false),
    (32, false),
    (8, false),
    (64, false),
    (32, false),
    (8, false),
    (8, false),
    (64, true),
    (64, true),
];

pub(super) struct Parquet {
    file: SerializedFileWriter<BufWriter<File>>,
    rows: Vec<Record>,
    timed: bool,
    header: Vec<u8>,
    notes: Notes,
    devices: u32,
}

impl Parquet {
    pub(super) fn create(target: &Target, options: &WriteOptions) -> io::Result<Parquet> {
        let schema = schema().map_err(io::Error::other)?;
        let properties = properties().map_err(io::Error::other)?;
        let file = BufWriter::with_capacity(1 << 18, target.create()?);
        let file = SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties))
            .map_err(io::Error::other)?;
        Ok(Parquet {
            file,
            rows: Vec::with_capacity(GROUP),
            timed: options.timed,
            header: options.header.clone(),
            notes: options.notes.clone(),
            devices: 0,
        })
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let rows = std::mem::take(&mut self.rows);
        if rows.is_empty() {
            return Ok(());
        }
        let mut group = self.file.next_row_group()?;
        let column64 = |f: fn(&Record) -> u64| rows.iter().map(|r| f(r) as i64).collect::<Vec<_>>();
        let column32 = |f: fn(&Record) -> u32| rows.iter().map(|r| f(r) as i32).collect::<Vec<_>>();
        let mut slot = 0;
        while let Some(mut column) = group.next_column()? {
            let values32 = |slot| match slot {
                1 => column32(|r| r.device),
                2 => column32(|r| r.op as u32),
                4 => column32(|r| r.len),
                5 => column32(|r| u32::from(r.class)),
                _ => column32(|r| u32::from(r.flags.bits())),
            };
            let sparse = |f: fn(&Record) -> Option<u64>| {
                let levels: Vec<i16> = rows.iter().map(|r| i16::from(f(r).is_some())).collect();
                (
                    rows.iter()
                        .filter_map(f)
                        .map(|v| v as i64)
                        .collect::<Vec<_>>(),
                    levels,
                )
            };
            match slot {
                0 => {
                    column
                        .typed::<Int64Type>()
                        .write_batch(&column64(|r| r.time.0), None, None)?
                }
                3 => {
                    column
                        .typed::<Int64Type>()
                        .write_batch(&column64(|r| r.offset), None, None)?
                }
                7 | 8 => {
                    let (values, levels) = if slot == 7 {
                        sparse(|r| r.file_size)
                    } else {
                        sparse(|r| r.latency_ns)
                    };
                    column
                        .typed::<Int64Type>()
                        .write_batch(&values, Some(&levels), None)?
                }
                _ => column
                    .typed::<Int32Type>()
                    .write_batch(&values32(slot), None, None)?,
            };
            column.close()?;
            slot += 1;
        }
        group.close()?;
        self.rows = rows;
        self.rows.clear();
        Ok(())
    }
}

impl Encode for Parquet {
    fn encode(&mut self, r: &Record, _: &[String], written: &mut Written) -> Result<(), Refusal> {
        self.rows.push(*r);
        self.devices = self.devices.max(r.device.saturating_add(1));
        written.requests += 1;
        if self.rows.len() == GROUP {
            self.write_group().map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, devices: &[String]) -> io::Result<()> {
        self.write_group().map_err(io::Error::other)?;
        if !devices.is_empty() {
            let names: Vec<_> = (0..self.devices.min(DEVICES_MAX as u32))
                .map(|id| device_name(devices, id).replace(['\n', '\r'], " "))
                .collect();
            self.file
                .append_key_value_metadata(KeyValue::new(KEY_DEVICES.to_owned(), names.join("\n")));
        }
        if !self.timed {
            self.file
                .append_key_value_metadata(KeyValue::new(KEY_TIMED.to_owned(), "false".to_owned()));
        }
        if !self.header.is_empty() {
            let header = String::from_utf8_lossy(&self.header).into_owned();
            self.file
                .append_key_value_metadata(KeyValue::new(KEY_HEADER.to_owned(), header));
        }
        if self.notes != Notes::default() {
            self.file
                .append_key_value_metadata(KeyValue::new(KEY_NOTES.to_owned(), self.notes.lines()));
        }
        self.file.finish().map_err(io::Error::other)?;
        Ok(())
    }
}

fn schema() -> Result<Type, ParquetError> {
    let column = |(name, (bits, nullable)): (&&str, (i8, bool))| {
        let physical = if bits == 64 {
            Physical::INT64
        } else {
            Physical::INT32
        };
        let repetition = if nullable {
            Repetition::OPTIONAL
        } else {
            Repetition::REQUIRED
        };
        let unsigned = LogicalType::integer(bits, false);
        let column = Type::primitive_type_builder(name, physical)
            .with_repetition(repetition)
            .with_logical_type(Some(unsigned))
            .build()?;
        Ok(Arc::new(column))
    };
    let columns: Result<Vec<_>, ParquetError> = COLUMNS.iter().zip(SHAPES).map(column).collect();
    Type::group_type_builder("request")
        .with_fields(columns?)
        .build()
}

fn properties() -> Result<WriterProperties, ParquetError> {
    let path = |name: &str| ColumnPath::from(name);
    Ok(WriterProperties::builder()
        .set_created_by("isotherm".to_owned())
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1)?))
        // Times rise in small steps and addresses rarely repeat, so a dictionary for them has a cost and no benefit.
        .set_column_dictionary_enabled(path("time_ns"), false)
        .set_column_encoding(path("time_ns"), Encoding::DELTA_BINARY_PACKED)
        .set_column_dictionary_enabled(path("offset"), false)
        .set_column_dictionary_enabled(path("latency_ns"), false)
        .build())
}
