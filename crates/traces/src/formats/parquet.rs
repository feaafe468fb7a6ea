//! The recorded format of this project: one Parquet file, one row per request, every field of a record.
//!
//! | column | type | meaning |
//! |---|---|---|
//! | `time_ns` | u64 | since the first record |
//! | `device` | u32 | index in the list of devices |
//! | `op` | u8 | 0 read, 1 write, 2 flush, 3 discard; also as text, as data frames have it |
//! | `offset`, `length` | u64, u32 | bytes |
//! | `class` | u8 | 0…63 |
//! | `flags` | u8 | bits of `Flags`: 1 FUA, 2 metadata, 4 flush first, 8 read-ahead, 16 sync |
//! | `file_size`, `latency_ns` | u64, nullable | where known |
//!
//! File metadata: `isotherm.devices` (names, one per line), `isotherm.timed` (`false` where `time_ns` was made up), `isotherm.header`
//! (text that must stay with the data) and `isotherm.notes` (what was assumed of the original).
//! The Parquet library panics on some damaged files; [`guarded`] turns such a panic into an error. Columns are found by name; `op`,
//! `offset` and `length` are required. Memory is bounded by one page of each column. Pages are plain or compressed by zstd, snappy or gzip.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use parquet::basic::{Compression, Type as Physical};
use parquet::column::reader::ColumnReader;
use parquet::data_type::ByteArray;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};

use crate::decode::{Decode, Run};
use crate::devices::DEVICES_MAX;
use crate::error::{Bad, Place, TraceError};
use crate::field::{class, request};
use crate::formats::custom::direction;
use crate::notes::Notes;
use crate::record::{Flags, Op, Record};

/// Columns by name, in the order of the file.
pub(crate) const COLUMNS: [&str; 9] = [
    "time_ns",
    "device",
    "op",
    "offset",
    "length",
    "class",
    "flags",
    "file_size",
    "latency_ns",
];
/// Index in `COLUMNS` of the direction.
const OP: usize = 2;
/// Indexes in `COLUMNS` of the required columns.
const REQUIRED: [usize; 3] = [2, 3, 4];
pub(crate) const KEY_DEVICES: &str = "isotherm.devices";
/// Text that must stay with the data (a licence).
pub(crate) const KEY_HEADER: &str = "isotherm.header";
/// What was assumed when the trace was converted.
pub(crate) const KEY_NOTES: &str = "isotherm.notes";
pub(crate) const KEY_TIMED: &str = "isotherm.timed";

/// Rows decoded at a time.
const CHUNK: usize = 4096;

/// A column of the current row group, and the cells that were decoded from it.
struct Column {
    reader: ColumnReader,
    nullable: bool,
    cells: Vec<Option<u64>>,
    // Buffers for the Parquet reader, kept so that they are reused.
    values32: Vec<i32>,
    values64: Vec<i64>,
    texts: Vec<ByteArray>,
    levels: Vec<i16>,
}

/// The decoder.
pub(crate) struct Columnar {
    path: PathBuf,
    file: SerializedFileReader<File>,
    /// Column of the format → column of the file.
    places: [Option<usize>; COLUMNS.len()],
    columns: [Option<Column>; COLUMNS.len()],
    next_group: usize,
    /// Rows of the current row group that are not yet decoded.
    rows_left: usize,
    row: u64,
    timed: bool,
    header: Vec<u8>,
    /// Index of the next cell of the chunk, and the number of cells in it.
    cell: usize,
    cells: usize,
}

impl Columnar {
    pub(crate) fn open(path: &Path, run: &mut Run) -> Result<Columnar, TraceError> {
        let file = File::open(path).map_err(|source| TraceError::Open {
            path: path.to_owned(),
            source,
        })?;
        let file = guarded(|| SerializedFileReader::new(file)).map_err(|e| {
            TraceError::unsupported(
                path,
                format!("not a readable Parquet file (is it compressed once more?): {e}"),
            )
        })?;
        let meta = file.metadata().file_metadata();
        let schema = meta.schema_descr();
        let mut places = [None; COLUMNS.len()];
        for (slot, name) in COLUMNS.iter().enumerate() {
            places[slot] =
                (0..schema.num_columns()).find(|&i| schema.column(i).path().string() == *name);
        }
        if let Some(&missing) = REQUIRED.iter().find(|&&slot| places[slot].is_none()) {
            let what = format!(
                "the Parquet file has no column \"{}\"; a trace needs op, offset and length",
                COLUMNS[missing]
            );
            return Err(TraceError::unsupported(path, what));
        }
        if let Some(what) = unfit(&file, &places) {
            return Err(TraceError::unsupported(path, what));
        }
        let value = |key: &str| {
            let pairs = meta.key_value_metadata()?;
            pairs.iter().find(|pair| pair.key == key)?.value.as_deref()
        };
        if let Some(names) = value(KEY_DEVICES) {
            run.devices.preset(names.lines().map(str::to_owned));
        }
        if let Some(notes) = value(KEY_NOTES).and_then(|text| Notes::read(text.as_bytes())) {
            notes.note(run);
        }
        let timed = places[0].is_some() && value(KEY_TIMED) != Some("false");
        let header = value(KEY_HEADER).unwrap_or_default().as_bytes().to_vec();
        let columns = [const { None }; COLUMNS.len()];
        let path = path.to_owned();
        Ok(Columnar {
            path,
            file,
            places,
            columns,
            next_group: 0,
            rows_left: 0,
            row: 0,
            timed,
            header,
            cell: 0,
            cells: 0,
        })
    }

