//! An initiator for tests: one session, which sends one command at a time, or arbitrary bytes.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::chap::{answer, hex, unhex};
use super::pdu::{HEADER, Header, NO_TAG, add_pair, header, pairs, put, put_data_len, u32_at};

/// How long the target may take to answer.
const TIMEOUT: Duration = Duration::from_secs(60);

/// One PDU of the target.
#[derive(Debug)]
pub struct Answer {
    /// Its header.
    pub header: Header,
    /// Its data.
    pub data: Vec<u8>,
}

/// The outcome of a command.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// SCSI status: 0 good, 2 check condition.
    pub status: u8,
    /// The data that was read.
    pub data: Vec<u8>,
    /// Key, code and qualifier of a check condition.
    pub sense: Option<(u8, u8, u8)>,
    /// The number of bytes by which the command exceeded (or fell short of) the expectation.
    pub residual: i64,
}

/// A session.
pub struct Initiator {
    socket: TcpStream,
    cmd_sn: u32,
    stat_sn: u32,
    itt: u32,
    /// Maximum amount of data that is sent with a command, in bytes.
    pub immediate: usize,
}

fn failed(text: impl Into<String>) -> io::Error {
    io::Error::other(text.into())
}

impl Initiator {
    /// Connects, without logging in.
    ///
    /// # Errors
    /// The target does not listen.
    pub fn connect(at: SocketAddr) -> io::Result<Initiator> {
        let socket = TcpStream::connect(at)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.set_write_timeout(Some(TIMEOUT))?;
        Ok(Initiator {
            socket,
            cmd_sn: 1,
            stat_sn: 0,
            itt: 0,
            immediate: 64 << 10,
        })
    }

    /// Connects and logs in to `target` as `name`, with a user and secret if there is one.
    ///
    /// # Errors
    /// The login was refused (class and detail), or the socket failed.
    pub fn login(
        at: SocketAddr,
        name: &str,
        target: &str,
        secret: Option<(&str, &str)>,
    ) -> io::Result<Initiator> {
        let mut i = Initiator::connect(at)?;
        let names = [
            ("InitiatorName", name),
            ("TargetName", target),
            ("SessionType", "Normal"),
        ];
        if let Some((user, secret)) = secret {
            let mut keys = names.to_vec();
            keys.push(("AuthMethod", "CHAP"));
            i.negotiate(0x81 & 0x7f, &keys)?;
            let told = i.negotiate(0x01, &[("CHAP_A", "5")])?;
            let of = |key: &str| told.iter().find(|p| p.0 == key).map(|p| p.1.clone());
            let id = of("CHAP_I").and_then(|v| v.parse().ok());
            let challenge = of("CHAP_C").and_then(|v| unhex(&v));
            let (id, challenge) = id.zip(challenge).ok_or_else(|| failed("no challenge"))?;
            let response = hex(&answer(id, secret, &challenge));
            i.negotiate(0x81, &[("CHAP_N", user), ("CHAP_R", &response)])?;
            i.negotiate(0x87, &[("MaxBurstLength", "262144")])?;
        } else {
            i.negotiate(0x87, &names)?;
        }
        Ok(i)
    }

    /// One login request with these flags.
    ///
    /// # Errors
    /// The login was refused (class and detail), or the socket failed.
    pub fn negotiate(
        &mut self,
        flags: u8,
        keys: &[(&str, &str)],
    ) -> io::Result<Vec<(String, String)>> {
        let mut text = Vec::new();
        for (k, v) in keys {
            add_pair(&mut text, k, v);
        }
        let mut b = header(0x43, flags, 0);
        b[8] = 0x40;
        self.send(b, &text)?;
        let a = self.receive()?;
        if a.header[0] != 0x23 || a.header[36] != 0 {
            return Err(failed(format!(
                "refused: {:02x}{:02x}",
                a.header[36], a.header[37]
            )));
        }
        let pairs = pairs(&a.data).map_err(|v| failed(v.0))?;
        Ok(pairs
            .iter()
            .map(|p| (p.0.to_owned(), p.1.to_owned()))
            .collect())
    }

    /// Sends a PDU; this function fills in the numbers.
    ///
    /// # Errors
    /// The socket failed.
    pub fn send(&mut self, mut b: Header, data: &[u8]) -> io::Result<()> {
        put(&mut b, 24, self.cmd_sn);
        put(&mut b, 28, self.stat_sn);
        put_data_len(&mut b, data.len());
        let mut bytes = b.to_vec();
        bytes.extend_from_slice(data);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        self.send_bytes(&bytes)
    }

