//! The contents of a device that will become a member: existing data is not overwritten without `--force`.
//!
//! ```text
//! 0            4 MiB + 64 KiB      64 MiB    256 GiB              size − 1 MiB      size
//! │ head, read whole │ ………………… │ 4 KiB │ … │ 4 KiB │ ………………… │ tail, read whole │
//! ```
//! `table.rs` lists magic numbers at fixed places, `checks.rs` has the formats that need further checks. Erasing clears the same parts, so
//! all recognisable contents are gone, including the second GPT and RAID superblocks at the end.

mod adopt;
mod checks;
mod table;
mod window;

pub use adopt::{Adoptable, adoptable};

use crate::device::Device;
use crate::error::{Error, ErrorKind};
use isotherm_core::store::superblock::{MAGIC, Superblock};
use isotherm_core::store::{BLOCK, Unfinished};
use isotherm_words::printable::printable;
use rustix::fs::OFlags;
use rustix::ioctl::{NoArg, Opcode, ioctl};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use table::At;
use window::Window;

/// Asks the kernel to read the partition table again.
const BLKRRPART: Opcode = 0x125f;
/// Number of found formats that a message names; for more, it states their number.
const NAMED: usize = 4;

/// A format that was found on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// With its article: `an ext4 file system`.
    pub what: String,
    /// Offset of its signature on the device.
    pub at: u64,
}

/// A second descriptor for the same device that uses the page cache and so accepts any offset and length.
fn plain(device: &Device, write: bool) -> io::Result<File> {
    crate::device::reopen(&device.file, write, OFlags::empty())
}

fn recognise(w: &Window) -> Vec<Content> {
    let mut found: Vec<Content> = Vec::new();
    let mut add = |what: String, at: u64| {
        // Two magic numbers of one format at one place count once.
        if !found.iter().any(|c| c.what == what && c.at == at) {
            found.push(Content { what, at });
        }
    };
    if let Some(b) = w.get(0, BLOCK)
        && b[..MAGIC.len()] == MAGIC
    {
        let name = Superblock::decode(b).map(|s| format!(" (`{}`)", printable(&s.name)));
        add(
            format!("a member of a volume{}", name.unwrap_or_default()),
            0,
        );
    }
    if let Some(copy) = w.get(0, BLOCK).and_then(Unfinished::decode) {
        let name = printable(&copy.name);
        let what = format!("an unfinished copy of a member of a volume (`{name}`)");
        add(what, 0);
    }
    if w.get(0, MAGIC.len()).is_some_and(crate::tail::is_label) {
        add(String::from("a member of a volume (its tail)"), 0);
    }
    for (what, at, magic) in table::entries() {
        let at = match *at {
            At::Start(n) => Some(n),
            At::End(n) => w.bytes().checked_sub(n),
        };
        if let Some(at) = at.filter(|at| w.get(*at, magic.len()) == Some(magic)) {
            add((*what).to_owned(), at);
        }
    }
    for (what, at) in checks::all(w) {
        add(what, at);
    }
    found
}

/// The known formats on `device`. An empty list means that nothing was recognised, not that the device is empty.
///
/// # Errors
/// The device cannot be read.
pub fn find_formats(device: &Device) -> io::Result<Vec<Content>> {
    let file = plain(device, false)?;
    Ok(recognise(&Window::read(&file, device.own_bytes())?))
}

/// The unfinished copy that `device` holds, if its first block says so: then nothing on it is needed.
pub fn unfinished(device: &Device) -> Option<Unfinished> {
    let file = plain(device, false).ok()?;
    let mut block = [0; BLOCK];
    file.read_exact_at(&mut block, 0).ok()?;
    Unfinished::decode(&block)
}

/// Refuses a device with recognised contents, unless all of it is an unfinished copy: what is elsewhere on the device was put there since, for
/// example by programs that leave its first block alone.
///
/// # Errors
/// Names the contents and their place, or states that the device cannot be read.
pub fn refuse(device: &Device) -> Result<(), Error> {
    let place = device.path.display();
    let found = find_formats(device).map_err(|e| {
        let what = format!("{place}: cannot be searched for what lies on it: {e}");
        Error::new(ErrorKind::Device, what)
    })?;
    let found = but_the_copy(found, unfinished(device).is_some());
    let Some(first) = found.first() else {
        return Ok(());
    };
    if first.at == 0
        && let Some(rest) = first.what.strip_prefix("a member of a volume")
    {
        let what = format!(
            "{place}: belongs to a volume already{rest}: use another device, or --force to overwrite it"
        );
        return Err(Error::new(ErrorKind::InUse, what));
    }
    let mut words: Vec<String> = found
        .iter()
        .take(NAMED)
        .map(|c| format!("{} (byte {})", c.what, c.at))
        .collect();
    if found.len() > NAMED {
        words.push(format!("{} more", found.len() - NAMED));
    }
    let what = format!(
        "{place}: carries {}: use another device, or --force to overwrite it",
        words.join(", ")
    );
    Err(Error::new(ErrorKind::InUse, what))
}

/// What is not the unfinished copy that the first block states, if it does: its checksum excludes anything else there.
fn but_the_copy(mut found: Vec<Content>, is_copy: bool) -> Vec<Content> {
    found.retain(|c| !is_copy || c.at != 0);
    found
}

/// Erases everything that [`find_formats`] recognises, at any place, and looks again.
///
/// # Errors
/// The device cannot be read or written, or a format is still recognised afterwards.
pub fn erase(device: &Device) -> Result<(), Error> {
    let place = device.path.display();
    let failed = |e: io::Error| {
        let what = format!("{place}: what lies on it cannot be erased: {e}");
        Error::new(ErrorKind::Device, what)
    };
    let file = plain(device, true).map_err(failed)?;
    Window::read(&file, device.own_bytes())
        .and_then(|w| w.erase(&file))
        .map_err(failed)?;
    if device.is_block {
        // Without partitions, or while one is in use (which O_EXCL excludes), it does nothing.
        // SAFETY: the call takes no argument.
        let _ = unsafe { ioctl(&device.file, NoArg::<BLKRRPART>::new()) };
    }
    match find_formats(device).map_err(failed)?.first() {
        None => Ok(()),
        Some(c) => Err(Error::new(
            ErrorKind::Device,
            format!(
                "{place}: {} is still there after it was erased: check the device",
                c.what
            ),
        )),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
