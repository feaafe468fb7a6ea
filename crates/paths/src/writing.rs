//! Files that are written whole or not at all.

use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{FileType, Gid, Stat, Uid, fchown};

use crate::leftovers;
use crate::place::Place;

/// A new file that has no name of its own yet. Dropping it removes the file, unless it was published.
#[derive(Debug)]
pub struct New {
    place: Place,
    name: OsString,
    published: bool,
}

impl New {
    /// Makes the file, which is to be called `file`, with the permissions `mode` less the umask.
    ///
    /// # Errors
    /// The directory cannot be written, or is reached by another user's link (see the crate); `file` is a directory.
    pub fn beside(file: &Path, mode: u32) -> io::Result<(New, File)> {
        New::at(Place::of(file, false)?, mode)
    }

    fn at(place: Place, mode: u32) -> io::Result<(New, File)> {
        if place.stat().map(kind) == Some(FileType::Directory) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let (name, file) = place.at_a_new_name(|name| place.create_as(name, mode))?;
        leftovers::mark(&file);
        let published = false;
        let new = New {
            place,
            name,
            published,
        };
        Ok((new, file))
    }

    /// Gives the file its name, durably. It takes the place of what has that name; a link there is replaced, and a file that has other names,
    /// too, is not changed under them. The contents are the caller's to sync.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn publish(mut self) -> io::Result<()> {
        self.place.rename_from(&self.name)?;
        self.published = true;
        self.place.sync()?;
        leftovers::sweep(&self.place);
        Ok(())
    }
}

impl Drop for New {
    fn drop(&mut self) {
        if !self.published {
            // What is half written helps nobody, and takes space where there is none.
            self.place.remove(&self.name);
        }
    }
}

fn kind(s: Stat) -> FileType {
    FileType::from_raw_mode(s.st_mode)
}

/// Puts a new file in the place of `file`, durably, or leaves everything as it is. `fill` writes the contents. If there was a regular file, the
/// new one keeps its owner and permissions; else it belongs to this process' user and has the permissions `mode` less the umask.
///
/// # Errors
/// As [`New::beside`], and those of `fill`.
pub fn replace(
    file: &Path,
    mode: u32,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    put(Place::of(file, false)?, mode, fill)
}

/// As [`replace`], but a link at the name stays, and the file that it leads to is replaced.
///
/// # Errors
/// As [`replace`].
pub fn replace_behind_links(
    file: &Path,
    mode: u32,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    put(Place::of(file, true)?, mode, fill)
}

fn put(place: Place, mode: u32, fill: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let old = place.stat();
    let (new, mut file) = New::at(place, mode)?;
    fill(&mut file)?;
    if let Some(s) = old.filter(|s| kind(*s) == FileType::RegularFile) {
        file.set_permissions(Permissions::from_mode(s.st_mode & 0o777))?;
        // Only root may give files away; another user's new file stays his own.
        let _ = fchown(
            &file,
            Some(Uid::from_raw(s.st_uid)),
            Some(Gid::from_raw(s.st_gid)),
        );
    }
    file.sync_all()?;
    new.publish()
}

/// Makes the file, which must not exist, not even as a link that leads nowhere, with the permissions `mode` less the umask. Its name is
/// durable, its contents are the caller's to sync.
///
/// # Errors
/// It exists, or as [`New::beside`].
pub fn create(file: &Path, mode: u32) -> io::Result<File> {
    let place = Place::of(file, false)?;
    let made = place.create_as(&place.name, mode)?;
    place.sync()?;
    Ok(made)
}

#[cfg(test)]
mod tests;
