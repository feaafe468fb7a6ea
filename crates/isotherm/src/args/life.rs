//! Options of commands that change what a volume consists of.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand};
use isotherm_classify::classes;

use super::VolumeArgs;
use crate::json::JsonArg;
use crate::member::MemberSpec;
use crate::policy_spec::PolicySpec;
use crate::size;

/// `isotherm adopt`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  umount /data && isotherm adopt v /dev/sda2 --fast /dev/nvme0n1p3\n  isotherm adopt v /dev/sda --tail /dev/sdb1 --fast /dev/nvme0n1p3    # the file system ends where its disk does\n  isotherm adopt --finish v        # from now on writes may stay on flash for a while\n\nThe device keeps its data in place; only its first 4 MiB move to its end, which must be free: the command says how to shrink a file system. With --tail they move to a second device instead, which is needed from then on. `isotherm release v` gives the device back at any time, also if an adoption was interrupted."
)]
pub struct AdoptArgs {
    /// Name or path of the volume: the description goes to VOLUME.toml
    #[arg(value_parser = super::volume_name())]
    pub volume: PathBuf,
    /// The device or file with a file system (ext2, ext3, ext4, XFS, btrfs), which is not mounted
    #[arg(required_unless_present = "finish")]
    pub device: Option<PathBuf>,
    /// Device or file of the fast tier, PATH or PATH:SIZE; SIZE may be a share of the device (10%)
    #[arg(long, value_name = "PATH[:SIZE]", required_unless_present_any = ["finish", "without_flash"])]
    pub fast: Vec<MemberSpec>,
    /// The volume has no flash yet (`isotherm cache VOLUME add` gives it some)
    #[arg(long, conflicts_with = "fast")]
    pub without_flash: bool,
    /// A second, small device or file (5 MiB are enough with the usual extents) that takes what otherwise goes to the end of the device
    #[arg(long, value_name = "PATH")]
    pub tail: Option<PathBuf>,
    /// Extent size, a power of two from 4K to 4M [default: 64K]
    #[arg(long, value_name = "SIZE", value_parser = size::extent)]
    pub extent: Option<u32>,
    /// Policy that keeps copies, with parameters, NAME,KEY=VALUE,... [default: benefit]
    #[arg(long)]
    pub policy: Option<PolicySpec>,
    /// Adopt data of an unknown kind; the end of the device must be free. Overwrite what is on the tail
    #[arg(long)]
    pub force: bool,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
    /// End the trial: a served volume, which has written everything through to its disk since its adoption, may keep writes on flash
    #[arg(long, conflicts_with_all = ["device", "fast", "without_flash", "tail", "extent", "policy", "force", "yes"])]
    pub finish: bool,
    /// Where the result goes.
    #[command(flatten)]
    pub json: JsonArg,
}

/// `isotherm release`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  isotherm stop v && isotherm release v --yes && mount /dev/sdb /data\n\nDirty data is written home first. The flash is empty afterwards. If this is interrupted, the same command goes on."
)]
pub struct ReleaseArgs {
    /// The volume, which is not served.
    #[command(flatten)]
    pub of: VolumeArgs,
    /// Do not ask
    #[arg(long)]
    pub yes: bool,
    /// Also if data was lost with flash, of which the disks have older versions
    #[arg(long)]
    pub accept_loss: bool,
}

/// `isotherm replace`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  isotherm replace v /dev/nvme1n1                       # a cache that was lost\n  isotherm replace v /dev/sdc --member /dev/sda         # a disk that begins to fail: its data is copied\n  isotherm replace v /dev/nvme1n1 --member 0 --empty    # a larger cache, which begins empty\n\nA served volume goes on while a member is copied; requests wait only for the last step. Interrupting the command leaves the server copying; `isotherm status` tells how far it is, and --cancel gives it up."
)]
pub struct ReplaceArgs {
    /// The volume, served or not
    #[arg(value_parser = super::volume_name())]
    pub volume: PathBuf,
    /// The new device or file, PATH or PATH:SIZE; a file that does not exist is created
    #[arg(value_name = "PATH[:SIZE]", required_unless_present = "cancel")]
    pub new: Option<MemberSpec>,
    /// The member to replace: its path, or its place in the list of members [default: the one that is missing]
    #[arg(long, value_name = "MEMBER")]
    pub member: Option<String>,
    /// Begin with an empty device instead of a copy of the member. It must hold nothing that is nowhere else
    #[arg(long)]
    pub empty: bool,
    /// Go on although writes that only the missing member held are lost
    #[arg(long)]
    pub accept_loss: bool,
    /// Overwrite data on the new device
    #[arg(long)]
    pub force: bool,
    /// While the volume is served: bytes to copy per second, whether the member is in use or not [default: as many as it allows while it has
    /// no other work, 4 MiB while it has]
    #[arg(long, value_name = "BYTES", value_parser = size::absolute)]
    pub rate: Option<u64>,
    /// Give up the copy of a member of a served volume that is in progress
    #[arg(long, conflicts_with_all = ["new", "member", "empty", "accept_loss", "force", "rate"])]
    pub cancel: bool,
    /// Where the result goes.
    #[command(flatten)]
    pub json: JsonArg,
}

