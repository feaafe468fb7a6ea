//! Peers that send anything: valid, cut, stalled and disordered sequences of PDUs. Afterwards no session is left, all memory is back, and
//! initiators log in. Peers without the secret reach the volume with nothing.
//!
//! `ISOTHERM_FUZZ_SECONDS=N` runs longer, `ISOTHERM_SEED=N` another sequence. Threads are not seeded, so a run cannot be repeated exactly.

use super::{BYTES, READ, Rig, WRITE, rig_with, until};
use isotherm_core::random::SplitMix64;
use isotherm_live::iscsi::chap::Secrets;
use isotherm_live::iscsi::pdu::{Header, NO_TAG, header, put, put_data_len};
use isotherm_live::iscsi::server::TimeLimits;
use isotherm_live::iscsi::testing::Initiator;
use std::io::Read;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PEERS: u64 = 4;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

struct Peer {
    random: SplitMix64,
    cmd_sn: u32,
    itt: u32,
    target: String,
    /// Target transfer tag and initiator's tag of the last request for data.
    asked: Option<Header>,
}

impl Peer {
    fn below(&mut self, n: u64) -> u64 {
        self.random.below(n)
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.random.below(from.len() as u64) as usize]
    }

    /// A request of a login; mostly one that is accepted without a secret.
    fn login(&mut self) -> (Header, Vec<u8>) {
        let odd = self.one_in(3);
        let flags = if odd {
            self.pick(&[0x87, 0x87, 0x81, 0x83, 0x04, 0x00, 0x40, 0x85, 0x8c])
        } else {
            0x87
        };
        let who = self.below(6);
        let mut keys = vec![
            format!("InitiatorName=iqn.x:fuzz{who}"),
            format!("TargetName={}", self.target),
        ];
        for key in [
            "SessionType=Discovery",
            "AuthMethod=CHAP",
            "AuthMethod=None",
            "CHAP_A=5",
            "CHAP_N=joe",
            "CHAP_R=0x00112233445566778899aabbccddeeff",
            "MaxRecvDataSegmentLength=512",
            "ImmediateData=No",
            "FirstBurstLength=512",
            "MaxBurstLength=1024",
            "X=",
            "=",
        ] {
            if odd && self.one_in(4) {
                keys.push(key.to_owned());
            }
        }
        if odd && self.one_in(4) {
            keys.remove(0);
        }
        let mut b = header(0x43, flags, 0);
        b[8] = 0x40;
        b[13] = self.below(3) as u8;
        (b, (keys.join("\0") + "\0").into_bytes())
    }

    fn scsi(&mut self) -> (Header, Vec<u8>) {
        let opcode = self.pick(&[
            WRITE, WRITE, WRITE, READ, READ, 0x42, 0x93, 0x91, 0x9e, 0x12, 0x00, 0x5e, 0x5f, 0x2f,
            0x8f, 0x28, 0x2a, 0xa0,
        ]);
        let blocks = self.pick(&[1, 8, 8, 64, 300]);
        let lba = self.below(BYTES / 512);
        let fua = self.one_in(4);
        let mut cdb = Initiator::blocks(opcode, lba, blocks, 0, fua);
        if self.one_in(3) {
            // Lengths of the shorter commands.
            cdb[7] = self.below(3) as u8;
            cdb[8] = self.below(255) as u8;
        }
        let direction = match opcode {
            READ | 0x12 | 0x28 | 0x5e | 0x9e | 0xa0 => 0x40,
            0x91 | 0x00 => 0,
            _ => 0x20,
        };
        let direction = if self.one_in(12) { 0x60 } else { direction };
        self.itt += 1;
        let mut b = header(0x01, 0x80 | direction, self.itt);
        let expected = self.pick(&[0, 512, 4096, blocks * 512, blocks * 512]);
        put(&mut b, 20, expected);
        b[32..48].copy_from_slice(&cdb);
        let immediate = if direction & 0x20 != 0 || self.one_in(20) {
            self.pick(&[0, 0, 24, 512, 4096])
        } else {
            0
        };
        (b, vec![1; immediate])
    }

    fn data_out(&mut self) -> (Header, Vec<u8>) {
        let Some(r2t) = self.asked else {
            return (header(0x05, 0x80, 1), vec![0; 16]);
        };
        let at = |from: usize| {
            u32::from_be_bytes([r2t[from], r2t[from + 1], r2t[from + 2], r2t[from + 3]])
        };
        let whole = at(44).min(256 << 10);
        let len = if self.one_in(4) { whole / 2 } else { whole };
        let mut b = header(0x05, u8::from(len == at(44)) << 7, at(16));
        b[20..24].copy_from_slice(&r2t[20..24]);
        let wrong = self.one_in(10);
        put(&mut b, 36, u32::from(wrong));
        put(&mut b, 40, at(40));
        self.asked = None;
        (b, vec![2; len as usize])
    }

    fn pdu(&mut self) -> (Header, Vec<u8>) {
        let tag = self.itt;
        let (mut b, data) = match self.below(20) {
            8..12 => self.data_out(),
            12 => (
                header(0x00, 0x80, self.pick(&[tag, NO_TAG])),
                vec![3; self.pick(&[0, 5, 4096])],
            ),
            13 => (
                header(0x02, 0x80 | self.pick(&[1, 2, 3, 5, 6, 8]), tag),
                Vec::new(),
            ),
            14 => {
                let flags = self.pick(&[0x80, 0x40, 0x00]);
                (header(0x04, flags, tag), b"SendTargets=All\0".to_vec())
            }
            15 => (header(0x06, 0x80 | self.pick(&[0, 1, 2]), tag), Vec::new()),
            16 if self.one_in(3) => self.login(),
            17 if self.one_in(3) => (
                header(self.pick(&[0x10, 0x1f, 0x3f, 0x20, 0x25]), 0x80, tag),
                Vec::new(),
            ),
            _ => self.scsi(),
        };
        if self.one_in(12) {
            b[0] ^= 0x40;
        }
        if self.one_in(30) {
            b[4] = self.below(4) as u8;
        }
        if self.one_in(30) {
            let at = self.below(48) as usize;
            b[at] ^= 1 << self.below(8);
        }
        let ahead = if self.one_in(20) {
            self.below(5) as u32
        } else {
            0
        };
        put(&mut b, 24, self.cmd_sn.wrapping_add(ahead));
        if b[0] & 0x40 == 0 && ahead == 0 && b[0] != 0x05 {
            self.cmd_sn = self.cmd_sn.wrapping_add(1);
        }
        (b, data)
    }

    /// Takes what the target has sent, and remembers the last request for data.
    fn listen(&mut self, socket: &TcpStream) {
        let mut bytes = vec![0; 256 << 10];
        let mut socket = socket;
        let Ok(n) = socket.read(&mut bytes) else {
            return;
        };
        let starts = (0..n.saturating_sub(47)).rev().step_by(4);
        let is_r2t = |at: &usize| bytes[*at] == 0x31 && bytes[*at + 1] == 0x80;
        if let Some(at) = starts.into_iter().find(is_r2t) {
            let mut b = [0; 48];
            b.copy_from_slice(&bytes[at..at + 48]);
            self.asked = Some(b);
        }
    }

    /// One connection, from its first byte to its end.
    fn connect(&mut self, at: SocketAddr) -> std::io::Result<()> {
        let socket = TcpStream::connect(at)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(Duration::from_millis(5)))?;
        socket.set_write_timeout(Some(Duration::from_secs(1)))?;
        (self.cmd_sn, self.itt, self.asked) = (1, 0, None);
        let sequence = 1 + self.below(30);
        for n in 0..sequence {
            let (mut b, data) = if n == 0 && !self.one_in(10) {
                let (mut b, text) = self.login();
                put(&mut b, 24, 1);
                (b, text)
            } else {
                self.pdu()
            };
            put_data_len(&mut b, data.len());
            let mut bytes = [&b[..], &data].concat();
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            let cut = self.one_in(15);
            if cut {
                bytes.truncate(self.below(bytes.len() as u64) as usize);
            }
            let mut to = &socket;
            std::io::Write::write_all(&mut to, &bytes)?;
            if !self.one_in(3) {
                self.listen(&socket);
            }
            if cut && self.one_in(2) {
                break;
            }
        }
        match self.below(4) {
            // It stalls, longer than the server waits.
            0 => std::thread::sleep(Duration::from_millis(300)),
            1 => socket.shutdown(Shutdown::Write)?,
            // With unread data in its buffer the kernel resets the connection.
            2 => {}
            _ => self.listen(&socket),
        }
        Ok(())
    }
}

