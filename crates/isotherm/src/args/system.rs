//! Arguments of the commands that make volumes part of a machine.

use std::path::PathBuf;

use clap::Args;

use crate::json::JsonArg;

/// `isotherm list`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  isotherm list\n  isotherm list --json | jq -r '.[] | select(.degraded) | .name'"
)]
pub struct VolumesArgs {
    /// Also look on all block devices for volumes that have no description here; disks that sleep are not woken
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
    isotherm assemble --start /dev/sda   # what udev does when a member appears"
)]
pub struct AssembleArgs {
    /// Only volumes that these devices belong to [default: all that have a description]
    #[arg(value_name = "DEVICE")]
    pub devices: Vec<PathBuf>,
    /// Start the service isotherm@NAME of each volume that is complete and not served
    #[arg(long)]
    pub start: bool,
    /// Where the list goes.
    #[command(flatten)]
    pub json: JsonArg,
}

/// `isotherm fstab`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  isotherm fstab v /srv | sudo tee -a /etc/fstab")]
pub struct FstabArgs {
    /// The volume, which has its description in /etc/isotherm
    #[arg(value_parser = super::volume_name())]
    pub volume: PathBuf,
    /// Where its file system is to be mounted
    pub mountpoint: PathBuf,
    /// Type of the file system
    #[arg(long = "type", value_name = "TYPE", default_value = "auto")]
    pub fs_type: String,
    /// Further mount options, joined by commas
    #[arg(long, short = 'o', value_name = "OPTIONS", default_value = "defaults")]
    pub options: String,
}

/// `isotherm mount-helper`, which is what `mount.isotherm` stands for.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  mount -t isotherm v /mnt   # runs: mount.isotherm v /mnt -o rw"
)]
pub struct MountHelperArgs {
    /// The volume
    #[arg(value_parser = super::volume_name())]
    pub volume: PathBuf,
    /// Where to mount its file system
    pub mountpoint: PathBuf,
    /// Options for mount(8), joined by commas; `fstype=TYPE` names the file system on the volume
    #[arg(short, value_name = "OPTIONS", action = clap::ArgAction::Append)]
    pub o: Vec<String>,
    /// Say what is done
    #[arg(short)]
    pub verbose: bool,
    /// Take options that are not known
    #[arg(short)]
    pub sloppy: bool,
    /// Do not mount
    #[arg(short = 'f')]
    pub fake: bool,
    /// Do not write /etc/mtab; nothing writes it
    #[arg(short)]
    pub no_mtab: bool,
    /// Type, as mount(8) says it: `isotherm` or `isotherm.TYPE`
    #[arg(short = 't', value_name = "TYPE")]
    pub of_type: Option<String>,
}

/// `isotherm generate`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  isotherm generate target/generated")]
pub struct GenerateArgs {
    /// Where: man pages go to DIR/man, completions of bash, zsh and fish to DIR/completions, the reference to DIR/reference.md
    pub dir: PathBuf,
}