/// `isotherm cache`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  isotherm cache v remove                   # the disks go on alone; the flash is free\n  isotherm cache v add /dev/nvme1n1p3       # new flash of any size, which begins empty\n  lvextend -L 200G vg/fast && isotherm cache v resize\n\nA served volume goes on meanwhile. `remove` first writes home what only the flash has, which may take a while."
)]
pub struct CacheArgs {
    /// The volume, served or not
    #[arg(value_parser = super::volume_name())]
    pub volume: PathBuf,
    /// What to do.
    #[command(subcommand)]
    pub command: CacheCommand,
}

/// What `isotherm cache` does.
#[derive(Debug, Subcommand)]
pub enum CacheCommand {
    /// Give a volume a flash device or file, which begins empty; other flash stays as it is
    #[command(after_help = "Examples:\n  isotherm cache v add /dev/nvme1n1p3")]
    Add(CacheAddArgs),
    /// Write home what only flash has, and go on without it: all of it, or one device of several
    #[command(
        after_help = "Examples:\n  isotherm cache v remove                   # all flash\n  isotherm cache v remove /dev/nvme1n1p3    # the other flash stays\n\nOf a served volume, Ctrl-C ends only the command: the server goes on and takes the flash out. Of another volume, repeat the command."
    )]
    Remove(CacheRemoveArgs),
    /// Use all of flash devices that are larger now; what they hold stays
    #[command(after_help = "Examples:\n  lvextend -L 200G vg/fast && isotherm cache v resize")]
    Resize(CacheJsonArgs),
    /// Name a device that takes the place of flash that fails while the volume is served
    #[command(
        after_help = "Examples:\n  isotherm cache v spare /dev/nvme2n1p1\n  isotherm cache v spare --none\n\nThe device must hold nothing, now and when it is needed. It begins empty; dirty data that failed flash does not give back is lost all the same (docs/tasks/two-copies.md)."
    )]
    Spare(CacheSpareArgs),
}

/// `isotherm cache VOLUME add`.
#[derive(Debug, Args)]
pub struct CacheAddArgs {
    /// The new device or file, PATH or PATH:SIZE; a file that does not exist is created
    #[arg(value_name = "PATH[:SIZE]")]
    pub new: MemberSpec,
    /// Overwrite data on the new device
    #[arg(long)]
    pub force: bool,
    /// Where the result goes.
    #[command(flatten)]
    pub json: JsonArg,
}

/// `isotherm cache VOLUME remove`.
#[derive(Debug, Args)]
pub struct CacheRemoveArgs {
    /// One of several flash devices, by its path or its place in the list of members; without it, all flash
    #[arg(value_name = "DEVICE")]
    pub device: Option<PathBuf>,
    /// Where the result goes.
    #[command(flatten)]
    pub json: JsonArg,
}

/// `isotherm cache VOLUME spare`.
#[derive(Debug, Args)]
pub struct CacheSpareArgs {
    /// The device or file, which holds nothing
    #[arg(value_name = "DEVICE", required_unless_present = "none")]
    pub device: Option<PathBuf>,
    /// No device any more
    #[arg(long, conflicts_with = "device")]
    pub none: bool,
    /// Where the result goes.
    #[command(flatten)]
    pub json: JsonArg,
}

/// `isotherm cache VOLUME resize`.
#[derive(Debug, Args)]
pub struct CacheJsonArgs {
    /// Where the result goes.
    #[command(flatten)]
    pub json: JsonArg,
}

