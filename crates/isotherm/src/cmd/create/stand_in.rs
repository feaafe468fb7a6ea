//! A cache volume that has no flash yet. It is made with a small file in the place of its flash, which is taken out at once, as `isotherm cache
//! remove` takes out any flash.

use std::path::{Path, PathBuf};

use isotherm_live::volume::description;
use isotherm_live::{Volume, VolumeConfig};

use crate::Failure;
use crate::member::MemberSpec;
use crate::size::Size;

/// Enough for the metadata and some extents of any size.
const BYTES: u64 = 64 << 20;

fn place(volume: &Path) -> PathBuf {
    let mut name = volume.file_name().unwrap_or_default().to_owned();
    name.push(".no-flash");
    volume.with_file_name(name)
}

/// The file. It is beside the description.
///
/// # Errors
/// There is such a file.
pub fn of(volume: &Path) -> Result<MemberSpec, Failure> {
    let path = place(volume);
    if path.exists() {
        let why = "exists, and is to stand for the flash while the volume is made: remove it";
        return Err(Failure::failed(format!("{}: {why}", path.display())));
    }
    Ok(MemberSpec {
        path,
        size: Some(Size::Bytes(BYTES)),
    })
}

/// Takes the file out of the volume that was made, and removes it. Returns messages for people.
///
/// # Errors
/// The volume is there, and has this file as its flash.
pub fn take_out(volume: &Path) -> Result<Vec<String>, Failure> {
    let (v, path) = (volume.display(), place(volume));
    let failed = |e: &dyn std::fmt::Display| {
        let what = "has a small file as its flash, which could not be taken out";
        Failure::failed(format!("{v}: {what}: `isotherm cache {v} remove`: {e}"))
    };
    let (former, mut notes) = Volume::remove_flash(volume).map_err(|e| failed(&e))?;
    let file = description(volume);
    let config = VolumeConfig::load(&file).map_err(|e| failed(&e))?;
    notes.extend(former.erase(&config, &file));
    if let Err(e) = std::fs::remove_file(&path) {
        notes.push(format!(
            "{}: is not needed any more, and cannot be removed: {e}",
            path.display()
        ));
    }
    Ok(notes)
}
