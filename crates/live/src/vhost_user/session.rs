//! A connection of a virtual machine monitor: what its messages mean.

use super::block;
use super::device::Device;
use super::inflight::{self, Area};
use super::queue::never_waits;
use super::ring::SIZE_MAX;
use super::wire::{self, Message, invalid, request};
use crate::port::Port;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use vm_memory::{GuestAddress, GuestMemoryMmap, GuestRegionMmap};

/// MQ, REPLY_ACK, BACKEND_REQ, CONFIG, INFLIGHT_SHMFD.
const PROTOCOL: u64 = 1 | 1 << 3 | 1 << 5 | 1 << 9 | 1 << 12;
/// Most bytes of the configuration space.
const CONFIG_MAX: u32 = 256;
/// The bit of a queue's number that says that it has no eventfd.
const NO_FILE: u64 = 1 << 8;

/// The socket on which a monitor is told of changes.
pub(super) type Channel = Arc<Mutex<Option<File>>>;

/// Memory of the guest at an address of the monitor.
struct Region {
    monitor: u64,
    bytes: u64,
    guest: u64,
}

/// A connection.
pub(super) struct Session {
    socket: UnixStream,
    port: Arc<dyn Port>,
    extent: u32,
    device: Arc<Device>,
    regions: Vec<Region>,
    channel: Channel,
}

/// The answer to a message.
enum Answer {
    /// Only whether it succeeded, and only if the peer asks.
    Done,
    Bytes(Vec<u8>),
    File(Vec<u8>, File),
}

fn number(value: u64) -> Answer {
    Answer::Bytes(value.to_le_bytes().into())
}

impl Session {
    pub fn new(
        socket: UnixStream,
        port: Arc<dyn Port>,
        extent: u32,
        device: Arc<Device>,
        channel: Channel,
    ) -> Session {
        Session {
            socket,
            port,
            extent,
            device,
            regions: Vec::new(),
            channel,
        }
    }

    pub fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// Receives and handles a message. Returns false at the end of the stream.
    ///
    /// # Errors
    /// The peer broke the protocol, stalled, or asked for what cannot be done and not for an answer.
    pub fn step(&mut self) -> io::Result<bool> {
        let Some(mut message) = wire::receive(&self.socket)? else {
            return Ok(false);
        };
        let answer = self.handle(&mut message);
        let (body, file) = match answer {
            Ok(Answer::Bytes(body)) => (body, None),
            Ok(Answer::File(body, file)) => (body, Some(file)),
            Ok(Answer::Done) if !message.wants_ack => return Ok(true),
            Ok(Answer::Done) => (0u64.to_le_bytes().into(), None),
            Err(e) if message.wants_ack => {
                tracing::warn!("vhost-user: message {} is refused: {e}", message.code);
                (1u64.to_le_bytes().into(), None)
            }
            Err(e) => {
                let code = message.code;
                return Err(io::Error::new(e.kind(), format!("message {code}: {e}")));
            }
        };
        let file = file.as_ref().map(AsFd::as_fd);
        wire::reply(&self.socket, message.code, &body, file)?;
        Ok(true)
    }

    fn handle(&mut self, m: &mut Message) -> io::Result<Answer> {
        let read_only = self.port.read_only();
        match m.code {
            request::GET_FEATURES => return Ok(number(block::features(read_only))),
            request::SET_FEATURES => self.set_features(m.fields().u64()?, read_only)?,
            request::GET_PROTOCOL_FEATURES => return Ok(number(PROTOCOL)),
            request::SET_PROTOCOL_FEATURES => {
                if m.fields().u64()? & !PROTOCOL != 0 {
                    return Err(invalid("protocol features that were not offered"));
                }
            }
            // Nothing depends on the owner.
            request::SET_OWNER | request::RESET_OWNER => {}
            request::GET_QUEUE_NUM => return Ok(number(block::QUEUES_MAX.into())),
            request::SET_MEM_TABLE => self.set_memory(m)?,
            request::SET_BACKEND_REQ_FD => {
                *self.channel.lock().unwrap_or_else(PoisonError::into_inner) = Some(m.file()?);
            }
            request::GET_CONFIG => return self.config(m),
            request::GET_INFLIGHT_FD => return inflight_file(m),
            request::SET_INFLIGHT_FD => self.set_inflight(m)?,
            request::SET_VRING_KICK | request::SET_VRING_CALL | request::SET_VRING_ERR => {
                self.set_eventfd(m)?;
            }
            request::SET_VRING_ADDR => self.set_addresses(m)?,
            request::SET_VRING_NUM
            | request::SET_VRING_BASE
            | request::GET_VRING_BASE
            | request::SET_VRING_ENABLE => return self.set_queue(m),
            _ => return Err(invalid("is not known")),
        }
        Ok(Answer::Done)
    }