/// `isotherm clean`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  isotherm clean v        # before the disks are moved, or an image of them is taken\n\nCopies stay on the flash. What is written meanwhile may be dirty afterwards. If this is interrupted, the server goes on."
)]
pub struct CleanArgs {
    /// The volume, which is served.
    #[command(flatten)]
    pub of: VolumeArgs,
}

/// `isotherm warm`.
#[derive(Debug, Args)]
#[command(
    group = clap::ArgGroup::new("what").multiple(false),
    after_help = "Examples:\n  isotherm warm v --metadata       # after an adoption: the next walk over the file system reads nothing from the disk\n  isotherm warm v --file /srv/db/*.ibd\n  isotherm warm v                  # everything, in the order of addresses, while there is room\n\nData is copied while no request needs the disk, into free places on flash only, and evicted like data that was read once. Interrupting the command leaves the server copying; --stop ends it. One thing is copied at a time."
)]
pub struct WarmArgs {
    /// The volume, which is served and keeps copies
    #[arg(value_parser = super::volume_name())]
    pub volume: PathBuf,
    /// Files of a mounted file system on the volume
    #[arg(long, value_name = "PATH", num_args = 1.., group = "what")]
    pub file: Vec<PathBuf>,
    /// Data of these classes: numbers, ranges and names, as in 8-11,directory (`isotherm classes show` lists them)
    #[arg(long, value_name = "LIST", group = "what")]
    pub class: Option<ClassList>,
    /// What the file systems on the volume need to find their files: inodes in use, directories, trees, bitmaps (ext2, ext3, ext4, XFS)
    #[arg(long, group = "what")]
    pub metadata: bool,
    /// End the copying that is going on
    #[arg(long, group = "what")]
    pub stop: bool,
    /// Where the result goes.
    #[command(flatten)]
    pub json: JsonArg,
}

/// Classes of data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassList(pub Vec<u8>);

impl FromStr for ClassList {
    type Err = String;

    fn from_str(text: &str) -> Result<ClassList, String> {
        let mut all = Vec::new();
        for part in text.split(',') {
            // A name may have a dash, too.
            let (from, to) = if let Some(one) = classes::parse(part) {
                (Some(one), Some(one))
            } else {
                let (from, to) = part.split_once('-').unwrap_or((part, ""));
                (classes::parse(from), classes::parse(to))
            };
            let range = from.zip(to).filter(|(a, z)| a <= z);
            let (from, to) = range.ok_or_else(|| {
                format!("class `{part}`: give its number, 0 to 63, a range such as 8-11, or a name such as directory")
            })?;
            all.extend(from..=to);
        }
        Ok(ClassList(all))
    }
}

/// `isotherm doctor`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  isotherm doctor v\n  isotherm doctor v --bundle v.txt    # to report damage: shows what it is about to write, and asks\n\nLooks at the volume, its devices and what is below them (arrays, logical volumes, LUKS, checksums), the SMART data of the drives (with smartctl), and the files that name devices or open them at boot. Nothing is changed. The exit code is 1 if something is wrong, and 0 if there are only risks."
)]
pub struct DoctorArgs {
    /// The volume, served or not.
    #[command(flatten)]
    pub of: VolumeArgs,
    /// Write what a report of damage needs to a new file: description, superblocks, figures, findings, log, versions; no data, no secrets
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub bundle: Option<PathBuf>,
    /// The log of the server in a file, for the bundle [default: the journal]
    #[arg(long, value_name = "FILE", requires = "bundle")]
    pub log: Option<PathBuf>,
    /// Do not ask before the bundle is written
    #[arg(long, requires = "bundle")]
    pub yes: bool,
}

#[cfg(test)]
mod tests {
    use super::ClassList;

    #[test]
    fn classes_are_numbers_ranges_and_names() {
        let list = |text: &str| text.parse::<ClassList>().map(|l| l.0);
        assert_eq!(list("8-10,directory,3"), Ok(vec![8, 9, 10, 6, 3]));
        assert_eq!(list("group-descriptor"), Ok(vec![2]));
        for wrong in ["", "9-8", "64", "x", "1,", "1-"] {
            assert!(list(wrong).is_err(), "{wrong}");
        }
    }
}
