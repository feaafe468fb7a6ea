//! A disk with a volatile cache. It gives no guarantees except those of the interface.

use super::Rng;
use isotherm_core::engine::Mutant;
use isotherm_core::store::{Media, MediaError};
use isotherm_core::{MemberId, OpKind};

/// Number of bytes that a device writes as a whole or not at all.
pub const SECTOR: usize = 512;

#[derive(Clone, Debug)]
struct Unflushed {
    offset: usize,
    data: Vec<u8>,
    stamp: u64,
}

/// The present contents, the durable contents, and the writes in between.
#[derive(Clone, Debug)]
pub struct Disk {
    now: Vec<u8>,
    durable: Vec<u8>,
    unflushed: Vec<Unflushed>,
    stamp: u64,
}

impl Disk {
    /// A disk of `bytes` bytes of arbitrary data, because nothing may depend on a new device being zero.
    pub fn new(bytes: usize) -> Disk {
        Disk::filled(bytes, 0xa5)
    }
    /// A disk of `bytes` zeros: what a cache volume shows of its slow members before anything is written.
    pub fn zeros(bytes: usize) -> Disk {
        Disk::filled(bytes, 0)
    }
    fn filled(bytes: usize, with: u8) -> Disk {
        Disk::holding(vec![with; bytes])
    }
    /// A disk that holds these bytes.
    pub fn holding(image: Vec<u8>) -> Disk {
        Disk {
            now: image.clone(),
            durable: image,
            unflushed: Vec::new(),
            stamp: 0,
        }
    }
    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.now.len()
    }
    /// Whether the disk has no bytes.
    pub fn is_empty(&self) -> bool {
        self.now.is_empty()
    }
    /// The present point in time, for [`Disk::flush`].
    pub fn stamp(&self) -> u64 {
        self.stamp
    }
    /// The present contents of a range.
    pub fn read(&self, offset: u64, len: usize) -> &[u8] {
        &self.now[offset as usize..offset as usize + len]
    }
    /// The present contents of a range, if the disk is large enough.
    pub fn get(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let from = usize::try_from(offset).ok()?;
        self.now.get(from..from.checked_add(len)?)
    }
    /// Truncates the disk, as if the device was replaced by a smaller one.
    pub fn cut(&mut self, len: usize) {
        self.now.truncate(len);
        self.durable.truncate(len);
        self.unflushed.retain(|u| u.offset + u.data.len() <= len);
    }
    /// Makes the disk larger; the new part holds this byte.
    pub fn grow(&mut self, more: usize, with: u8) {
        for image in [&mut self.now, &mut self.durable] {
            image.resize(image.len() + more, with);
        }
    }
    /// Writes to the cache.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let at = offset as usize;
        self.now[at..at + data.len()].copy_from_slice(data);
        self.stamp += 1;
        self.unflushed.push(Unflushed {
            offset: at,
            data: data.to_vec(),
            stamp: self.stamp,
        });
    }
    /// Writes to the medium.
    pub fn write_through(&mut self, offset: u64, data: &[u8]) {
        let at = offset as usize;
        self.now[at..at + data.len()].copy_from_slice(data);
        // Older cached writes to the same place must not overwrite it later.
        self.settle_overlaps(at, data.len());
        self.durable[at..at + data.len()].copy_from_slice(data);
    }
    fn settle_overlaps(&mut self, at: usize, len: usize) {
        for u in &mut self.unflushed {
            let (from, to) = (u.offset.max(at), (u.offset + u.data.len()).min(at + len));
            if from < to {
                let fresh = self.now[from..to].to_vec();
                u.data[from - u.offset..to - u.offset].copy_from_slice(&fresh);
            }
        }
    }
    /// Makes everything durable that had arrived at the point in time `stamp`.
    pub fn flush(&mut self, stamp: u64) {
        let durable = &mut self.durable;
        self.unflushed.retain(|u| {
            if u.stamp <= stamp {
                durable[u.offset..u.offset + u.data.len()].copy_from_slice(&u.data);
            }
            u.stamp > stamp
        });
    }
    /// Lets the power fail. Each sector of each unflushed write is kept or lost independently of the others. `extra` are the writes that
    /// were in progress.
    pub fn crash(&mut self, rng: &mut Rng, extra: &[(u64, Vec<u8>)]) {
        let mut image = core::mem::take(&mut self.durable);
        let cached = core::mem::take(&mut self.unflushed);
        let keep = rng.below(4); // sometimes all, sometimes none, mostly a mix
        let pending = cached
            .iter()
            .map(|u| (u.offset, &u.data))
            .chain(extra.iter().map(|(o, d)| (*o as usize, d)));
        for (offset, data) in pending {
            for (i, s) in data.chunks(SECTOR).enumerate() {
                let kept = match keep {
                    0 => false,
                    1 => true,
                    _ => rng.one_in(2),
                };
                if kept {
                    image[offset + i * SECTOR..offset + i * SECTOR + s.len()].copy_from_slice(s);
                }
            }
        }
        self.now.copy_from_slice(&image);
        self.durable = image;
    }
    /// Lets the power fail. For each unflushed sector, given by its offset on the device, `keep` tells whether it has reached the medium.
    pub fn settle(&mut self, keep: &dyn Fn(u64) -> bool) {
        for u in core::mem::take(&mut self.unflushed) {
            for (i, s) in u.data.chunks(SECTOR).enumerate() {
                let at = u.offset + i * SECTOR;
                if keep(at as u64) {
                    self.durable[at..at + s.len()].copy_from_slice(s);
                }
            }
        }
        self.now.copy_from_slice(&self.durable);
    }
    /// A copy of the present contents, as an administrator might make one.
    #[must_use]
    pub fn image(&self) -> Disk {
        Disk::holding(self.now.clone())
    }
    /// Damages bytes permanently.
    pub fn corrupt(&mut self, offset: u64, len: usize) {
        for b in &mut self.now[offset as usize..offset as usize + len] {
            *b ^= 0xff;
        }
        let (at, image) = (offset as usize, &self.now);
        self.durable[at..at + len].copy_from_slice(&image[at..at + len]);
    }
}

