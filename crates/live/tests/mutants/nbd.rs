//! NBD, byte by byte, so that a scene can break the protocol.

use super::{RecordingPort, check};
use isotherm_core::{IoError, RequestOp};
use isotherm_live::nbd::server::{Address, Config, Server as Nbd};
use isotherm_live::nbd::testing::MemPort;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const WRITE_ZEROES: u16 = 6;
const FUA: u16 = 1;
const NO_HOLE: u16 = 2;
const MIB: u64 = 1 << 20;

struct Client {
    stream: UnixStream,
    port: Arc<RecordingPort>,
    server: Nbd,
    dir: tempfile::TempDir,
}

fn connect(socket: &Path) -> std::io::Result<UnixStream> {
    let mut s = UnixStream::connect(socket)?;
    s.set_read_timeout(Some(Duration::from_secs(20)))?;
    let mut greeting = [0; 18];
    s.read_exact(&mut greeting)?;
    // The flags are fixed newstyle without zeroes; the oldest option chooses the default export.
    s.write_all(&3u32.to_be_bytes())?;
    s.write_all(b"IHAVEOPT")?;
    s.write_all(&1u32.to_be_bytes())?;
    s.write_all(&0u32.to_be_bytes())?;
    let mut export = [0; 10];
    s.read_exact(&mut export)?;
    Ok(s)
}

impl Client {
    fn new(port: Arc<RecordingPort>) -> Client {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("s");
        let address = [Address::Unix(socket.clone())];
        let server = Nbd::start(port.clone(), &address, Config::new("")).expect("a server");
        Client {
            stream: connect(&socket).expect("a connection"),
            port,
            server,
            dir,
        }
    }
    /// Sends the header of a request. A faulty server may have closed the connection by then: that is a finding.
    fn header(&mut self, kind: u16, flags: u16, offset: u64, len: u32) -> Result<(), String> {
        let mut b = 0x2560_9513_u32.to_be_bytes().to_vec();
        b.extend(flags.to_be_bytes());
        b.extend(kind.to_be_bytes());
        b.extend(offset.to_be_bytes());
        b.extend(offset.to_be_bytes());
        b.extend(len.to_be_bytes());
        self.stream
            .write_all(&b)
            .map_err(|e| format!("the connection is closed: {e}"))
    }
    /// Error number of the reply to a request, and its data.
    fn reply(&mut self, bytes: usize) -> Result<(u32, Vec<u8>), String> {
        let mut head = [0; 16];
        self.stream
            .read_exact(&mut head)
            .map_err(|e| format!("no reply: {e}"))?;
        check(head[..4] == 0x6744_6698_u32.to_be_bytes(), "out of step")?;
        let error = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
        let mut data = vec![0; if error == 0 { bytes } else { 0 }];
        self.stream
            .read_exact(&mut data)
            .map_err(|e| format!("no data: {e}"))?;
        Ok((error, data))
    }
    fn write(&mut self, flags: u16, offset: u64, data: &[u8]) -> Result<u32, String> {
        self.header(WRITE, flags, offset, data.len() as u32)?;
        self.stream.write_all(data).map_err(|e| e.to_string())?;
        Ok(self.reply(0)?.0)
    }
}

fn plain() -> Client {
    Client::new(RecordingPort::over(MemPort::new(MIB), None))
}

pub fn nbd_fua() -> Result<(), String> {
    let mut c = plain();
    check(c.write(FUA, 0, &[1; 4096])? == 0, "a write fails")?;
    check(
        c.port.received(RequestOp::Write, true),
        "a write that must be durable is not so for the volume",
    )
}

pub fn nbd_flush() -> Result<(), String> {
    let mut c = plain();
    c.header(FLUSH, 0, 0, 0)?;
    check(c.reply(0)?.0 == 0, "a FLUSH fails")?;
    check(
        c.port.received(RequestOp::Flush, false),
        "the volume hears of no FLUSH",
    )
}

pub fn nbd_lost() -> Result<(), String> {
    let mut c = Client::new(RecordingPort::over(MemPort::new(MIB), Some(8192)));
    check(
        c.write(0, 8192, &[1; 4096])? != 0,
        "a write that nobody did is done",
    )
}

pub fn nbd_failed() -> Result<(), String> {
    let memory = MemPort::new(MIB);
    memory.fail(0..4096, IoError::Io);
    let mut c = Client::new(RecordingPort::over(memory, None));
    check(
        c.write(0, 0, &[1; 4096])? == 5,
        "a write that failed did not",
    )
}

pub fn nbd_half_payload() -> Result<(), String> {
    let mut c = plain();
    c.header(WRITE, 0, 0, 8192)?;
    c.stream.write_all(&[7; 4096]).map_err(|e| e.to_string())?;
    let other = c.dir.path().join("s");
    drop(std::mem::replace(
        &mut c.stream,
        connect(&other).map_err(|e| e.to_string())?,
    ));
    // The server has seen the end of the first connection.
    while c.server.connections() > 1 {
        std::thread::yield_now();
    }
    c.header(READ, 0, 0, 8192)?;
    check(c.reply(8192)?.1 == [0; 8192], "half a payload was written")?;
    check(
        !c.port.received(RequestOp::Write, false),
        "the volume hears of half a payload",
    )
}

pub fn nbd_kept_zeroes() -> Result<(), String> {
    let mut c = plain();
    c.header(WRITE_ZEROES, NO_HOLE, 0, 65536)?;
    check(c.reply(0)?.0 == 0, "zeros fail")?;
    check(
        c.port
            .received(RequestOp::WriteZeroes { keep: true }, false),
        "the space of zeros that must keep it is freed",
    )
}

pub fn nbd_read_only() -> Result<(), String> {
    let mut c = Client::new(RecordingPort::over(MemPort::new_read_only(MIB), None));
    check(
        c.write(0, 0, &[1; 512])? != 0,
        "a read-only export is written",
    )?;
    check(
        !c.port.received(RequestOp::Write, false),
        "a write reaches a read-only volume",
    )
}

pub fn nbd_skipped_payload() -> Result<(), String> {
    let mut c = plain();
    // A write beyond the end is refused, and its payload is not read as requests.
    check(
        c.write(0, MIB, &[1; 4096])? != 0,
        "a write beyond the end is done",
    )?;
    c.header(READ, 0, 0, 512)?;
    check(
        c.reply(512)?.1 == [0; 512],
        "a read after it is not answered",
    )
}
