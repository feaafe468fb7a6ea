//! Whether what lies on a device can be adopted in place, and where it ends.
//!
//! A file system can be adopted if it can lie on a device that ends earlier or later: ext2, ext3, ext4, XFS and btrfs on one device. Whatever is
//! found beside it, at any place, is a reason to refuse.

use super::window::Window;
use super::{Content, plain, recognise};
use crate::device::Device;
use crate::error::{Error, ErrorKind};

/// Incompatible feature *64bit* of ext4: the number of blocks has a high half.
const EXT_64BIT: u32 = 0x80;
/// Incompatible feature of ext: the journal must be replayed. Incompatible feature *journal device*.
const EXT_RECOVER: u32 = 4;
/// State of ext: errors were found.
const EXT_ERRORS: u16 = 2;
/// Incompatible feature of XFS, version 5: it must be repaired before it is mounted.
const XFS_NEEDS_REPAIR: u32 = 1 << 4;
/// Flag of btrfs: errors were found.
const BTRFS_ERRORS: u64 = 1 << 2;
const BTRFS_AT: u64 = 0x1_0000;

/// What can be adopted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adoptable {
    /// With its article: `an ext4 file system`.
    pub what: String,
    /// Its end on the device, in bytes: what is behind it is free.
    pub bytes: u64,
    /// A command that shrinks it, if there is one, with `DEVICE`, and the wanted size as `{kib}` or `{bytes}`.
    pub shrink: Option<&'static str>,
    /// The smallest piece that it reads and writes, in bytes.
    pub sector: u32,
    /// Whether it was not unmounted.
    pub in_use: bool,
}

/// Looks at `device`. With `unknown`, a device on which nothing is recognised counts as data up to its last byte that is not zero; then only
/// its last `tail` bytes are examined for that.
///
/// # Errors
/// Nothing that can be adopted is there, or something else, too; or the device cannot be read.
pub fn adoptable(device: &Device, unknown: bool, tail: u64) -> Result<Adoptable, Error> {
    let place = device.path.display();
    let read = |e: std::io::Error| {
        let what = format!("{place}: cannot be searched for what lies on it: {e}");
        Error::new(ErrorKind::Device, what)
    };
    let file = plain(device, false).map_err(read)?;
    let w = Window::read(&file, device.own_bytes()).map_err(read)?;
    let found = recognise(&w);
    let refused = |what: String| Err(Error::new(ErrorKind::InUse, what));
    let Some(first) = found.first() else {
        if !unknown {
            let free = if tail == 0 {
                String::new()
            } else {
                format!(", and its last {tail} bytes are zeros")
            };
            return refused(format!(
                "{place}: nothing is recognised there: if it holds data that should be adopted as it is{free}, give --force; for a device without data use `isotherm create`"
            ));
        }
        return Ok(Adoptable {
            what: String::from("data of an unknown kind"),
            bytes: end_of_data(&file, device.own_bytes(), tail).map_err(read)?,
            shrink: None,
            sector: 512,
            in_use: false,
        });
    };
    let own = found.iter().find_map(|c| of_kind(&w, c).map(|a| (c, a)));
    let Some((content, own)) = own else {
        return refused(format!(
            "{place}: carries {}: only ext2, ext3, ext4, XFS and btrfs file systems can be adopted, each directly on its device",
            first.what
        ));
    };
    if let Some(other) = found.iter().find(|c| c.what != content.what) {
        return refused(format!(
            "{place}: carries {} and {} (byte {}): it is not clear what its data is; erase the one that is out of date (`wipefs -o {} {place}`)",
            content.what, other.what, other.at, other.at
        ));
    }
    let own = own.map_err(|why| Error::new(ErrorKind::InUse, format!("{place}: {why}")))?;
    if own.bytes > device.own_bytes() {
        return refused(format!(
            "{place}: {} of {} bytes is larger than the device ({} bytes): check it",
            own.what,
            own.bytes,
            device.own_bytes()
        ));
    }
    Ok(own)
}