    fn fail(&self, e: &ParquetError) -> TraceError {
        TraceError::unsupported(
            &self.path,
            format!(
                "row {}: the Parquet data is damaged or no trace: {e}",
                self.row
            ),
        )
    }

    /// Decodes the next chunk of every column. Returns false at the end of the file.
    fn next_chunk(&mut self) -> Result<bool, TraceError> {
        while self.rows_left == 0 {
            if self.next_group >= self.file.num_row_groups() {
                return Ok(false);
            }
            guarded(|| self.open_group()).map_err(|e| self.fail(&e))?;
        }
        let want = self.rows_left.min(CHUNK);
        for (slot, name) in COLUMNS.iter().enumerate() {
            let Some(column) = &mut self.columns[slot] else {
                continue;
            };
            let filled = guarded(|| column.fill(want));
            let got = column.cells.len();
            filled.map_err(|e| self.fail(&e))?;
            if got != want {
                let what = format!(
                    "row {}: column \"{name}\" is shorter than the row group says",
                    self.row
                );
                return Err(TraceError::unsupported(&self.path, what));
            }
        }
        self.rows_left -= want;
        (self.cell, self.cells) = (0, want);
        Ok(true)
    }

    fn open_group(&mut self) -> Result<(), ParquetError> {
        let group = self.file.get_row_group(self.next_group)?;
        self.next_group += 1;
        let schema = self.file.metadata().file_metadata().schema_descr();
        for (slot, place) in self.places.iter().enumerate() {
            let Some(i) = *place else { continue };
            self.columns[slot] = Some(Column {
                reader: group.get_column_reader(i)?,
                nullable: schema.column(i).max_def_level() > 0,
                cells: Vec::with_capacity(CHUNK),
                values32: Vec::new(),
                values64: Vec::new(),
                texts: Vec::new(),
                levels: Vec::new(),
            });
        }
        self.rows_left = usize::try_from(group.metadata().num_rows()).unwrap_or(0);
        Ok(())
    }

    /// The cell of an optional column: `None` if the column is absent or the cell is null.
    fn maybe(&self, slot: usize) -> Option<u64> {
        self.columns[slot].as_ref().and_then(|c| c.cells[self.cell])
    }

    fn need(&self, slot: usize) -> Result<u64, Bad> {
        self.maybe(slot)
            .ok_or_else(|| Bad::value(COLUMNS[slot], "null"))
    }

    fn record(&self) -> Result<Record, Bad> {
        let op = match self.need(2)? {
            0 => Op::Read,
            1 => Op::Write,
            2 => Op::Flush,
            3 => Op::Discard,
            other => {
                return Err(Bad::value(
                    "op 0 read, 1 write, 2 flush or 3 discard",
                    other,
                ));
            }
        };
        let narrow = |slot: usize, n: u64| {
            u32::try_from(n).map_err(|_| Bad::value(format!("{} below 2^32", COLUMNS[slot]), n))
        };
        let time = if self.timed { self.need(0)? } else { 0 };
        let r = request(time, op, self.need(3)?, narrow(4, self.need(4)?)?)?;
        let bits = self.maybe(6).unwrap_or(0);
        let flags = u8::try_from(bits).ok().and_then(Flags::from_bits);
        Ok(Record {
            device: device(self.maybe(1).unwrap_or(0))?,
            class: class(self.maybe(5).unwrap_or(0))?,
            flags: flags.ok_or_else(|| Bad::value("flags of 5 bits", bits))?,
            file_size: self.maybe(7),
            latency_ns: self.maybe(8),
            ..r
        })
    }
}

