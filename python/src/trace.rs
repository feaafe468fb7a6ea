//! Traces as Arrow: batches out through Arrow's C stream, which pyarrow, polars, duckdb and others take without copying.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use arrow_array::builder::{Int8Builder, UInt8Builder, UInt32Builder, UInt64Builder};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::types::Int8Type;
use arrow_array::{
    ArrayRef, DictionaryArray, RecordBatch, RecordBatchIterator, RecordBatchReader, StringArray,
};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use isotherm_traces::{Format, Op, Options, Reader, Record, TimeUnit};
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::failed;

/// Requests in a batch: some MiB.
const BATCH: usize = 1 << 16;
const OPS: [Op; 4] = [Op::Read, Op::Write, Op::Flush, Op::Discard];

/// The trace or generator of that name.
pub fn find(name: &str) -> PyResult<PathBuf> {
    isotherm_traces::find(Path::new(name)).map_err(failed)
}

/// How to read a trace, as Python says it.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    pub format: Option<String>,
    pub columns: Option<String>,
    pub time_unit: Option<String>,
    pub skip_bad: u64,
    pub block_bytes: Option<u32>,
    pub limit: Option<u64>,
}

impl Reading {
    /// What a reader is told.
    pub fn options(&self) -> PyResult<Options> {
        let format = |name: &String| {
            name.parse().map_err(|_| {
                let nearest = isotherm_core::policy::nearest(name, Format::all().map(Format::name));
                failed(format!(
                    "format: unknown trace format `{name}`; nearest: `{nearest}` (see isotherm.formats())"
                ))
            })
        };
        let unit = |name: &String| match name.as_str() {
            "ns" => Ok(TimeUnit::Nanoseconds),
            "us" => Ok(TimeUnit::Microseconds),
            "ms" => Ok(TimeUnit::Milliseconds),
            "s" => Ok(TimeUnit::Seconds),
            _ => Err(failed(format!("time_unit: `{name}`: ns, us, ms or s"))),
        };
        let columns = |text: &String| text.parse().map_err(|e| failed(format!("columns: {e}")));
        Ok(Options {
            format: self.format.as_ref().map(format).transpose()?,
            columns: self.columns.as_ref().map(columns).transpose()?,
            trace_unit: self.time_unit.as_ref().map(unit).transpose()?,
            skip_bad: self.skip_bad,
            limit: self.limit,
            block_bytes: self.block_bytes,
            ..Options::default()
        })
    }
}

/// What is known once a stream has ended.
#[derive(Default)]
struct End {
    error: Option<String>,
    devices: Vec<String>,
    stats: isotherm_traces::Stats,
    timed: bool,
}

/// A trace that can be read any number of times: anything that takes Arrow's C stream takes it.
#[pyclass(frozen, module = "isotherm")]
pub struct Trace {
    path: PathBuf,
    options: Options,
    format: Format,
    end: Arc<Mutex<End>>,
}

#[pymethods]
impl Trace {
    /// The trace at `path`; it is opened here for the first time, so that errors come early.
    #[new]
    #[pyo3(signature = (path, *, format=None, columns=None, time_unit=None, limit=None, skip_bad=0, block_bytes=None))]
    #[expect(clippy::too_many_arguments, reason = "they are Python's keywords")]
    fn new(
        py: Python<'_>,
        path: &str,
        format: Option<String>,
        columns: Option<String>,
        time_unit: Option<String>,
        limit: Option<u64>,
        skip_bad: u64,
        block_bytes: Option<u32>,
    ) -> PyResult<Trace> {
        let reading = Reading {
            format,
            columns,
            time_unit,
            skip_bad,
            block_bytes,
            limit,
        };
        let options = reading.options()?;
        let path = find(path)?;
        let reader = py.detach(|| isotherm_traces::open(&path, &options).map_err(failed))?;
        Ok(Trace {
            format: reader.format(),
            path,
            options,
            end: Arc::default(),
        })
    }
    /// Its format, sniffed or named.
    #[getter]
    fn format(&self) -> &'static str {
        self.format.name()
    }
    /// Where it is.
    #[getter]
    fn path(&self) -> String {
        self.path.display().to_string()
    }
    /// Why the last stream ended early.
    #[getter]
    fn error(&self) -> Option<String> {
        self.end.lock().ok()?.error.clone()
    }
    /// Names of the devices, known when a stream has ended.
    #[getter]
    fn devices(&self) -> Vec<String> {
        self.end
            .lock()
            .map(|e| e.devices.clone())
            .unwrap_or_default()
    }
    /// Do times come from the trace? Known when a stream has ended; if not they count 1 ms a request.
    #[getter]
    fn timed(&self) -> bool {
        self.end.lock().is_ok_and(|e| e.timed)
    }
    /// What the reader counted, as JSON; known when a stream has ended.
    fn stats(&self) -> PyResult<String> {
        let end = self.end.lock().map_err(failed)?;
        serde_json::to_string(&end.stats).map_err(failed)
    }
    /// The figures of `isotherm trace info`, as JSON.
    fn info(&self, py: Python<'_>) -> PyResult<String> {
        let info = py.detach(|| {
            let reader = isotherm_traces::open(&self.path, &self.options)?;
            isotherm_traces::info_reader(reader)
        });
        serde_json::to_string(&info.map_err(failed)?).map_err(failed)
    }
    /// Arrow's C stream: the trace from its beginning, in bounded memory.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // Another schema is a wish that the protocol lets us leave unheard; the consumer casts.
        let _ = requested_schema;
        let reader =
            py.detach(|| isotherm_traces::open(&self.path, &self.options).map_err(failed))?;
        let end = self.end.clone();
        if let Ok(mut e) = end.lock() {
            *e = End::default();
        }
        let schema = schema();
        let batches = Batches {
            reader,
            schema: schema.clone(),
            end,
            done: false,
        };
        let reader: Box<dyn RecordBatchReader + Send> =
            Box::new(RecordBatchIterator::new(batches, schema));
        // Whoever takes the stream leaves an empty one in the capsule; if nobody does, dropping it lets go of the trace.
        let stream = FFI_ArrowArrayStream::new(reader);
        PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
    }
    fn __repr__(&self) -> String {
        format!(
            "isotherm.Trace({:?}, format={:?})",
            self.path(),
            self.format()
        )
    }
}

