//! An NBD client under the control of a test, which can also break the protocol.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest wait of a test.
pub const PATIENCE: Duration = Duration::from_secs(40);

pub const READ: u16 = 0;
pub const WRITE: u16 = 1;
pub const FLUSH: u16 = 3;

/// A connection to the volume served on a socket.
pub struct Peer(pub UnixStream);

/// Calls `f` until it returns a value.
///
/// # Panics
/// After [`PATIENCE`]; the message states `what`.
pub fn wait_for<T>(what: &str, mut f: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(t) = f() {
            return t;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Peer {
    /// Connects and sends nothing.
    pub fn silent(socket: &Path) -> io::Result<Peer> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Peer(stream))
    }

    /// Connects and chooses the default export.
    pub fn connect(socket: &Path) -> io::Result<Peer> {
        let mut peer = Peer::silent(socket)?;
        let mut greeting = [0; 18];
        peer.0.read_exact(&mut greeting)?;
        assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
        // The flags are fixed newstyle and no zeroes; then comes NBD_OPT_EXPORT_NAME with an empty name.
        peer.0.write_all(&3u32.to_be_bytes())?;
        peer.0.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\0")?;
        let mut export = [0; 10];
        peer.0.read_exact(&mut export)?;
        Ok(peer)
    }

    /// Sends the header of a request; its cookie is its offset.
    pub fn ask(&mut self, command: u16, offset: u64, len: u32) -> io::Result<()> {
        let mut header = Vec::with_capacity(28);
        header.extend(0x2560_9513_u32.to_be_bytes());
        header.extend(0u16.to_be_bytes());
        header.extend(command.to_be_bytes());
        header.extend(offset.to_be_bytes());
        header.extend(offset.to_be_bytes());
        header.extend(len.to_be_bytes());
        self.0.write_all(&header)
    }

    /// Receives a simple reply without data; returns its error number.
    pub fn answer(&mut self) -> io::Result<u32> {
        let mut reply = [0; 16];
        self.0.read_exact(&mut reply)?;
        assert_eq!(reply[..4], 0x6744_6698_u32.to_be_bytes());
        Ok(u32::from_be_bytes([reply[4], reply[5], reply[6], reply[7]]))
    }

    /// Reads, and waits for the data.
    pub fn read(&mut self, offset: u64, len: u32) -> io::Result<Vec<u8>> {
        self.ask(READ, offset, len)?;
        match self.answer()? {
            0 => {
                let mut data = vec![0; len as usize];
                self.0.read_exact(&mut data)?;
                Ok(data)
            }
            e => Err(io::Error::from_raw_os_error(e as i32)),
        }
    }

    /// Writes, and waits for the answer.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.ask(WRITE, offset, data.len() as u32)?;
        self.0.write_all(data)?;
        match self.answer()? {
            0 => Ok(()),
            e => Err(io::Error::from_raw_os_error(e as i32)),
        }
    }
}
