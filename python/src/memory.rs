//! Traces that lie in Python's memory: columns in through Arrow's C stream.

use arrow_array::cast::AsArray;
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use arrow_array::types::{UInt8Type, UInt32Type, UInt64Type};
use arrow_array::{Array, RecordBatch};
use isotherm_core::Nanos;
use isotherm_lab::sim::{Memory, Source, TraceFile};
use isotherm_traces::{Flags, Op, Options, Record};
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyString};

use crate::failed;
use crate::trace::find;

const OPS: [Op; 4] = [Op::Read, Op::Write, Op::Flush, Op::Discard];

/// A trace as Python gives it: a name, or columns (`isotherm/_trace.py` makes them `time_ns`, `device`, `op`, `offset`, `length`,
/// `class`, `flags` of the types that are expected here).
pub fn source(trace: &Bound<'_, PyAny>, options: &Options) -> PyResult<Asked> {
    if let Ok(name) = trace.cast::<PyString>() {
        let label = name.to_cow()?.into_owned();
        return Ok(Asked::File(TraceFile {
            path: find(&label)?,
            options: options.clone(),
            label,
        }));
    }
    let mut records = records(trace)?;
    if let Some(limit) = options.limit {
        records.truncate(limit.try_into().unwrap_or(usize::MAX));
    }
    Ok(Asked::Memory(Memory::new("memory", records)))
}

/// A file, or requests in memory.
pub enum Asked {
    /// A file or generator.
    File(TraceFile),
    /// Requests.
    Memory(Memory),
}

impl Asked {
    /// As what the lab plays.
    pub fn boxed(self) -> Box<dyn Source> {
        match self {
            Asked::File(f) => Box::new(f),
            Asked::Memory(m) => Box::new(m),
        }
    }
}

fn records(trace: &Bound<'_, PyAny>) -> PyResult<Vec<Record>> {
    let capsule = trace.call_method0("__arrow_c_stream__")?;
    let capsule = capsule.cast::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(Some(c"arrow_array_stream"))?;
    // SAFETY: a capsule of that name holds a stream by Arrow's PyCapsule protocol; `from_raw` takes it over and leaves an empty
    // one behind, which the capsule's destructor knows to leave alone. The lock of Python is held, so nobody else takes it.
    let stream = unsafe { FFI_ArrowArrayStream::from_raw(pointer.as_ptr().cast()) };
    let reader = RecordBatchStreamReader::try_new(stream).map_err(failed)?;
    let mut records = Vec::new();
    for batch in reader {
        add(&batch.map_err(failed)?, &mut records)?;
    }
    Ok(records)
}

fn add(batch: &RecordBatch, records: &mut Vec<Record>) -> PyResult<()> {
    let column = |name: &str| {
        let missing = || failed(format!("trace: has no column `{name}`"));
        let column = batch.column_by_name(name).ok_or_else(missing)?;
        if column.null_count() > 0 {
            return Err(failed(format!("trace: column `{name}` has missing values")));
        }
        Ok(column)
    };
    let wrong = |name: &str| failed(format!("trace: column `{name}` is of another type"));
    let wide = |name: &'static str| {
        let found = column(name)?.as_primitive_opt::<UInt64Type>();
        found.ok_or_else(|| wrong(name))
    };
    let middle = |name: &'static str| {
        let found = column(name)?.as_primitive_opt::<UInt32Type>();
        found.ok_or_else(|| wrong(name))
    };
    let narrow = |name: &'static str| {
        let found = column(name)?.as_primitive_opt::<UInt8Type>();
        found.ok_or_else(|| wrong(name))
    };
    let (times, offsets) = (wide("time_ns")?, wide("offset")?);
    let (devices, lengths) = (middle("device")?, middle("length")?);
    let (ops, classes, flags) = (narrow("op")?, narrow("class")?, narrow("flags")?);
    for i in 0..batch.num_rows() {
        let row = records.len();
        let bad = |what: &str| failed(format!("trace: row {row}: {what}"));
        let last = records.last().map_or(0, |r| r.time.0);
        let op = OPS.get(usize::from(ops.value(i))).copied();
        let r = Record {
            // Times never go back: as a reader of files does it.
            time: Nanos(times.value(i).max(last)),
            offset: offsets.value(i),
            len: lengths.value(i),
            device: devices.value(i),
            op: op.ok_or_else(|| bad("no such op"))?,
            class: classes.value(i),
            flags: Flags::from_bits(flags.value(i)).ok_or_else(|| bad("no such flag"))?,
            file_size: None,
            latency_ns: None,
        };
        if r.offset.checked_add(u64::from(r.len)).is_none() {
            return Err(bad("offset and length are beyond 2^64"));
        }
        if r.class > 63 {
            return Err(bad("class: 0 to 63"));
        }
        if r.device > 1 << 20 {
            return Err(bad("device: 0 to 1048576; number them from 0"));
        }
        if r.len > 0 || r.op == Op::Flush {
            records.push(r);
        }
    }
    Ok(())
}
