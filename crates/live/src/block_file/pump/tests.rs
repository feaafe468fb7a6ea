//! Tests of `pump`.

use std::sync::atomic::Ordering;

use super::*;
use crate::block_file::testing::MemPort;
use crate::block_file::wire::{FUSE_WRITE, OUT_HEADER, u32_at, u64_at};
use crate::port::{Completion, IoRequest, Layer};

/// A port that loses its completions.
struct LosingPort(MemPort);

impl Layer for LosingPort {
    fn below(&self) -> &dyn Port {
        &self.0
    }

    fn submit(&self, _: IoRequest, _: Completion) {}
}

/// A pump whose replies can be read from the pipe.
fn pump(port: Arc<dyn Port>) -> (Pump, io::PipeReader) {
    let (replies, device) = io::pipe().unwrap();
    let device = Arc::new(File::from(OwnedFd::from(device)));
    let (socket, _) = packet_sockets().unwrap();
    let fuser_link = Arc::new(FuserLink::new(socket, Arc::clone(&device)));
    (
        Pump {
            device,
            fuser_link,
            port,
            buffer: Box::default(),
        },
        replies,
    )
}

fn write_message(unique: u64, len: u32) -> Vec<u8> {
    let mut message = vec![0; IN_HEADER + IO_HEADER + len as usize];
    message[4..8].copy_from_slice(&FUSE_WRITE.to_ne_bytes());
    message[8..16].copy_from_slice(&unique.to_ne_bytes());
    message[IN_HEADER + 16..IN_HEADER + 20].copy_from_slice(&len.to_ne_bytes());
    message
}

fn reply(replies: &mut io::PipeReader, payload: usize) -> (i32, u64, Vec<u8>) {
    let mut reply = vec![0; OUT_HEADER + payload];
    replies.read_exact(&mut reply).unwrap();
    assert_eq!(u32_at(&reply, 0), Some(reply.len() as u32));
    (
        u32_at(&reply, 4).unwrap() as i32,
        u64_at(&reply, 8).unwrap(),
        reply.split_off(OUT_HEADER),
    )
}

#[test]
fn a_truncated_message_is_never_taken_for_a_read_or_write() {
    let port = Arc::new(MemPort::new(1 << 20, 512));
    let (pump, mut replies) = pump(Arc::clone(&port) as Arc<dyn Port>);
    let write = write_message(7, 512);
    for len in 0..write.len() {
        assert_eq!(pump.take_frequent(&write[..len]), None, "{len} bytes");
    }
    assert_eq!(pump.take_frequent(&write), Some(()));
    assert_eq!(port.counts.writes.load(Ordering::Relaxed), 1);
    let (error, unique, out) = reply(&mut replies, 8);
    assert_eq!(
        (error, unique, u32_at(&out, 0)),
        (0, 7, Some(512)),
        "one answer, to the whole message"
    );
}

#[test]
fn a_lost_completion_is_an_error_for_the_caller() {
    let (pump, mut replies) = pump(Arc::new(LosingPort(MemPort::new(1 << 20, 512))));
    assert_eq!(pump.take_frequent(&write_message(9, 512)), Some(()));
    assert_eq!(
        reply(&mut replies, 0),
        (-Errno::IO.raw_os_error(), 9, vec![])
    );
}
