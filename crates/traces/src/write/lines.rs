//! Writers of text formats: blkreplay, fio iolog, this project's CSV.

use std::io::{self, Write};

use isotherm_core::Nanos;

use super::sink::{Sink, Target};
use super::{Encode, Refusal, WriteOptions, Written, device_name, note_extras, only_device_0};
use crate::field::SECTOR;
use crate::format::Format;
use crate::formats::fio;
use crate::record::{Flags, Op, Record};

/// Text gathered before it goes to the sink.
const CHUNK: usize = 64 << 10;
/// fio ignores shorter waits.
const FIO_WAIT_MIN_US: u64 = 100;

pub(super) struct Lines {
    sink: Sink,
    text: Vec<u8>,
    format: Format,
    timed: bool,
    /// fio: the names of the files opened so far.
    opened: Vec<String>,
    /// fio v2: microseconds waited so far.
    waited_us: u64,
    /// fio v3: time of the last request.
    last: Nanos,
}

impl Lines {
    pub(super) fn create(target: &Target, options: &WriteOptions) -> io::Result<Lines> {
        let mut text = Vec::with_capacity(CHUNK + 4096);
        if !options.notes.is_empty() && matches!(options.format, Format::Blkreplay | Format::Csv) {
            text.extend_from_slice(options.notes.lines().as_bytes());
        }
        match options.format {
            Format::Blkreplay => {
                text.extend_from_slice(&options.header);
                text.extend_from_slice(
                    b"start ; sector; length ; op ;  replay_delay=0 ; replay_duration=0\n",
                );
            }
            Format::FioV2 => writeln!(text, "{}", fio::HEADER_V2)?,
            Format::FioV3 => writeln!(text, "{}", fio::HEADER_V3)?,
            _ => {
                let time = if options.timed { "time_ns," } else { "" };
                writeln!(
                    text,
                    "{time}device,op,offset,length,class,flags,file_size,latency_ns"
                )?;
            }
        }
        Ok(Lines {
            sink: target.sink()?,
            text,
            format: options.format,
            timed: options.timed,
            opened: Vec::new(),
            waited_us: 0,
            last: Nanos(0),
        })
    }

    fn blkreplay(&mut self, r: &Record, written: &mut Written) -> Result<(), Refusal> {
        only_device_0(r, self.format)?;
        if r.op == Op::Flush {
            written.dropped += 1;
            return Ok(());
        }
        note_extras(r, Flags::AHEAD, &mut written.lost);
        if !r.offset.is_multiple_of(SECTOR) || !u64::from(r.len).is_multiple_of(SECTOR) {
            let what = format!(
                "{} bytes at {} are no whole 512 B sectors; write csv or parquet",
                r.len, r.offset
            );
            return Err(Refusal::Cannot(what));
        }
        let op = match r.op {
            Op::Read if r.flags.contains(Flags::AHEAD) => "RA",
            Op::Read => " R",
            Op::Discard => " D",
            _ => " W",
        };
        let (s, ns) = (r.time.0 / 1_000_000_000, r.time.0 % 1_000_000_000);
        let (sector, sectors) = (r.offset / SECTOR, u64::from(r.len) / SECTOR);
        writeln!(
            self.text,
            "{s:7}.{ns:09} ; {sector:12} ; {sectors:4} ;{op} ; 0.0 ; 0.0"
        )?;
        written.requests += 1;
        Ok(())
    }

    /// The index of a device's file in `opened`. If it is not there yet, the file is added and opened.
    fn open(&mut self, stamp: Option<u64>, device: u32, devices: &[String]) -> io::Result<()> {
        while self.opened.len() <= device as usize {
            // fio splits lines at blanks.
            let name =
                device_name(devices, self.opened.len() as u32).replace(char::is_whitespace, "_");
            for action in ["add", "open"] {
                if let Some(us) = stamp {
                    write!(self.text, "{us} ")?;
                }
                writeln!(self.text, "{name} {action}")?;
            }
            if self.opened.is_empty() && self.timed && self.format == Format::FioV2 {
                // fio skips this line. It tells a reader that the log has times, even if all waits are too short to be written.
                writeln!(self.text, "{name} wait 0 0")?;
            }
            self.opened.push(name);
        }
        Ok(())
    }

    fn fio(
        &mut self,
        r: &Record,
        devices: &[String],
        written: &mut Written,
    ) -> Result<(), Refusal> {
        note_extras(r, Flags::NONE, &mut written.lost);
        let us = r.time.0 / 1_000;
        if self.timed && !r.time.0.is_multiple_of(1_000) {
            written.lost.insert("time below 1 us");
        }
        let stamp = (self.format == Format::FioV3).then_some(us);
        self.last = r.time;
        self.open(stamp, r.device, devices)?;
        let name = &self.opened[r.device as usize];
        if let Some(us) = stamp {
            write!(self.text, "{us} ")?;
        } else if self.timed && us - self.waited_us >= FIO_WAIT_MIN_US {
            writeln!(self.text, "{name} wait {} 0", us - self.waited_us)?;
            self.waited_us = us;
        } else if self.timed && us > self.waited_us {
            written.lost.insert("time below 100 us");
        }
        let action = match r.op {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "sync",
            Op::Discard => "trim",
        };
        writeln!(self.text, "{name} {action} {} {}", r.offset, r.len)?;
        written.requests += 1;
        Ok(())
    }

    fn csv(&mut self, r: &Record, written: &mut Written) -> io::Result<()> {
        if self.timed {
            write!(self.text, "{},", r.time.0)?;
        }
        write!(
            self.text,
            "{},{},{},{},{},{},",
            r.device,
            r.op,
            r.offset,
            r.len,
            r.class,
            r.flags.bits()
        )?;
        if let Some(n) = r.file_size {
            write!(self.text, "{n}")?;
        }
        self.text.push(b',');
        if let Some(n) = r.latency_ns {
            write!(self.text, "{n}")?;
        }
        self.text.push(b'\n');
        written.requests += 1;
        Ok(())
    }

    fn drain(&mut self) -> io::Result<()> {
        self.sink.write_all(&self.text)?;
        self.text.clear();
        Ok(())
    }
}

impl Encode for Lines {
    fn encode(
        &mut self,
        r: &Record,
        devices: &[String],
        written: &mut Written,
    ) -> Result<(), Refusal> {
        match self.format {
            Format::Blkreplay => self.blkreplay(r, written)?,
            Format::FioV2 | Format::FioV3 => self.fio(r, devices, written)?,
            _ => self.csv(r, written)?,
        }
        if self.text.len() >= CHUNK {
            self.drain()?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, _: &[String]) -> io::Result<()> {
        for name in std::mem::take(&mut self.opened) {
            if self.format == Format::FioV3 {
                write!(self.text, "{} ", self.last.0 / 1_000)?;
            }
            writeln!(self.text, "{name} close")?;
        }
        self.drain()?;
        self.sink.finish()
    }
}
