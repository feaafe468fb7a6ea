//! Several devices of one trace, side by side in one address space.
//!
//! Devices are laid out in the order of their first requests. Each begins at the next multiple of 4 MiB at or above the end of the previous
//! one, so that no extent spans two devices. This needs the ends of all devices first; [`scan`] is the pass that finds them.

use std::path::Path;

use crate::error::TraceError;
use crate::open::open;
use crate::reader::{Options, Reader};
use crate::record::{Op, Record};

/// The alignment of devices: the size of the largest extent.
const ALIGN: u64 = 4 << 20;

/// The part of a device that a trace touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceSpan {
    /// The device, as in [`Record::device`].
    pub device: u32,
    /// Lowest byte touched.
    pub first: u64,
    /// The byte after the highest one touched.
    pub end: u64,
}

/// Reads the trace once and returns the range of addresses that it touches on each device, in the order of the devices' first requests.
///
/// Flushes touch nothing: a device that is only flushed has an empty span.
///
/// # Errors
/// As [`open`] and [`Reader::read_batch`].
pub fn scan(path: impl AsRef<Path>, options: &Options) -> Result<Vec<DeviceSpan>, TraceError> {
    scan_reader(open(path, options)?)
}

/// As [`scan`], for a reader that was opened in another way. It is read to its end.
///
/// # Errors
/// As [`Reader::read_batch`].
pub fn scan_reader(mut reader: Reader) -> Result<Vec<DeviceSpan>, TraceError> {
    let mut spans = Spans::default();
    let mut batch = Vec::with_capacity(4096);
    while reader.read_batch(&mut batch, 4096)? > 0 {
        for r in &batch {
            spans.add(r);
        }
        batch.clear();
    }
    Ok(spans.list)
}

/// Collects [`DeviceSpan`]s from a stream of records.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spans {
    list: Vec<DeviceSpan>,
    /// Device → index in `list` + 1; 0 if the device was not seen.
    place: Vec<u32>,
}

impl Spans {
    pub(crate) fn add(&mut self, r: &Record) {
        let device = r.device as usize;
        if self.place.len() <= device {
            self.place.resize(device + 1, 0);
        }
        if self.place[device] == 0 {
            self.list.push(DeviceSpan {
                device: r.device,
                first: u64::MAX,
                end: 0,
            });
            self.place[device] = self.list.len() as u32;
        }
        if r.op != Op::Flush {
            let span = &mut self.list[self.place[device] as usize - 1];
            span.first = span.first.min(r.offset);
            span.end = span.end.max(r.end());
        }
    }

    pub(crate) fn list(&self) -> &[DeviceSpan] {
        &self.list
    }
}

/// Maps the records of several devices into one address space.
#[derive(Clone, Debug, Default)]
pub struct SideBySide {
    /// Device → address of its byte 0.
    base: Vec<u64>,
    end: u64,
}

impl SideBySide {
    /// Lays the devices of `spans` out in their order.
    ///
    /// # Errors
    /// The devices do not fit below 2^64 bytes.
    pub fn new(spans: &[DeviceSpan]) -> Result<SideBySide, String> {
        let mut map = SideBySide::default();
        for span in spans {
            let base = map.end.checked_next_multiple_of(ALIGN);
            let end = base.and_then(|base| base.checked_add(span.end));
            let (Some(base), Some(end)) = (base, end) else {
                return Err(
                    "the devices of this trace do not fit side by side below 2^64 bytes".to_owned(),
                );
            };
            let device = span.device as usize;
            if map.base.len() <= device {
                map.base.resize(device + 1, 0);
            }
            map.base[device] = base;
            map.end = end;
        }
        Ok(map)
    }

    /// The byte after the last one that the trace touches in the joint address space.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The address of byte 0 of `device`; 0 for a device that was not laid out.
    pub fn base(&self, device: u32) -> u64 {
        self.base.get(device as usize).copied().unwrap_or(0)
    }

    /// Maps a record: its offset becomes an address in the joint address space. Its device is kept, to show where it came from.
    pub fn map(&self, r: &mut Record) {
        r.offset = r.offset.saturating_add(self.base(r.device));
    }
}

#[cfg(test)]
mod tests {
    use isotherm_core::Nanos;

    use super::*;

    #[test]
    fn devices_lie_in_order_of_first_request() {
        let at = |device, offset, len| Record {
            device,
            ..Record::new(Nanos(0), Op::Read, offset, len)
        };
        let mut spans = Spans::default();
        for r in [
            at(2, 0, 4 << 20),
            at(0, 512, 512),
            at(2, 4096, 512),
            at(1, 8 << 20, 1),
        ] {
            spans.add(&r);
        }
        let map = SideBySide::new(spans.list()).expect("they fit");
        // Device 2 ends on a multiple of 4 MiB, so device 0 begins right there; device 0 ends just after it.
        assert_eq!(
            (map.base(2), map.base(0), map.base(1)),
            (0, 4 << 20, 8 << 20)
        );
        assert_eq!(map.end(), (16 << 20) + 1);
        let mut r = at(1, 8 << 20, 1);
        map.map(&mut r);
        assert_eq!(r.offset, 16 << 20);
    }

    #[test]
    fn devices_that_do_not_fit_are_refused() {
        let span = |device| DeviceSpan {
            device,
            first: 0,
            end: u64::MAX - 1,
        };
        assert!(SideBySide::new(&[span(0)]).is_ok());
        assert!(SideBySide::new(&[span(0), span(1)]).is_err());
    }
}
