//! Clients of the recorded volume.

use super::THREADS;
use isotherm_core::{IoError, RequestOp};
use isotherm_hostile::Rng;
use isotherm_live::port::{Buffer, Completion, IoRequest, Port};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

const BLOCK: u64 = 4096;

/// Makes a request and waits for its result.
pub(super) fn ask(
    port: &Arc<dyn Port>,
    op: RequestOp,
    offset: u64,
    len: u32,
    fua: bool,
    fill: u8,
) -> (Result<(), IoError>, Option<Buffer>) {
    let buf = matches!(op, RequestOp::Read | RequestOp::Write).then(|| {
        let mut b = port.buffer(offset, len);
        b.fill(fill);
        b
    });
    let (send, receive) = mpsc::channel();
    let done = Completion::new(move |r, b| send.send((r, b)).expect("the asker waits"));
    let request = IoRequest::new(op, offset, len)
        .with_buffer(buf)
        .with_fua(fua);
    port.submit(request.in_class((offset >> 20) as u8 & 63), done);
    receive.recv().expect("an answer")
}

/// A client with a part of the volume of its own, which knows the expected value of every byte.
pub(super) struct Client {
    port: Arc<dyn Port>,
    rng: Rng,
    base: u64,
    bytes: Vec<u8>,
}

impl Client {
    pub(super) fn start(
        port: &Arc<dyn Port>,
        seed: u64,
        n: u64,
        requests: u64,
    ) -> JoinHandle<Client> {
        let part = port.volume_bytes() / THREADS / 65536 * 65536;
        let mut client = Client {
            port: Arc::clone(port),
            rng: Rng::new(seed * THREADS + n),
            base: n * part,
            bytes: vec![0; part as usize],
        };
        std::thread::spawn(move || {
            let all = RequestOp::WriteZeroes { keep: false };
            let cleared = ask(&client.port, all, client.base, part as u32, false, 0);
            assert_eq!(cleared.0, Ok(()), "what an earlier life left");
            for i in 0..requests {
                client.step(i);
            }
            client
        })
    }

    fn step(&mut self, i: u64) {
        let part = self.bytes.len() as u64;
        // Some places are hot for a time, so that moves are worthwhile.
        let hot = (i / 300 * 17) % 8 * (part / 8);
        let near = self.rng.below(4) > 0;
        let at = if near {
            hot + self.rng.below(part / 8)
        } else {
            self.rng.below(part)
        };
        let odd = self.rng.below(10) == 0;
        let align = |n: u64| if odd { n } else { n / BLOCK * BLOCK };
        let at = align(at);
        let len = align(1 + self.rng.below(100_000)).max(BLOCK).min(part - at);
        if len == 0 {
            return;
        }
        let range = at as usize..(at + len) as usize;
        let (place, fua) = (self.base + at, self.rng.below(20) == 0);
        let ask = |op, fill| ask(&self.port, op, place, len as u32, fua, fill);
        match self.rng.below(100) {
            0..50 => {
                let (result, buf) = ask(RequestOp::Read, 0xee);
                assert_eq!(result, Ok(()));
                assert!(
                    buf.expect("comes back")[..] == self.bytes[range],
                    "at {place}"
                );
            }
            50..90 => {
                let fill = self.rng.draw() as u8;
                assert_eq!(ask(RequestOp::Write, fill).0, Ok(()));
                self.bytes[range].fill(fill);
            }
            90..94 => {
                // A hint: it applies to the whole blocks in the range.
                let block = u64::from(self.port.block_bytes());
                let (first, end) = (at.next_multiple_of(block), (at + len) / block * block);
                assert_eq!(ask(RequestOp::Discard, 0).0, Ok(()));
                if first < end {
                    self.bytes[first as usize..end as usize].fill(0);
                }
            }
            94..96 => {
                let keep = self.rng.below(2) == 0;
                assert_eq!(ask(RequestOp::WriteZeroes { keep }, 0).0, Ok(()));
                self.bytes[range].fill(0);
            }
            _ => assert_eq!(flush(&self.port), Ok(()),),
        }
    }

    pub(super) fn verify(self, port: &Arc<dyn Port>) {
        for (i, want) in self.bytes.chunks(1 << 20).enumerate() {
            let at = self.base + ((i as u64) << 20);
            let (result, buf) = ask(port, RequestOp::Read, at, want.len() as u32, false, 0xee);
            assert_eq!(result, Ok(()));
            assert!(buf.expect("comes back")[..] == *want, "at {at}");
        }
    }
}

pub(super) fn flush(port: &Arc<dyn Port>) -> Result<(), IoError> {
    ask(port, RequestOp::Flush, 0, 0, false, 0).0
}