fn schema() -> SchemaRef {
    let op = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
    Arc::new(Schema::new(vec![
        Field::new("time_ns", DataType::UInt64, false),
        Field::new("device", DataType::UInt32, false),
        Field::new("op", op, false),
        Field::new("offset", DataType::UInt64, false),
        Field::new("length", DataType::UInt32, false),
        Field::new("class", DataType::UInt8, false),
        Field::new("flags", DataType::UInt8, false),
        Field::new("file_size", DataType::UInt64, true),
        Field::new("latency_ns", DataType::UInt64, true),
    ]))
}

/// A reader's records as batches.
struct Batches {
    reader: Reader,
    schema: SchemaRef,
    end: Arc<Mutex<End>>,
    done: bool,
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let mut records = Vec::with_capacity(BATCH);
        let mut error = None;
        // A reader may give less than asked for; batches are full all the same.
        while records.len() < BATCH {
            let left = BATCH - records.len();
            match self.reader.read_batch(&mut records, left) {
                Ok(0) => self.done = true,
                Ok(_) => continue,
                Err(e) => {
                    self.done = true;
                    error = Some(e.to_string());
                }
            }
            break;
        }
        if self.done {
            self.note(error.clone());
        }
        match error {
            Some(e) => Some(Err(ArrowError::ExternalError(e.into()))),
            None if records.is_empty() => None,
            None => Some(batch(&self.schema, &records)),
        }
    }
}

impl Batches {
    fn note(&self, error: Option<String>) {
        if let Ok(mut e) = self.end.lock() {
            *e = End {
                error,
                devices: (0..).map_while(|d| self.reader.device_name(d)).collect(),
                stats: self.reader.stats(),
                timed: self.reader.timed(),
            };
        }
    }
}

fn batch(schema: &SchemaRef, records: &[Record]) -> Result<RecordBatch, ArrowError> {
    let n = records.len();
    let (mut times, mut offsets) = (
        UInt64Builder::with_capacity(n),
        UInt64Builder::with_capacity(n),
    );
    let (mut devices, mut lengths) = (
        UInt32Builder::with_capacity(n),
        UInt32Builder::with_capacity(n),
    );
    let (mut classes, mut flags) = (
        UInt8Builder::with_capacity(n),
        UInt8Builder::with_capacity(n),
    );
    let (mut sizes, mut latencies) = (
        UInt64Builder::with_capacity(n),
        UInt64Builder::with_capacity(n),
    );
    let mut ops = Int8Builder::with_capacity(n);
    for r in records {
        times.append_value(r.time.0);
        devices.append_value(r.device);
        ops.append_value(OPS.iter().position(|o| *o == r.op).unwrap_or(0) as i8);
        offsets.append_value(r.offset);
        lengths.append_value(r.len);
        classes.append_value(r.class);
        flags.append_value(r.flags.bits());
        sizes.append_option(r.file_size);
        latencies.append_option(r.latency_ns);
    }
    let names = StringArray::from_iter_values(OPS.map(Op::name));
    let ops = DictionaryArray::<Int8Type>::try_new(ops.finish(), Arc::new(names))?;
    let columns: Vec<ArrayRef> = vec![
        Arc::new(times.finish()),
        Arc::new(devices.finish()),
        Arc::new(ops),
        Arc::new(offsets.finish()),
        Arc::new(lengths.finish()),
        Arc::new(classes.finish()),
        Arc::new(flags.finish()),
        Arc::new(sizes.finish()),
        Arc::new(latencies.finish()),
    ];
    RecordBatch::try_new(schema.clone(), columns)
}