/// The end of the data among the last `tail` bytes: behind the last byte that is not zero.
fn end_of_data(file: &std::fs::File, bytes: u64, tail: u64) -> std::io::Result<u64> {
    use std::os::unix::fs::FileExt;
    let start = bytes.saturating_sub(tail);
    let mut part = vec![0; (bytes - start) as usize];
    file.read_exact_at(&mut part, start)?;
    let last = part.iter().rposition(|&b| b != 0);
    Ok(start + last.map_or(0, |i| i as u64 + 1))
}

/// The file system whose signature is `content`; `None`: it is none that can be adopted.
fn of_kind(w: &Window, content: &Content) -> Option<Result<Adoptable, String>> {
    let made = match content.what.as_str() {
        "an ext2 file system" | "an ext3 file system" | "an ext4 file system" => ext(w),
        "an XFS file system" => xfs(w),
        "a btrfs file system" => btrfs(w),
        _ => return None,
    };
    Some(made.map(|a| Adoptable {
        what: content.what.clone(),
        ..a
    }))
}

fn ext(w: &Window) -> Result<Adoptable, String> {
    let b = w.get(1024, 1024).ok_or("its superblock cannot be read")?;
    let (shift, incompat) = (le32(b, 0x18), le32(b, 0x60));
    let high = if incompat & EXT_64BIT != 0 {
        le32(b, 0x150)
    } else {
        0
    };
    // The kernel, or e2fsck, has found errors and none has repaired them.
    if u16::from_le_bytes([b[0x3a], b[0x3b]]) & EXT_ERRORS != 0 {
        return Err(has_errors("e2fsck -f"));
    }
    let blocks = u64::from(high) << 32 | u64::from(le32(b, 4));
    let bytes = blocks.checked_mul(1024 << shift.min(6));
    Ok(Adoptable {
        what: String::new(),
        bytes: bytes.ok_or("its superblock states an impossible size")?,
        sector: 1024 << shift.min(6),
        shrink: Some("e2fsck -f DEVICE && resize2fs DEVICE {kib}K"),
        in_use: incompat & EXT_RECOVER != 0,
    })
}

fn xfs(w: &Window) -> Result<Adoptable, String> {
    let b = w.get(0, 512).ok_or("its superblock cannot be read")?;
    let (block, blocks) = (be32(b, 4), be64(b, 8));
    if be64(b, 0x30) == 0 || be64(b, 0x10) != 0 {
        return Err(String::from(
            "its log or its realtime part is on another device: such a file system cannot be adopted",
        ));
    }
    if b[0x65] & 0xf == 5 && be32(b, 0xd8) & XFS_NEEDS_REPAIR != 0 {
        return Err(has_errors("xfs_repair"));
    }
    let bytes = blocks.checked_mul(block.into());
    Ok(Adoptable {
        what: String::new(),
        bytes: bytes.ok_or("its superblock states an impossible size")?,
        sector: u32::from(b[0x66]) << 8 | u32::from(b[0x67]),
        shrink: None,
        in_use: false,
    })
}

fn btrfs(w: &Window) -> Result<Adoptable, String> {
    let b = w
        .get(BTRFS_AT, 4096)
        .ok_or("its superblock cannot be read")?;
    if le64(b, 0x88) != 1 {
        return Err(format!(
            "its btrfs has {} devices: only one on a single device can be adopted",
            le64(b, 0x88)
        ));
    }
    if le64(b, 0x38) & BTRFS_ERRORS != 0 {
        return Err(has_errors("btrfs check"));
    }
    Ok(Adoptable {
        what: String::new(),
        bytes: le64(b, 0xc9 + 8),
        sector: le32(b, 0x90),
        shrink: Some("mount DEVICE /mnt && btrfs filesystem resize {bytes} /mnt && umount /mnt"),
        in_use: false,
    })
}

/// The words about a file system that states that it is damaged.
fn has_errors(check: &str) -> String {
    format!(
        "its file system states that it has errors: check it first (`{check}`), and adopt it when it has none"
    )
}

fn le32(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}
fn be32(b: &[u8], at: usize) -> u32 {
    le32(b, at).swap_bytes()
}
fn le64(b: &[u8], at: usize) -> u64 {
    u64::from(le32(b, at)) | u64::from(le32(b, at + 4)) << 32
}
fn be64(b: &[u8], at: usize) -> u64 {
    le64(b, at).swap_bytes()
}
