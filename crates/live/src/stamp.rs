//! The activity stamp: a block of its own on the primary that states which process serves the volume. Two servers that reach the same bytes
//! in ways that no lock covers (two machines and one SAN) detect each other by it.
//!
//! ```text
//! opening:  write a claim ─► not closed cleanly? wait two intervals ─► still our claim, superblocks as before? ─► begin to serve
//!           (on this machine it need not ask: a process that lives is refused, one that has ended is not waited for: `stamp/owner.rs`)
//! serving:  every interval with work: read ─► still our stamp? ─► write the next number            (`world/heartbeat.rs`)
//!           last stamp older than the lease: operations wait until the stamp was read and written again
//! ```
//! A server answers a claim by writing its next number, which the claimer sees. A server that was stopped for longer than its lease finds
//! the claim, or the numbers of the new server, and stops serving. This exclusion is not perfect: if a machine stops between the check and
//! a write, inside its kernel or its controller, the write is still made when it continues. Only SCSI reservations exclude this.

mod owner;

use crate::buffers::{ALIGNMENT, Buffer};
use crate::device::{self, Device, PastCache};
use crate::error::{Error, ErrorKind};
use crate::members::probe::{Second, probe_by};
use crate::mutants::{LiveMutant, broken};
use crate::random::random;
use isotherm_core::store::BLOCK;
use isotherm_core::store::layout::STAMP_AT;
use isotherm_core::store::superblock::SuperblockError;
use owner::{InUse, Owner, Standing};
use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

/// Interval at which a server writes the stamp while there is work.
pub(crate) const INTERVAL: Duration = Duration::from_secs(2);
/// Operations may start as long as the stamp is not older than this; shorter than the two intervals that an opener waits.
pub(crate) const LEASE: Duration = Duration::from_secs(3);
/// The used bytes of the block; they fit into one sector, so they are written whole or not at all.
pub(crate) const BYTES: usize = 512;
const MAGIC: &[u8; 8] = b"ISOSTAMP";
const SUM_AT: usize = BYTES - 8;
const HOST_AT: usize = 96;
const HOST_BYTES: usize = 64;

/// The kinds of stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A process claims the volume.
    Claim,
    /// A process serves the volume.
    Serving,
}

/// Our stamp on a device.
#[derive(Clone, Debug)]
pub(crate) struct Stamp {
    volume: [u8; 16],
    token: [u8; 16],
    number: u64,
    owner: Owner,
    _in_use: InUse,
    /// The contents that were written last.
    pub(crate) last: [u8; BYTES],
}

/// A stamp that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FoundStamp {
    volume: [u8; 16],
    token: [u8; 16],
    pub(crate) kind: Kind,
    owner: Owner,
}

