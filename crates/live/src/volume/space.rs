//! Space for members that are files, reserved on their file systems.

use crate::device::Device;
use crate::error::{Error, ErrorKind};
use isotherm_core::MemberId;
use isotherm_core::store::layout::HEAD_BLOCKS;
use isotherm_core::store::{BLOCK, Superblock};

/// Reserves space for the metadata of every member, and with `all` for its data: metadata must never meet a full file system. Returns
/// messages for people if this cannot be guaranteed.
pub(super) fn reserve_space(
    devices: &[Option<Device>],
    sb: &Superblock,
    all: bool,
) -> Result<Option<String>, Error> {
    let mut unable = None;
    for (i, d) in devices.iter().enumerate() {
        let Some(d) = d else { continue };
        let what = if all { "the member" } else { "its metadata" };
        let mut allocated = true;
        for (from, to) in ranges(sb, i, all) {
            let bytes = to - from;
            allocated &= d.allocate(from..to).map_err(|e| {
                let place = d.path.display();
                let what = format!("{place}: no room for {what} ({bytes} bytes): {e}");
                Error::new(ErrorKind::Device, what)
            })?;
        }
        if !allocated {
            unable = Some(format!(
                "{}: its file system cannot set room aside: keep some free, a full one fails the volume",
                d.path.display()
            ));
        }
    }
    Ok(unable)
}

/// The ranges of metadata on a member, as start and end, or with `all` its whole length.
fn ranges(sb: &Superblock, member: usize, all: bool) -> Vec<(u64, u64)> {
    let m = &sb.members[member];
    if all {
        Vec::from([(0, m.bytes)])
    } else if sb.is_disk(MemberId(member as u8)) {
        vec![(0, HEAD_BLOCKS * BLOCK as u64), (m.behind_at, m.bytes)]
    } else {
        let behind = (m.behind_at > 0).then_some((m.behind_at, m.bytes));
        std::iter::once((0, m.data_offset)).chain(behind).collect()
    }
}