    fn set_features(&mut self, features: u64, read_only: bool) -> io::Result<()> {
        if features & !block::features(read_only) != 0 {
            return Err(invalid("features that were not offered"));
        }
        let mut state = self.device.lock();
        state.features = features;
        if features & block::feature::PROTOCOL == 0 {
            // Such a monitor does not know how to enable a queue.
            state.queues.iter_mut().for_each(|q| q.enabled = true);
        }
        Ok(())
    }

    fn set_memory(&mut self, m: &mut Message) -> io::Result<()> {
        let files = std::mem::take(&mut m.files);
        let mut fields = m.fields();
        let (count, _padding) = (fields.u32()? as usize, fields.u32()?);
        if count == 0 || count != files.len() {
            return Err(invalid("a region of memory without its descriptor"));
        }
        let (mut regions, mut mapped) = (Vec::new(), Vec::new());
        for file in files {
            let (guest, bytes) = (fields.u64()?, fields.u64()?);
            let (monitor, offset) = (fields.u64()?, fields.u64()?);
            let map = inflight::map(file, offset, bytes)?;
            let region = GuestRegionMmap::new(map, GuestAddress(guest));
            mapped.push(region.ok_or_else(|| invalid("a region at the end of all addresses"))?);
            regions.push(Region {
                monitor,
                bytes,
                guest,
            });
        }
        mapped.sort_by_key(|r| vm_memory::GuestMemoryRegion::start_addr(r).0);
        let memory = GuestMemoryMmap::from_regions(mapped).map_err(io::Error::other)?;
        self.regions = regions;
        let before = std::mem::replace(&mut self.device.lock().memory, memory);
        // This unmaps it, which takes a moment.
        drop(before);
        Ok(())
    }

    /// The place in the guest's memory of an address of the monitor.
    fn guest(&self, monitor: u64) -> io::Result<GuestAddress> {
        let place = |r: &Region| {
            let offset = monitor.checked_sub(r.monitor).filter(|o| *o < r.bytes)?;
            r.guest.checked_add(offset)
        };
        let found = self.regions.iter().find_map(place).map(GuestAddress);
        found.ok_or_else(|| invalid("an address outside of the memory"))
    }

    fn set_addresses(&self, m: &Message) -> io::Result<()> {
        let mut fields = m.fields();
        let (index, flags) = (index(fields.u32()?.into())?, fields.u32()?);
        let [descriptors, used, available] = [fields.u64()?, fields.u64()?, fields.u64()?];
        if flags != 0 {
            return Err(invalid("a log of writes, which was not offered"));
        }
        let at = [
            self.guest(descriptors)?,
            self.guest(available)?,
            self.guest(used)?,
        ];
        if at
            .iter()
            .zip([16, 2, 4])
            .any(|(at, align)| at.0 % align != 0)
        {
            return Err(invalid("a ring at an odd address"));
        }
        self.device.pause(index).queues[index].ring.at = Some(at);
        self.device.start(index)
    }