/// FNV-1a, which is enough to tell a stamp (or the header of a keeper) from other contents.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| {
        (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Identifies the start of the machine; zeros if the system does not tell.
pub(crate) fn boot() -> [u8; 16] {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    crate::config::parse_uuid(text.trim()).unwrap_or_default()
}

impl FoundStamp {
    /// Decodes a stamp; `None` if the block holds none.
    pub(crate) fn decode(b: &[u8]) -> Option<FoundStamp> {
        let u64_at = |at: usize| Some(u64::from_le_bytes(b.get(at..at + 8)?.try_into().ok()?));
        let id_at = |at: usize| b.get(at..at + 16)?.try_into().ok();
        if b.get(..8)? != MAGIC || u64_at(SUM_AT)? != sum(b.get(..SUM_AT)?) {
            return None;
        }
        let host = b.get(HOST_AT..HOST_AT + HOST_BYTES)?;
        let end = host.iter().position(|&c| c == 0).unwrap_or(HOST_BYTES);
        Some(FoundStamp {
            volume: id_at(8)?,
            token: id_at(24)?,
            kind: if b[48] == 1 {
                Kind::Claim
            } else {
                Kind::Serving
            },
            owner: Owner {
                boot: id_at(56)?,
                space: u64_at(72)?,
                process: u64_at(80)?,
                started: u64_at(88)?,
                host: String::from_utf8_lossy(&host[..end]).into_owned(),
            },
        })
    }

    /// A description for people.
    pub(crate) fn words(&self) -> String {
        format!("process {} on {}", self.owner.process, self.owner.host)
    }
}

impl Stamp {
    pub(crate) fn new(volume: [u8; 16]) -> Result<Stamp, Error> {
        let token = random()?;
        Ok(Stamp {
            volume,
            token,
            number: 0,
            owner: Owner::here(),
            _in_use: InUse::new(token),
            last: [0; BYTES],
        })
    }

    /// Makes the next stamp.
    pub(crate) fn next(&mut self, kind: Kind) -> [u8; BYTES] {
        self.number += 1;
        let mut b = [0; BYTES];
        b[..8].copy_from_slice(MAGIC);
        b[8..24].copy_from_slice(&self.volume);
        b[24..40].copy_from_slice(&self.token);
        b[40..48].copy_from_slice(&self.number.to_le_bytes());
        b[48] = if kind == Kind::Claim { 1 } else { 2 };
        b[56..72].copy_from_slice(&self.owner.boot);
        b[72..80].copy_from_slice(&self.owner.space.to_le_bytes());
        b[80..88].copy_from_slice(&self.owner.process.to_le_bytes());
        b[88..96].copy_from_slice(&self.owner.started.to_le_bytes());
        let host = self.owner.host.as_bytes();
        let n = host.len().min(HOST_BYTES);
        b[HOST_AT..HOST_AT + n].copy_from_slice(&host[..n]);
        let s = sum(&b[..SUM_AT]);
        b[SUM_AT..].copy_from_slice(&s.to_le_bytes());
        b
    }

    /// Whether the block that was read is our last stamp.
    pub(crate) fn is_last(&self, read: &[u8]) -> bool {
        read.get(..BYTES) == Some(&self.last[..])
    }

    /// The stamp of another server of this volume in a block that was read.
    pub(crate) fn rival(&self, read: &[u8]) -> Option<FoundStamp> {
        FoundStamp::decode(read).filter(|s| s.volume == self.volume && s.token != self.token)
    }

    /// Makes the next stamp and writes it; blocks.
    ///
    /// # Errors
    /// The device fails.
    pub(crate) fn put(&mut self, device: &Device, kind: Kind) -> Result<(), Error> {
        self.put_in(&device.past_cache, kind)
            .map_err(|e| failed(device, "written", &e))
    }

    /// As [`Stamp::put`], in the file of a device.
    pub(crate) fn put_in(&mut self, file: &PastCache, kind: Kind) -> io::Result<()> {
        let bytes = self.next(kind);
        write_in(file, &bytes)?;
        self.last = bytes;
        Ok(())
    }

    /// Writes the last stamp on another member as well, which tells there who uses the volume. It is not renewed.
    ///
    /// # Errors
    /// The device fails.
    pub(crate) fn copy_to(&self, device: &Device) -> Result<(), Error> {
        let written = write_in(&device.past_cache, &self.last);
        written.map_err(|e| failed(device, "written", &e))
    }

    /// Reads the device and compares; blocks. For opening and closing, when nothing else is in progress.
    pub(crate) fn is_on(&self, device: &Device) -> Result<bool, Error> {
        Ok(self.is_last(&read(device)?))
    }
}

fn write_in(file: &PastCache, stamp: &[u8; BYTES]) -> io::Result<()> {
    let mut block = Buffer::new(0, BLOCK as u32, ALIGNMENT as u32);
    block.fill(0);
    block[..BYTES].copy_from_slice(stamp);
    file.write_all_at(&block, STAMP_AT)
}

fn failed(device: &Device, what: &str, e: &io::Error) -> Error {
    let place = device.path.display();
    Error::new(
        ErrorKind::Device,
        format!("{place}: the activity stamp cannot be {what} ({e}): check the device"),
    )
}

pub(crate) fn read(device: &Device) -> Result<Buffer, Error> {
    read_in(&device.past_cache).map_err(|e| failed(device, "read", &e))
}

/// Reads the block of the stamp in the file of a device.
pub(crate) fn read_in(file: &PastCache) -> io::Result<Buffer> {
    let mut block = Buffer::new(0, BLOCK as u32, ALIGNMENT as u32);
    file.read_exact_at(&mut block, STAMP_AT)?;
    Ok(block)
}

fn taken(path: &Path, by: Option<&FoundStamp>) -> Error {
    let who = by.map_or_else(|| "somebody".to_owned(), FoundStamp::words);
    let place = path.display();
    Error::new(
        ErrorKind::InUse,
        format!(
            "{place}: the volume is served by {who}, which reaches the same bytes by another way: stop that first"
        ),
    )
}

/// A claim that succeeded.
#[derive(Clone, Debug)]
pub(crate) struct Claimed {
    pub(crate) stamp: Stamp,
    /// A message for people, if the claim had to wait.
    pub(crate) waited: Option<String>,
    /// Whether the last process that served or claimed the volume ran under this kernel.
    pub(crate) same_kernel: bool,
}

fn found(device: &Device, volume: [u8; 16]) -> Result<Option<FoundStamp>, Error> {
    Ok(FoundStamp::decode(&read(device)?).filter(|s| s.volume == volume))
}

/// Refuses a volume, which was not closed cleanly, if the process that stamped it lives. One that was killed is waited for. Returns whether it
/// is known to have ended.
fn refuse_if_lives(path: &Path, by: &FoundStamp) -> Result<bool, Error> {
    let standing = || by.owner.standing(&by.token);
    let waited = device::wait_for_end(path, by.owner.process, || standing() != Standing::Ends);
    waited.map_err(|e| Error::new(ErrorKind::Device, format!("{}: {e}", path.display())))?;
    match standing() {
        Standing::HasEnded => Ok(true),
        Standing::Lives | Standing::Ends if !broken(LiveMutant::LiveHasEnded) => {
            Err(taken(path, Some(by)))
        }
        _ => Ok(false),
    }
}

/// For those who only read: refuses a volume whose primary is `device` and which was not closed cleanly, if its server lives on this machine.
///
/// # Errors
/// It lives, or the stamp cannot be read.
pub(crate) fn refuse_served(device: &Device, volume: [u8; 16]) -> Result<(), Error> {
    if let Some(by) = found(device, volume)? {
        refuse_if_lives(&device.path, &by)?;
    }
    Ok(())
}

/// Claims the volume whose primary is `device`. With `unclean` (a session is active, or crashed) it waits as long as a server would need to
/// show itself, unless that server is known to have ended.
///
/// # Errors
/// Another process serves the volume; or the device is none of the volume's, and nothing is written there.
pub(crate) fn claim(device: &Device, volume: [u8; 16], unclean: bool) -> Result<Claimed, Error> {
    refuse_strangers(device, volume)?;
    take(device, volume, unclean)
}

/// Where a member was, there may be something else by now, under the same name.
fn refuse_strangers(device: &Device, volume: [u8; 16]) -> Result<(), Error> {
    if found(device, volume)?.is_some() || broken(LiveMutant::StampStrangers) {
        return Ok(());
    }
    let read = |to: &mut [u8], at| device.read_past_cache(to, at);
    match probe_by(read, Some(device.bytes), Second::At(&[])) {
        // A damaged superblock does not say whose it is.
        Err(e) if e != SuperblockError::Foreign => Ok(()),
        Ok(sb) if sb.uuid == volume => Ok(()),
        _ => Err(Error::new(
            ErrorKind::Device,
            format!(
                "{}: is no device of this volume: nothing was written there; give the volume's device, or detach this one",
                device.path.display()
            ),
        )),
    }
}

fn take(device: &Device, volume: [u8; 16], unclean: bool) -> Result<Claimed, Error> {
    let before = found(device, volume)?;
    let rival = before.as_ref().filter(|_| unclean);
    let known = match rival {
        Some(by) => refuse_if_lives(&device.path, by)?,
        // A volume without any stamp was never served by a program that writes stamps.
        None => true,
    };
    let mut stamp = Stamp::new(volume)?;
    stamp.put(device, Kind::Claim)?;
    let same_kernel = (before.as_ref())
        .is_some_and(|b| b.owner.boot == stamp.owner.boot && stamp.owner.boot != [0; 16]);
    let rival = rival.filter(|_| !known && !broken(LiveMutant::ClaimAtOnce));
    let waited = match rival {
        Some(rival) => Some(wait_for_answer(device, &stamp, rival)?),
        None => None,
    };
    Ok(Claimed {
        stamp,
        waited,
        same_kernel,
    })
}

/// Waits as long as a server, which cannot be seen from here, would need to answer the claim.
fn wait_for_answer(device: &Device, stamp: &Stamp, rival: &FoundStamp) -> Result<String, Error> {
    let begun = Instant::now();
    while begun.elapsed() < 2 * INTERVAL {
        std::thread::sleep(INTERVAL / 8);
        let now = read(device)?;
        if !stamp.is_last(&now) {
            return Err(taken(&device.path, FoundStamp::decode(&now).as_ref()));
        }
    }
    Ok(format!(
        "{} did not close the volume, and cannot be seen from here; it has not answered for {} s: the volume is taken over",
        rival.words(),
        begun.elapsed().as_secs()
    ))
}

/// Refuses if another server has stamped a device, that is not the primary, between two reads.
///
/// # Errors
/// It has.
pub(crate) fn refuse_change(device: &Device, old: &[u8], new: &[u8]) -> Result<(), Error> {
    if old.get(..BYTES) == new.get(..BYTES) {
        return Ok(());
    }
    Err(taken(&device.path, FoundStamp::decode(new).as_ref()))
}

/// Refuses if the claim is not the newest stamp any more.
///
/// # Errors
/// Another process has claimed or serves the volume.
pub(crate) fn confirm(device: &Device, stamp: &Stamp) -> Result<(), Error> {
    let now = read(device)?;
    if stamp.is_last(&now) {
        return Ok(());
    }
    Err(taken(&device.path, FoundStamp::decode(&now).as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::OpenHow;

    fn device(dir: &tempfile::TempDir) -> Device {
        let how = OpenHow {
            create: Some(1 << 20),
            ..OpenHow::default()
        };
        Device::open(&dir.path().join("d"), how).unwrap()
    }

    fn put(device: &Device, bytes: &[u8; BYTES]) {
        write_in(&device.past_cache, bytes).unwrap();
    }

    /// A stamp as another machine would write it.
    fn stranger(volume: [u8; 16]) -> Stamp {
        let mut s = Stamp::new(volume).unwrap();
        s.owner.boot = [9; 16];
        s.owner.host = "elsewhere".into();
        s
    }

    #[test]
    fn a_stamp_is_decoded_and_every_damage_is_detected() {
        let mut s = Stamp::new([3; 16]).unwrap();
        let b = s.next(Kind::Serving);
        let seen = FoundStamp::decode(&b).unwrap();
        assert_eq!(
            (seen.kind, seen.volume, &seen.owner),
            (Kind::Serving, [3; 16], &s.owner)
        );
        assert_ne!(b, s.next(Kind::Serving));
        for i in 0..BYTES {
            let mut bad = b;
            bad[i] ^= 1;
            assert_eq!(FoundStamp::decode(&bad), None, "byte {i}");
        }
        assert_eq!(FoundStamp::decode(&[0; BYTES]), None);
        assert_eq!(FoundStamp::decode(&b[..100]), None);
    }

    #[test]
    fn a_rival_is_another_server_of_the_same_volume() {
        let (mut ours, mut other) = (Stamp::new([1; 16]).unwrap(), stranger([1; 16]));
        let (mine, theirs) = (ours.next(Kind::Serving), other.next(Kind::Serving));
        assert!(ours.rival(&mine).is_none() && ours.rival(&[0; BYTES]).is_none());
        assert_eq!(ours.rival(&theirs).map(|s| s.token), Some(other.token));
        assert_eq!(ours.rival(&stranger([2; 16]).next(Kind::Serving)), None);
    }

    #[test]
    fn a_claim_is_answered_by_the_serving_process() {
        let dir = tempfile::tempdir().unwrap();
        let d = device(&dir);
        let mut other = stranger([1; 16]);
        put(&d, &other.next(Kind::Serving));
        // The volume was closed cleanly, so no server can exist.
        let Claimed {
            stamp: ours,
            waited,
            same_kernel,
        } = claim(&d, [1; 16], false).unwrap();
        assert!(!same_kernel && waited.is_none() && confirm(&d, &ours).is_ok());
        let next = other.next(Kind::Serving);
        put(&d, &next);
        let e = confirm(&d, &ours).unwrap_err();
        assert!(
            e.kind == ErrorKind::InUse && e.to_string().contains("elsewhere"),
            "{e}"
        );
        // The volume was not closed: a server shows itself while we wait.
        std::thread::scope(|s| {
            let answer = s.spawn(|| {
                while read(&d).unwrap()[..BYTES] == next {
                    std::thread::sleep(Duration::from_millis(5));
                }
                put(&d, &other.next(Kind::Serving));
            });
            let e = claim(&d, [1; 16], true).unwrap_err();
            assert!(e.to_string().contains("elsewhere"), "{e}");
            answer.join().unwrap();
        });
        // No server answers: the volume is ours, with a message.
        let Claimed {
            stamp: ours,
            waited,
            ..
        } = claim(&d, [1; 16], true).unwrap();
        assert!(waited.is_some_and(|w| w.contains("elsewhere")));
        assert!(ours.is_on(&d).unwrap());
        // A server of this machine that lives is not waited for, and one that has ended neither.
        let e = claim(&d, [1; 16], true).unwrap_err();
        assert!(ours.is_on(&d).unwrap(), "its stamp stays");
        assert!(
            e.kind == ErrorKind::InUse && refuse_served(&d, [1; 16]).is_err(),
            "{e}"
        );
        drop(ours);
        let again = claim(&d, [1; 16], true).unwrap();
        assert!(again.waited.is_none() && again.same_kernel);
    }

    /// The stamp's block is far from the beginning, where a file system has data of its own.
    #[test]
    fn what_is_no_device_of_the_volume_gets_no_stamp() {
        let dir = tempfile::tempdir().unwrap();
        let d = device(&dir);
        let now = || std::fs::read(&d.path).unwrap();
        // Blank at its beginning, as btrfs is, and with the stamp of another volume.
        for stamped in [false, true] {
            if stamped {
                put(&d, &stranger([2; 16]).next(Kind::Serving));
            }
            let before = now();
            for unclean in [false, true] {
                let e = claim(&d, [1; 16], unclean).unwrap_err();
                assert!(
                    e.kind == ErrorKind::Device && e.to_string().contains("nothing was written"),
                    "{e}"
                );
            }
            assert!(now() == before);
        }
        // A stamp of the volume says that it is one, whatever has become of its superblocks.
        put(&d, &stranger([1; 16]).next(Kind::Serving));
        assert!(claim(&d, [1; 16], false).is_ok());
    }
}