/// Lets peers do what they want for some seconds, and on a busy machine until they came far enough; returns the number of their connections.
fn storm(rig: &Rig, seconds: u64, far: impl Fn() -> bool + Sync) -> u64 {
    let seed = number("ISOTHERM_SEED").unwrap_or(1);
    let end = Instant::now() + Duration::from_secs(seconds);
    let limit = end + Duration::from_secs(60);
    let (rig_at, far) = (rig.at, &far);
    let goes_on = move || {
        let now = Instant::now();
        now < end || now < limit && !far()
    };
    std::thread::scope(|s| {
        let peers: Vec<_> = (0..PEERS)
            .map(|n| {
                let mut peer = Peer {
                    random: SplitMix64::new(seed * PEERS + n),
                    cmd_sn: 1,
                    itt: 0,
                    target: rig.target.clone(),
                    asked: None,
                };
                s.spawn(move || {
                    let mut connections = 0;
                    while goes_on() {
                        // The server may close the connection at any time.
                        let _ = peer.connect(rig_at);
                        connections += 1;
                    }
                    connections
                })
            })
            .collect();
        peers.into_iter().map(|p| p.join().unwrap()).sum()
    })
}

fn impatient(config: &mut isotherm_live::iscsi::server::Config) {
    config.time_limits = TimeLimits {
        // The initiators at the end must log in in this time, on a busy machine too.
        handshake: Duration::from_secs(4),
        transmission: Duration::from_millis(200),
    };
}