    fn set_queue(&self, m: &Message) -> io::Result<Answer> {
        let mut fields = m.fields();
        let (index, value) = (index(fields.u32()?.into())?, fields.u32()?);
        if m.code == request::GET_VRING_BASE {
            let base = u32::from(self.device.stop(index));
            let reply = [index as u32, base].map(u32::to_le_bytes);
            return Ok(Answer::Bytes(reply.as_flattened().into()));
        }
        let small = u16::try_from(value).map_err(|_| invalid("a number beyond 65535"))?;
        let mut state = self.device.pause(index);
        let q = &mut state.queues[index];
        match m.code {
            request::SET_VRING_NUM if small > SIZE_MAX || !small.is_power_of_two() => {
                return Err(invalid("a queue of a size that no queue has"));
            }
            request::SET_VRING_NUM => q.ring.size = small,
            request::SET_VRING_BASE => q.ring.available = small,
            _ => q.enabled = small != 0,
        }
        drop(state);
        self.device.start(index)?;
        Ok(Answer::Done)
    }

    fn set_eventfd(&self, m: &mut Message) -> io::Result<()> {
        let value = m.fields().u64()?;
        let index = index(value & !NO_FILE)?;
        let file = if value & NO_FILE == 0 {
            Some(never_waits(m.file()?)?)
        } else {
            None
        };
        match m.code {
            request::SET_VRING_CALL => self.device.lock().queues[index].call = file,
            request::SET_VRING_ERR => self.device.lock().queues[index].error = file,
            // A queue without one would have to be polled.
            _ if file.is_none() => return Err(invalid("a queue without an eventfd")),
            _ => self.device.pause(index).queues[index].kick = file,
        }
        self.device.start(index)
    }

    fn config(&self, m: &Message) -> io::Result<Answer> {
        let mut fields = m.fields();
        let (offset, size) = (fields.u32()?, fields.u32()?);
        let end = offset.checked_add(size).filter(|end| *end <= CONFIG_MAX);
        let end = end.ok_or_else(|| invalid("a part of the configuration that no device has"))?;
        let mut all = block::config(&*self.port, self.extent).to_vec();
        all.resize(CONFIG_MAX as usize, 0);
        let mut reply = [offset, size, 0]
            .map(u32::to_le_bytes)
            .as_flattened()
            .to_vec();
        reply.extend(&all[offset as usize..end as usize]);
        Ok(Answer::Bytes(reply))
    }

    fn set_inflight(&self, m: &mut Message) -> io::Result<()> {
        let mut fields = m.fields();
        let (bytes, offset) = (fields.u64()?, fields.u64()?);
        let (queues, size) = counts(fields.u16()?, fields.u16()?)?;
        if bytes < inflight::area_bytes(queues, size) {
            return Err(invalid("an area for requests in flight that is too small"));
        }
        let area = Area::open(m.file()?, offset, queues, size)?;
        self.device.lock().area = Some(area);
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.channel
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // The answers are in the guest's memory before the socket is closed, and no later session meets a request of this one.
        self.device.end();
    }
}

fn index(value: u64) -> io::Result<usize> {
    let index = usize::try_from(value).ok();
    let index = index.filter(|i| *i < usize::from(block::QUEUES_MAX));
    index.ok_or_else(|| invalid("a queue that the device does not have"))
}

/// Numbers of queues and of their descriptors.
fn counts(queues: u16, size: u16) -> io::Result<(u16, u16)> {
    let fits = (1..=block::QUEUES_MAX).contains(&queues) && (1..=SIZE_MAX).contains(&size);
    fits.then_some((queues, size))
        .ok_or_else(|| invalid("more queues or descriptors than the device has"))
}

fn inflight_file(m: &Message) -> io::Result<Answer> {
    let mut fields = m.fields();
    let _unused = (fields.u64()?, fields.u64()?);
    let (queues, size) = counts(fields.u16()?, fields.u16()?)?;
    let file = inflight::create(queues, size)?;
    let mut reply = inflight::area_bytes(queues, size).to_le_bytes().to_vec();
    reply.extend(0u64.to_le_bytes());
    reply.extend([queues, size].map(u16::to_le_bytes).as_flattened());
    // Monitors send the message as C lays it out, with unused bytes at its end, and want as many back.
    reply.resize(m.body.len(), 0);
    Ok(Answer::File(reply, file))
}
