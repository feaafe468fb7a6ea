//! Arguments of the commands for volumes as part of a machine.

use std::path::PathBuf;

use clap::Args;

use crate::json::JsonArg;

/// `isotherm list`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  isotherm list\n  isotherm list --json | jq -r '.[] | select(.degraded) | .name'"
)]
pub struct VolumesArgs {
    /// Also search all block devices for volumes that have no description here; sleeping disks are not woken
    #[arg(long)]
    pub all: bool,
    /// Where the list goes.
    #[command(flatten)]
    pub json: JsonArg,
}

/// `isotherm assemble`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  isotherm assemble                    # which volumes of /etc/isotherm are complete?\n  \
    isotherm assemble --start /dev/sda   # what udev does when a member appears\n  \
    isotherm assemble --from-store s3://bucket/prefix --volume v   # on another machine, after the loss of the first"
)]
pub struct AssembleArgs {
    /// Only volumes to which these devices belong [default: all with a description]
    #[arg(value_name = "DEVICE")]
    pub devices: Vec<PathBuf>,
    /// Start the service isotherm@NAME of each volume that is complete and not served
    #[arg(long)]
    pub start: bool,
    /// Take the object store at this URL, whose machine is gone, and describe the volume on it, which goes on without its flash. What only
    /// that machine had is missing, and if it still runs, it can write no more
    #[arg(long, value_name = "URL", requires = "volume", conflicts_with_all = ["devices", "start"])]
    pub from_store: Option<String>,
    /// Name or path of that volume: the description goes to VOLUME.toml
    #[arg(long, value_name = "VOLUME", requires = "from_store")]
    pub volume: Option<PathBuf>,
    /// Do not ask before the store is taken
    #[arg(long, requires = "from_store")]
    pub yes: bool,
    /// Where the list goes.
    #[command(flatten)]
    pub json: JsonArg,
}

/// `isotherm export`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  isotherm export v > like-v.toml   # then: create w --config like-v.toml"
)]
pub struct ExportArgs {
    /// The volume
    #[arg(value_parser = super::volume_name())]
    pub volume: PathBuf,
}

/// `isotherm fstab`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  isotherm fstab v /srv | sudo tee -a /etc/fstab")]
pub struct FstabArgs {
    /// The volume; its description must be in /etc/isotherm
    #[arg(value_parser = super::volume_name())]
    pub volume: PathBuf,
    /// Mount point of its file system
    pub mountpoint: PathBuf,
    /// Type of the file system
    #[arg(long = "type", value_name = "TYPE", default_value = "auto")]
    pub fs_type: String,
    /// Further mount options, joined by commas
    #[arg(long, short = 'o', value_name = "OPTIONS", default_value = "defaults")]
    pub options: String,
}

/// `isotherm mount-helper`, which `mount.isotherm` runs.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  mount -t isotherm v /mnt   # runs: mount.isotherm v /mnt -o rw"
)]
pub struct MountHelperArgs {
    /// The volume
    #[arg(value_parser = super::volume_name())]
    pub volume: PathBuf,
    /// Mount point of its file system
    pub mountpoint: PathBuf,
    /// Options for mount(8), joined by commas; `fstype=TYPE` names the file system on the volume
    #[arg(short, value_name = "OPTIONS", action = clap::ArgAction::Append)]
    pub o: Vec<String>,
    /// Print each step
    #[arg(short)]
    pub verbose: bool,
    /// Accept unknown options
    #[arg(short)]
    pub sloppy: bool,
    /// Do not mount
    #[arg(short = 'f')]
    pub fake: bool,
    /// Do not write /etc/mtab (it is never written)
    #[arg(short)]
    pub no_mtab: bool,
    /// Type as mount(8) passes it: `isotherm` or `isotherm.TYPE`
    #[arg(short = 't', value_name = "TYPE")]
    pub of_type: Option<String>,
}

/// `isotherm policies`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  isotherm policies\n  isotherm policies greendm\n  isotherm policies --json"
)]
pub struct PoliciesArgs {
    /// Show one policy in full: its effect, its parameters and its source
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Where the list goes.
    #[command(flatten)]
    pub json: JsonArg,
}
