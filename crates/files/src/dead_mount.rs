//! A mount whose server was killed stays in the tree: every call on it fails with ENOTCONN. The next mount at that place removes it.

use crate::settings::SOURCE;
use isotherm_paths::Mount;
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// Whether an error is that of a mount without a server.
pub(crate) fn is_cut(e: &std::io::Error) -> bool {
    e.raw_os_error() == Some(Errno::NOTCONN.raw_os_error())
}

/// Whether this program made the mount: it has the source that this program states.
pub(crate) fn is_ours(mount: &Mount) -> bool {
    mount.kind.starts_with("fuse")
        && mount
            .source
            .as_os_str()
            .as_bytes()
            .starts_with(SOURCE.as_bytes())
}

/// Whether the topmost mount at `dir` is one of this program.
fn is_ours_on_top(mounts: &[Mount], dir: &Path) -> bool {
    mounts.iter().rfind(|m| m.point == dir).is_some_and(is_ours)
}

/// Removes the mount at `dir`, which has no server any more, if this program made it. Returns whether it did.
pub(crate) fn clear(dir: &Path) -> bool {
    // The mount itself cannot be resolved.
    let Some(dir) = std::path::absolute(dir).ok().and_then(|dir| {
        let above = dir.parent()?.canonicalize().ok()?;
        Some(above.join(dir.file_name()?))
    }) else {
        return false;
    };
    if !is_ours_on_top(&isotherm_paths::mounts().unwrap_or_default(), &dir) {
        return false;
    }
    let how = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
    match rustix::mount::unmount(&dir, how) {
        Err(Errno::PERM) => {
            let mut helper = Command::new("fusermount3");
            helper.args(["-uz", "--"]).arg(&dir).stderr(Stdio::null());
            helper.status().is_ok_and(|s| s.success())
        }
        done => done.is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_mount_of_this_program_on_top_is_ours() {
        let line =
            |point: &str, kind: &str| format!("36 35 0:42 / {point} rw shared:1 - {kind} rw\n");
        let ours = "fuse isotherm:/a";
        let dir = Path::new("/a b");
        for (table, is) in [
            (line("/a\\040b", ours), true),
            (line("/a\\040b", "fuse.x isotherm:/a"), true),
            (line("/a\\040b", "fuse.sshfs host:/a"), false),
            (line("/a", ours), false),
            (
                line("/a\\040b", ours) + &line("/a\\040b", "ext4 /dev/x"),
                false,
            ),
            (String::new(), false),
        ] {
            let mounts = isotherm_paths::parse_mounts(table.as_bytes());
            assert_eq!(is_ours_on_top(&mounts, dir), is, "{table}");
        }
    }
}