/// All members, for creation and recovery. Power can be lost after a given number of writes and flushes.
pub struct Disks<'a> {
    /// The members.
    pub disks: &'a mut [Disk],
    /// Number of writes and flushes until the power fails; `None`: it never fails.
    pub fuse: Option<u64>,
    /// The rule of recovery that is removed.
    pub mutant: Option<Mutant>,
}

impl<'a> Disks<'a> {
    /// Members whose power never fails, with all rules of recovery.
    pub fn of(disks: &'a mut [Disk]) -> Disks<'a> {
        Disks {
            disks,
            fuse: None,
            mutant: None,
        }
    }
}

impl Disks<'_> {
    fn burn(&mut self, member: MemberId, offset: u64) -> Result<(), MediaError> {
        match &mut self.fuse {
            Some(0) => Err(MediaError { member, offset }),
            Some(n) => {
                *n -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Media for Disks<'_> {
    fn read(&mut self, member: MemberId, offset: u64, buf: &mut [u8]) -> Result<(), MediaError> {
        let data = self.disks[usize::from(member.0)].get(offset, buf.len());
        buf.copy_from_slice(data.ok_or(MediaError { member, offset })?);
        Ok(())
    }
    fn write(&mut self, member: MemberId, offset: u64, buf: &[u8]) -> Result<(), MediaError> {
        self.burn(member, offset)?;
        self.disks[usize::from(member.0)].write(offset, buf);
        Ok(())
    }
    fn flush(&mut self, member: MemberId) -> Result<(), MediaError> {
        self.burn(member, 0)?;
        let d = &mut self.disks[usize::from(member.0)];
        let stamp = d.stamp();
        d.flush(stamp);
        Ok(())
    }
    fn bytes(&self, member: MemberId) -> Option<u64> {
        self.disks
            .get(usize::from(member.0))
            .map(|d| d.len() as u64)
    }
    fn mutant(&self) -> Option<Mutant> {
        self.mutant
    }
}

/// Whether an operation of this kind changes the medium.
pub fn changes(kind: OpKind) -> bool {
    matches!(kind, OpKind::Write | OpKind::WriteZeroes | OpKind::Discard)
}
