//! A trace as unit accesses. Units are numbered in the order of addresses, and one number is left out at each gap. So two units are
//! adjacent here if and only if they are adjacent on the device, and no rows are used for units that are never touched.

use crate::reference::{SHIFT, Touch};
use isotherm_traces::{Op, Options, SideBySide, open, scan};
use std::path::{Path, PathBuf};

pub struct Trace {
    /// Numbers in use are below this.
    pub units: u32,
    /// Distinct units.
    pub touched: u32,
    pub work: Vec<Touch>,
}

/// A fixture of the repository, else a file of `$ISOTHERM_TRACES`; `None` if this is not set or has no such file.
pub fn find(name: &str) -> Option<PathBuf> {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures")
        .join(name);
    if fixture.is_file() {
        return Some(fixture);
    }
    let path = PathBuf::from(std::env::var_os("ISOTHERM_TRACES")?).join(name);
    path.is_file().then_some(path)
}

/// At most `limit` requests of a trace.
pub fn load(path: &Path, limit: usize) -> Trace {
    let options = Options::default();
    let devices =
        SideBySide::new(&scan(path, &options).expect("a readable trace")).expect("it fits");
    let mut reader = open(path, &options).expect("a readable trace");
    let mut requests = Vec::new();
    while requests.len() < limit {
        let mut batch = Vec::new();
        if reader
            .read_batch(&mut batch, 4096)
            .expect("a readable trace")
            == 0
        {
            break;
        }
        batch.retain(|r| matches!(r.op, Op::Read | Op::Write));
        for r in &mut batch {
            devices.map(r);
        }
        requests.append(&mut batch);
    }
    requests.truncate(limit);
    let span = |offset: u64, len: u32| offset >> SHIFT..=(offset + u64::from(len) - 1) >> SHIFT;
    let mut touched: Vec<u64> = requests
        .iter()
        .flat_map(|r| span(r.offset, r.len))
        .collect();
    touched.sort_unstable();
    touched.dedup();
    let mut numbers = Vec::with_capacity(touched.len());
    let mut next = 0;
    for (i, unit) in touched.iter().enumerate() {
        next += u32::from(i > 0 && touched[i - 1] + 1 != *unit);
        numbers.push(next);
        next += 1;
    }
    let number = |unit: u64| numbers[touched.binary_search(&unit).expect("touched")];
    let mut work = Vec::new();
    for r in &requests {
        let units = span(r.offset, r.len);
        let first = number(*units.start());
        let offset = (u64::from(first) << SHIFT) + (r.offset & ((1 << SHIFT) - 1));
        for (i, _) in units.enumerate() {
            work.push(Touch {
                now: r.time.0,
                unit: first + i as u32,
                write: r.op == Op::Write,
                class: r.class,
                offset,
                bytes: r.len,
                first: i == 0,
            });
        }
    }
    Trace {
        units: next.max(1),
        touched: touched.len() as u32,
        work,
    }
}