impl Column {
    /// Replaces the cells by the next `want` cells of the column, or by fewer at its end.
    fn fill(&mut self, want: usize) -> Result<(), ParquetError> {
        self.values32.clear();
        self.values64.clear();
        self.texts.clear();
        self.levels.clear();
        self.cells.clear();
        let levels = self.nullable.then_some(&mut self.levels);
        match &mut self.reader {
            ColumnReader::Int32ColumnReader(r) => {
                r.read_records(want, levels, None, &mut self.values32)?;
                let values = self.values32.iter().map(|&v| u64::from(v as u32));
                spread(&mut self.cells, values, self.nullable, &self.levels);
            }
            ColumnReader::Int64ColumnReader(r) => {
                r.read_records(want, levels, None, &mut self.values64)?;
                let values = self.values64.iter().map(|&v| v as u64);
                spread(&mut self.cells, values, self.nullable, &self.levels);
            }
            ColumnReader::ByteArrayColumnReader(r) => {
                r.read_records(want, levels, None, &mut self.texts)?;
                let ops = self.texts.iter().map(|text| op_number(text.data()));
                let ops = ops.collect::<Result<Vec<_>, _>>()?;
                spread(
                    &mut self.cells,
                    ops.into_iter(),
                    self.nullable,
                    &self.levels,
                );
            }
            // `unfit` has refused every other type.
            _ => return Err(ParquetError::General("an unknown type".to_owned())),
        }
        Ok(())
    }
}

/// The reason why the columns cannot be read, and the fix; `None` if they can.
fn unfit(
    file: &SerializedFileReader<File>,
    places: &[Option<usize>; COLUMNS.len()],
) -> Option<String> {
    let schema = file.metadata().file_metadata().schema_descr();
    for (slot, name) in COLUMNS.iter().enumerate() {
        let Some(i) = places[slot] else { continue };
        let column = schema.column(i);
        if column.max_rep_level() > 0 || column.max_def_level() > 1 {
            return Some(format!("column \"{name}\" is nested; it must be flat"));
        }
        match column.physical_type() {
            Physical::INT32 | Physical::INT64 => {}
            Physical::BYTE_ARRAY if slot == OP => {}
            other => {
                return Some(format!(
                    "column \"{name}\" is of the type {other}: it must hold whole numbers (op may be text: read, write, flush, discard)"
                ));
            }
        }
        for group in file.metadata().row_groups() {
            let packed = group.column(i).compression();
            let known = matches!(
                packed,
                Compression::UNCOMPRESSED
                    | Compression::ZSTD(_)
                    | Compression::SNAPPY
                    | Compression::GZIP(_)
            );
            if !known {
                return Some(format!(
                    "column \"{name}\" is compressed by {packed}: write the file with zstd, snappy, gzip or no compression"
                ));
            }
        }
    }
    None
}

/// The number of a direction in words.
fn op_number(word: &[u8]) -> Result<u64, ParquetError> {
    direction(word).map(|op| op as u64).map_err(|bad| {
        ParquetError::General(format!("expected {}, found {}", bad.expected, bad.found))
    })
}

/// A device's number. It is bounded as in the other formats, because callers keep a table with one row per device.
fn device(n: u64) -> Result<u32, Bad> {
    if n < DEVICES_MAX as u64 {
        Ok(n as u32)
    } else {
        Err(Bad::value(format!("a device below {DEVICES_MAX}"), n))
    }
}

/// Runs a step of the Parquet library and turns a panic into an error. After such an error the reader is at its end and does not use the
/// decoder again, so no half-changed state is ever read.
fn guarded<T>(step: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, ParquetError> {
    catch_unwind(AssertUnwindSafe(step))
        .unwrap_or_else(|_| Err(ParquetError::General("its decoder gave up".to_owned())))
}

/// Copies values into cells and leaves a gap where the definition level says null.
fn spread(
    cells: &mut Vec<Option<u64>>,
    mut values: impl Iterator<Item = u64>,
    nullable: bool,
    levels: &[i16],
) {
    if nullable {
        cells.extend(
            levels
                .iter()
                .map(|&level| if level > 0 { values.next() } else { None }),
        );
    } else {
        cells.extend(values.map(Some));
    }
}

impl Decode for Columnar {
    fn decode(
        &mut self,
        out: &mut Vec<Record>,
        max: usize,
        run: &mut Run,
    ) -> Result<bool, TraceError> {
        while out.len() < max {
            if self.cell == self.cells && !self.next_chunk()? {
                return Ok(false);
            }
            while self.cell < self.cells && out.len() < max {
                let record = self.record();
                let row = self.row;
                self.cell += 1;
                self.row += 1;
                match record {
                    Ok(r) => out.push(r),
                    Err(bad) => run.bad(&self.path, Place::Row(row), bad)?,
                }
            }
        }
        Ok(true)
    }

    fn header(&self) -> &[u8] {
        &self.header
    }

    fn timed(&self) -> bool {
        self.timed
    }
}