    /// Sends these bytes.
    ///
    /// # Errors
    /// The socket failed.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.write_all(bytes)
    }

    /// The next PDU of the target.
    ///
    /// # Errors
    /// The socket failed or was closed.
    pub fn receive(&mut self) -> io::Result<Answer> {
        let mut b = [0; HEADER];
        self.socket.read_exact(&mut b)?;
        let len = (u32_at(&b, 4) & 0xff_ffff) as usize;
        let mut data = vec![0; len.next_multiple_of(4)];
        self.socket.read_exact(&mut data)?;
        data.truncate(len);
        let carries = b[0] != 0x25 || b[1] & 1 != 0;
        if carries && b[0] != 0x31 {
            self.stat_sn = u32_at(&b, 24).wrapping_add(1);
        }
        Ok(Answer { header: b, data })
    }

    /// Waits until the target has closed the connection. Returns false if it does not.
    pub fn is_closed(&mut self) -> bool {
        let mut rest = [0; 4096];
        loop {
            match self.socket.read(&mut rest) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(e) => return e.kind() == io::ErrorKind::ConnectionReset,
            }
        }
    }

    /// Starts a command, and returns its tag. `read`: the maximum amount of data to receive, `data`: the data to send.
    ///
    /// # Errors
    /// The socket failed.
    pub fn begin(&mut self, cdb: &[u8], read: u32, data: &[u8]) -> io::Result<u32> {
        self.itt += 1;
        let direction = u8::from(read > 0) << 6 | u8::from(!data.is_empty()) << 5;
        let mut b = header(0x01, 0x80 | direction | 1, self.itt);
        put(
            &mut b,
            20,
            if data.is_empty() {
                read
            } else {
                data.len() as u32
            },
        );
        b[32..32 + cdb.len()].copy_from_slice(cdb);
        self.send(b, &data[..data.len().min(self.immediate)])?;
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        Ok(self.itt)
    }

    /// Executes a command.
    ///
    /// # Errors
    /// The socket failed, or the target sent an unexpected answer.
    pub fn command(&mut self, cdb: &[u8], read: u32, data: &[u8]) -> io::Result<Outcome> {
        let itt = self.begin(cdb, read, data)?;
        let mut all = Vec::new();
        loop {
            let a = self.receive()?;
            if u32_at(&a.header, 16) != itt {
                return Err(failed("an answer to another command"));
            }
            match a.header[0] {
                0x25 => {
                    if u32_at(&a.header, 40) as usize != all.len() {
                        return Err(failed("data out of order"));
                    }
                    all.extend_from_slice(&a.data);
                    if a.header[1] & 1 == 0 {
                        continue;
                    }
                }
                0x31 => {
                    self.burst(&a.header, data)?;
                    continue;
                }
                0x21 => {}
                other => return Err(failed(format!("an answer of kind {other:#x}"))),
            }
            let sense = (a.header[0] == 0x21 && a.data.len() >= 16)
                .then(|| (a.data[4] & 15, a.data[14], a.data[15]));
            let residual = i64::from(u32_at(&a.header, 44));
            return Ok(Outcome {
                status: a.header[3],
                data: all,
                sense,
                residual: match a.header[1] & 6 {
                    4 => residual,
                    2 => -residual,
                    _ => 0,
                },
            });
        }
    }

    /// Sends the data that the target requests.
    fn burst(&mut self, r2t: &Header, data: &[u8]) -> io::Result<()> {
        let (offset, len) = (u32_at(r2t, 40) as usize, u32_at(r2t, 44) as usize);
        let mut at = offset;
        for data_sn in 0.. {
            let n = (offset + len - at).min(64 << 10);
            let last = at + n == offset + len;
            let mut b = header(0x05, u8::from(last) << 7, u32_at(r2t, 16));
            b[20..24].copy_from_slice(&r2t[20..24]);
            put(&mut b, 36, data_sn);
            put(&mut b, 40, at as u32);
            self.send(b, &data[at..at + n])?;
            at += n;
            if last {
                break;
            }
        }
        Ok(())
    }

    /// READ (16) or WRITE (16) of blocks of `block` bytes, in group `class`.
    pub fn blocks(opcode: u8, lba: u64, count: u32, class: u8, fua: bool) -> [u8; 16] {
        let mut cdb = [0; 16];
        (cdb[0], cdb[1], cdb[14]) = (opcode, u8::from(fua) << 3, class);
        cdb[2..10].copy_from_slice(&lba.to_be_bytes());
        cdb[10..14].copy_from_slice(&count.to_be_bytes());
        cdb
    }

    /// Logs out; the target closes the connection.
    ///
    /// # Errors
    /// The socket failed, or the target refused.
    pub fn logout(mut self) -> io::Result<()> {
        self.itt += 1;
        self.send(header(0x46, 0x80, self.itt), &[])?;
        let a = self.receive()?;
        if a.header[0] != 0x26 || a.header[2] != 0 || u32_at(&a.header, 16) == NO_TAG {
            return Err(failed("not logged out"));
        }
        Ok(())
    }
}