#[test]
fn after_any_sequence_of_pdus_no_session_is_left_and_initiators_log_in() {
    let rig = rig_with(8 << 20, impatient);
    let heard = || rig.port.classes.lock().unwrap().len();
    let far = || heard() > 0 && rig.server.counts().violations > 0;
    let connections = storm(&rig, number("ISOTHERM_FUZZ_SECONDS").unwrap_or(3), far);
    until("all peers have left", || rig.server.connections() == 0);
    assert_eq!(rig.server.clients(), 0);
    until("memory comes back", || rig.port.inner.pool_bytes_out() == 0);
    println!(
        "{connections} connections, {} requests, {:?}",
        heard(),
        rig.server.counts()
    );
    assert!(far(), "peers came that far");
    rig.check_served();
    let url = format!("iscsi://{}/{}/0", rig.at, rig.target);
    match Command::new("iscsi-inq").arg(&url).output() {
        Ok(out) => assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        ),
        Err(_) => println!("skipped: iscsi-inq is not installed (libiscsi-bin)"),
    }
    rig.server.stop();
}

#[test]
fn no_sequence_of_pdus_reaches_the_volume_without_the_secret() {
    let secrets = Secrets::parse("joe secret-of-joe").unwrap();
    let rig = rig_with(8 << 20, |c| {
        impatient(c);
        c.secrets = Some(Arc::new(secrets));
    });
    let seconds = number("ISOTHERM_FUZZ_SECONDS").map_or(2, |s| s / 5 + 1);
    let far = || rig.server.counts().unknown > 0;
    let connections = storm(&rig, seconds, far);
    until("all peers have left", || rig.server.connections() == 0);
    assert!(
        rig.port.classes.lock().unwrap().is_empty(),
        "a request without a secret"
    );
    println!("{connections} connections, {:?}", rig.server.counts());
    assert!(far(), "peers came that far");
    let joe = Some(("joe", "secret-of-joe"));
    let joe = Initiator::login(rig.at, "iqn.x:joe", &rig.target, joe).unwrap();
    joe.logout().unwrap();
    rig.server.stop();
}
