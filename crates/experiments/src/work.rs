//! The workloads of experiments, in memory: those of a generator, or an extract of a trace.

use isotherm_traces::Record;

use isotherm_lab::LabError;
use isotherm_lab::sim::{Memory, TraceFile, touched};

/// A workload in memory, and the size of its volume.
pub struct Work {
    /// Its name, which also identifies it.
    pub name: String,
    /// The requests.
    pub memory: Memory,
    /// Bytes of the volume.
    pub bytes: u64,
    /// Requests in flight.
    pub depth: u32,
    /// The number of requests before each of its phases, if it has phases. The report then lists requests one by one.
    pub phases: Vec<u64>,
}

impl Work {
    /// All requests of the generator `spec`, on a volume of `bytes`. With `None` the volume reaches to the last touched byte, in multiples
    /// of 4 MiB.
    ///
    /// # Errors
    /// The specification is wrong or the generator fails.
    pub fn generate(spec: &str, bytes: Option<u64>, depth: u32) -> Result<Work, LabError> {
        let file = TraceFile::new(spec, isotherm_traces::Options::default());
        let memory = Memory::load(&file)?;
        let reach = memory.records.iter().map(Record::end).max().unwrap_or(0);
        Ok(Work {
            name: spec.to_owned(),
            memory,
            bytes: bytes.unwrap_or(0).max(reach).next_multiple_of(4 << 20),
            depth,
            phases: Vec::new(),
        })
    }

    /// The requests of a trace file. Its devices side by side form the volume.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn extract(path: &std::path::Path, label: &str, depth: u32) -> Result<Work, LabError> {
        let file = TraceFile {
            label: label.to_owned(),
            ..TraceFile::new(path, isotherm_traces::Options::default())
        };
        let memory = Memory::load(&file)?;
        let places = touched(&memory, 20, None)?.devices;
        let mut records = memory.records.to_vec();
        for r in &mut records {
            places.map(r);
            r.device = 0;
        }
        let bytes = records.iter().map(Record::end).max().unwrap_or(0);
        Ok(Work {
            name: label.to_owned(),
            memory: Memory::new(label, records),
            bytes: bytes.next_multiple_of(4 << 20),
            depth,
            phases: Vec::new(),
        })
    }
}
