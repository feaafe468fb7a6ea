//! Arguments of the commands that create, serve and query volumes.

use std::path::PathBuf;

use clap::Args;
use isotherm_control::what_if::FastAsk;
use isotherm_core::engine::KNOBS;

use crate::json::JsonArg;
use crate::member::{MemberSpec, Setting};
use crate::policy_spec::PolicySpec;
use crate::size;

/// `isotherm create`.
#[derive(Clone, Debug, Default, Args)]
#[command(
    group = clap::ArgGroup::new("what").required(true).multiple(true).args(["config", "fast", "slow", "tier"]),
    after_help = "Examples:\n  \
    isotherm create v --fast /dev/nvme0n1p3 --slow /dev/sda\n  \
    isotherm create v --fast ssd.img:10% --slow hdd.img:10G --extent 64K --policy greendm,PT=2 --paced slow=wd5000aaks\n  \
    isotherm create v --fast /dev/nvme0n1p3 --slow /dev/sda --slow /dev/sdb --sleep 10m --sheet slow=exos-18tb\n  \
    isotherm create v --slow /dev/sda --without-flash     # flash is added later\n  \
    isotherm create v --fast /dev/nvme0n1p3 --slow s3://bucket/prefix:100T\n  \
    isotherm create v --config v-new.toml"
)]
pub struct CreateArgs {
    /// Name or path of the volume: the description goes to VOLUME.toml
    pub volume: PathBuf,
    /// Description in TOML instead of the options below
    #[arg(long, value_name = "FILE", conflicts_with_all = ["fast", "slow", "tier", "paced", "sheet", "sleep", "extent", "policy"])]
    pub config: Option<PathBuf>,
    /// Device or file of the fast tier, PATH or PATH:SIZE; SIZE may be a share of the slow tier (10%); repeatable
    #[arg(long, value_name = "PATH[:SIZE]")]
    pub fast: Vec<MemberSpec>,
    /// Device or file of the slow tier, PATH or PATH:SIZE; a file that does not exist is created sparse; repeatable. Or an object store, as
    /// s3://BUCKET/PREFIX:SIZE (also gs://, az:// and file://), with `isotherm-store` and the credentials of the environment
    #[arg(long, value_name = "PATH[:SIZE]")]
    pub slow: Vec<MemberSpec>,
    /// Settings of that store: spool, spool_size, order_s, epoch_size, remote_wait_s, cache, grace_s, object_size (see `isotherm-store serve
    /// --help`). They go to VOLUME.store, and all but the last can be changed there; repeatable
    #[arg(long, value_name = "KEY=VALUE", requires = "slow", value_parser = crate::member::key_and_value)]
    pub store: Vec<(String, String)>,
    /// Make a cache volume that has no flash yet (`isotherm cache VOLUME add` gives it some)
    #[arg(long, requires = "slow", conflicts_with_all = ["fast", "tier", "config", "capacity"])]
    pub without_flash: bool,
    /// Device or file of tier N (0 = fastest), for more than two tiers; repeatable
    #[arg(long, value_name = "N=PATH[:SIZE]", value_parser = crate::member::tier)]
    pub tier: Vec<(u8, MemberSpec)>,
    /// Make a tier as slow as a modelled device: TIER=PRESET, TIER is fast, slow or a number; repeatable
    #[arg(long, value_name = "TIER=PRESET", value_parser = crate::member::paced)]
    pub paced: Vec<(String, String)>,
    /// Data sheet of the real devices of a tier: TIER=SHEET, a name of `isotherm devices` or a file as `devices measure` writes it. It
    /// states their energy, wear, starts and power; repeatable
    #[arg(long, value_name = "TIER=SHEET", value_parser = crate::member::sheet)]
    pub sheet: Vec<(String, String)>,
    /// Let disks (all tiers but the fastest) sleep after this time without use: 90s, 10m, 1h. Moves and write-backs wait for a sleeping
    /// disk for up to an hour (sleep_hold_s); their data is on the fast tier alone
    #[arg(long, value_name = "TIME", value_parser = crate::member::duration)]
    pub sleep: Option<f64>,
    /// Extent size, a power of two from 4K to 4M [default: 64K]
    #[arg(long, value_name = "SIZE", value_parser = size::extent)]
    pub extent: Option<u32>,
    /// Policy with parameters, NAME,KEY=VALUE,... [default: benefit; hot-dst-5s if the number of tiers is not two]
    #[arg(long)]
    pub policy: Option<PolicySpec>,
    /// Goal of the policy `benefit`: save time (fast), energy and wake-ups of the disk (quiet), wear of flash (lasting) or money (cheap)
    #[arg(long, value_name = "GOAL", conflicts_with_all = ["policy", "config"], value_parser = isotherm_core::policy::GOALS)]
    pub goal: Option<String>,
    /// Size of the volume with `benefit`: that of the slow tier, and flash holds copies (slow, the default); or that of both tiers together,
    /// and flash also holds data that is nowhere else and is lost if flash fails (all)
    #[arg(long, value_name = "slow|all", conflicts_with_all = ["policy", "config"], value_parser = ["slow", "all"])]
    pub capacity: Option<String>,
    /// Overwrite devices that hold data (a volume, a file system, a partition table, a database); all of it is erased first
    #[arg(long)]
    pub force: bool,
    /// Reserve space for all data of members that are files (for their metadata it is always reserved)
    #[arg(long)]
    pub preallocate: bool,
    /// Show what the slow devices of a cache volume hold at present where nothing was written yet. Without this option they are cleared: at
    /// once where the device can, else by writing zeros, which takes a disk hours. A tiering volume cannot show it: this is refused
    #[arg(long)]
    pub keep: bool,
    /// Where the figures go.
    #[command(flatten)]
    pub json: JsonArg,
}

/// `isotherm serve`.
#[derive(Clone, Debug, Args)]
#[command(
    group = clap::ArgGroup::new("front end").required(true).multiple(true).args(["device", "block_file", "nbd", "ublk", "iscsi", "vhost_user", "loop_device"]),
    after_help = "Examples:\n  isotherm serve v --device                # then: mount /dev/isotherm/v /mnt\n  \
    isotherm serve v --block-file mnt        # then: losetup --direct-io=on -f mnt/v\n  \
    isotherm serve v --ublk                  # then: mkfs.ext4 /dev/isotherm/v\n  \
    isotherm serve v --loop --web 127.0.0.1:9450   # then: http://127.0.0.1:9450/ in a browser\n  \
    isotherm serve v --nbd unix:v.nbd --nbd 127.0.0.1:10809\n  \
    isotherm serve v --iscsi 127.0.0.1:3260 --iscsi-chap secrets   # a line `NAME SECRET` for each initiator\n  \
    isotherm serve v --vhost-user /run/isotherm/v.vhost   # then: qemu-system-x86_64 … -device vhost-user-blk-pci\n  \
    isotherm serve v --nbd 0.0.0.0:10809 --nbd-allow-remote --nbd-tls-cert server-cert.pem \\\n    \
    --nbd-tls-key server-key.pem --nbd-tls-clients ca-cert.pem"
)]
pub struct ServeArgs {
    /// The volume
    #[arg(value_parser = super::volume_name())]
    pub volume: PathBuf,
    /// Serve as the block device /dev/isotherm/NAME, as with --ublk if this kernel can, else as with --loop (root)
    #[arg(long, conflicts_with_all = ["ublk", "loop_device"])]
    pub device: bool,
    /// Show the volume as a file in this empty directory (FUSE)
    #[arg(long, value_name = "DIR")]
    pub block_file: Option<PathBuf>,
    /// Serve NBD on a unix socket (unix:PATH) or on HOST:PORT of this machine; repeatable
    #[arg(long, value_name = "ADDRESS")]
    pub nbd: Vec<String>,
    /// Serve NBD also on addresses that other machines can reach. Clients must use TLS and have a certificate
    #[arg(long, requires_all = ["nbd", "nbd_tls_cert", "nbd_tls_key", "nbd_tls_clients"])]
    pub nbd_allow_remote: bool,
    /// Certificate of this server (PEM). With it, every TCP client must use TLS; unix sockets do not change
    #[arg(long, value_name = "FILE", requires_all = ["nbd", "nbd_tls_key", "nbd_tls_clients"])]
    pub nbd_tls_cert: Option<PathBuf>,
    /// Its private key (PEM, without a password)
    #[arg(long, value_name = "FILE", requires = "nbd_tls_cert")]
    pub nbd_tls_key: Option<PathBuf>,
    /// Certificate of the authority that signs clients' certificates (PEM): every client with such a certificate may read and write the
    /// volume
    #[arg(long, value_name = "FILE", requires = "nbd_tls_cert")]
    pub nbd_tls_clients: Option<PathBuf>,
    /// Serve as the block device /dev/ublkbN, with the link /dev/isotherm/NAME (root; Linux 6.5 with ublk_drv)
    #[arg(long)]
    pub ublk: bool,
    /// Number of queues of that device; one thread serves all of them
    #[arg(long, value_name = "N", default_value_t = 1, requires = "ublk", value_parser = clap::value_parser!(u16).range(1..=16))]
    pub ublk_queues: u16,
    /// Remove that device if this program is killed: its users get errors then. Without this option the device stays, its users wait for
    /// the next `serve`, and it finds every write that was answered
    #[arg(long, requires = "ublk")]
    pub ublk_no_recovery: bool,
    /// Let the members read and write the memory of that device's users directly, without a copy, if the kernel can (Linux 6.16). Without
    /// this option, or where the kernel cannot, all data is copied once
    #[arg(long, requires = "ublk")]
    pub ublk_zero_copy: bool,
    /// Serve as an iSCSI target on HOST:PORT of this machine; repeatable
    #[arg(long, value_name = "ADDRESS")]
    pub iscsi: Vec<String>,
    /// Name of that target [default: iqn.2026-01.local.isotherm:NAME]
    #[arg(long, value_name = "IQN", requires = "iscsi")]
    pub iscsi_name: Option<String>,
    /// Only initiators with a name and secret in this file may log in (CHAP): lines NAME SECRET, and mutual NAME SECRET for the target
    #[arg(long, value_name = "FILE", requires = "iscsi")]
    pub iscsi_chap: Option<PathBuf>,
    /// Serve iSCSI also on addresses that other machines can reach. There is no encryption: use it only in a private network
    #[arg(long, requires_all = ["iscsi", "iscsi_chap"])]
    pub iscsi_allow_remote: bool,
    /// Serve a virtual machine as a virtio disk over vhost-user on this unix socket, to which only the user of this program may connect
    #[arg(long, value_name = "PATH")]
    pub vhost_user: Option<PathBuf>,
    /// Show the volume as a loop device under the stable name /dev/isotherm/NAME (root); it is removed at the end
    #[arg(long = "loop")]
    pub loop_device: bool,
    /// Serve metrics for Prometheus on unix:PATH or 127.0.0.1:PORT, as /metrics
    #[arg(long, value_name = "ADDRESS", value_parser = isotherm_web::local_address)]
    pub metrics: Option<isotherm_web::Address>,
    /// Show the volume in a browser: 127.0.0.1:PORT or unix:PATH; other addresses need --web-tls-cert and --web-token
    #[arg(long, value_name = "ADDRESS")]
    pub web: Option<isotherm_web::Address>,
    /// Access to the web view.
    #[command(flatten)]
    pub web_view: WebArgs,
    /// Run PROGRAM when the volume's health changes, with two words: the volume and well, degraded, failing or failed. It can read the object
    /// `health` of `status --json` from its standard input
    #[arg(long, value_name = "PROGRAM")]
    pub on_event: Option<PathBuf>,
    /// Wait N seconds for missing members
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub wait: u64,
    /// Refuse writes; without a member, serve the data that survives
    #[arg(long)]
    pub read_only: bool,
    /// Serve although a missing cache held the newest data of some ranges: from now on these ranges have the older data of the slow tier, also
    /// those that were lost earlier and are listed by `status`. With --read-only nothing is changed, and reads of ranges that are known to be lost fail
    #[arg(long)]
    pub accept_loss: bool,
    /// Go on with the disks of a cache volume alone: its flash is left out, even if it is there, and no part of the volume from then on. What
    /// only flash had is lost: reads of it fail until it is written again
    #[arg(long)]
    pub without_flash: bool,
    /// After SIGTERM, SIGINT or SIGHUP, wait N seconds for the users of the volume to leave; a second signal ends at once
    #[arg(long, value_name = "SECONDS", default_value_t = 80, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub stop_timeout: u64,
    /// Record all calls of the engine and its decisions to FILE, which must not exist (see `replay-events`)
    #[arg(long, value_name = "FILE")]
    pub events: Option<PathBuf>,
    /// End this recording, not the service, when the file has this size
    #[arg(long, value_name = "SIZE", default_value = "4G", requires = "events", value_parser = size::absolute)]
    pub events_limit: u64,
}

/// Access to the web view: for reading, and for changes.
#[derive(Clone, Debug, Args)]
pub struct WebArgs {
    /// Users with the token may change parameters and policies in the web view; without this option it only shows figures
    #[arg(long, requires = "web_token")]
    pub web_control: bool,
    /// File with the token; it is created if it does not exist. On addresses that other machines reach, nothing is shown without it
    #[arg(long, value_name = "FILE")]
    pub web_token: Option<PathBuf>,
    /// Certificate of the web view (PEM): then it uses HTTPS
    #[arg(long, value_name = "FILE", requires = "web_tls_key")]
    pub web_tls_cert: Option<PathBuf>,
    /// Its private key (PEM, without a password)
    #[arg(long, value_name = "FILE", requires = "web_tls_cert")]
    pub web_tls_key: Option<PathBuf>,
}

/// `isotherm web`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  isotherm web                             # then: http://127.0.0.1:9450/\n  \
    isotherm web --web-control --web-token ~/.isotherm-token\n  \
    isotherm web --listen 192.168.1.2:9450 --web-token token --web-tls-cert cert.pem --web-tls-key key.pem"
)]
pub struct MachineWebArgs {
    /// Address: 127.0.0.1:PORT or unix:PATH; other addresses need --web-tls-cert and --web-token
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9450")]
    pub listen: isotherm_web::Address,
    /// Access to the web view.
    #[command(flatten)]
    pub web: WebArgs,
}

/// A command about a volume.
#[derive(Debug, Args)]
pub struct VolumeArgs {
    /// The volume
    #[arg(value_parser = super::volume_name())]
    pub volume: PathBuf,
    /// Where the figures go.
    #[command(flatten)]
    pub json: JsonArg,
}

/// `isotherm stop`.
#[derive(Debug, Args)]
pub struct StopArgs {
    /// The volume.
    #[command(flatten)]
    pub of: VolumeArgs,
    /// If the volume has not ended by then, as when a member hangs, kill its server: what was
    /// flushed is safe, and the next `serve` recovers, as after a power loss
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub within: Option<u64>,
    /// Time to wait for the end. Then the command fails, and says what the volume waits for; the
    /// volume goes on ending
    #[arg(long, value_name = "SECONDS", default_value_t = STOP_WAIT, value_parser = clap::value_parser!(u64).range(1..), conflicts_with = "within")]
    pub wait: u64,
}

/// As long as the service manager waits (`TimeoutStopSec` of the unit).
const STOP_WAIT: u64 = 180;

/// `isotherm status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// The volume.
    #[command(flatten)]
    pub of: VolumeArgs,
    /// Print every key, one on each line
    #[arg(long)]
    pub all: bool,
}

/// `isotherm check`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  isotherm check v\n  isotherm check v --repair   # of two copies the damaged one is written anew\n  isotherm check v --data     # takes as long as reading all data"
)]
pub struct CheckArgs {
    /// The volume.
    #[command(flatten)]
    pub of: VolumeArgs,
    /// Repair metadata that is damaged on one copy and whole on another, then check
    #[arg(long)]
    pub repair: bool,
    /// Read all data as well, to find places that cannot be read any more, and compare clean copies with the data on the slowest tier. While
    /// the volume is served, its data is read and nothing else is checked; the devices are read while they have no other work, or 4 MiB per
    /// second while they have. Ctrl-C ends it
    #[arg(long)]
    pub data: bool,
    /// While the volume is served: bytes of data to read per second, whether the devices are in use or not
    #[arg(long, value_name = "BYTES", requires = "data", value_parser = size::absolute)]
    pub rate: Option<u64>,
    /// While the volume is served: read from sleeping disks as well. Otherwise the check waits until requests have woken them
    #[arg(long, requires = "data")]
    pub wake: bool,
}

/// `isotherm grow`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  lvextend -L +1T vg/slow && isotherm grow v\n  isotherm replace v /dev/sdc --member /dev/sda && isotherm grow v   # after a move to a larger disk\n\nA volume may be in service: its requests wait meanwhile."
)]
pub struct GrowArgs {
    /// The volume, served or not.
    #[command(flatten)]
    pub of: VolumeArgs,
}

/// `isotherm stats`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  isotherm stats v\n  isotherm stats v --watch=5\n  isotherm stats v --all | grep refused"
)]
pub struct StatsArgs {
    /// The volume.
    #[command(flatten)]
    pub of: VolumeArgs,
    /// Print every exact figure since the start of the service, one on each line
    #[arg(long)]
    pub all: bool,
    /// Repeat every N seconds with the rates of that time, until Ctrl-C
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true, default_missing_value = "2", conflicts_with_all = ["all", "json"], value_parser = crate::member::seconds)]
    pub watch: Option<f64>,
}

/// `isotherm top`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  isotherm top\n  isotherm top v --every 1\n  isotherm top v --plain --count 1   # lines, for screen readers and logs"
)]
pub struct TopArgs {
    /// The volume, which must be served [default: all of this machine]
    #[arg(value_parser = super::volume_name())]
    pub volume: Option<PathBuf>,
    /// Seconds between two updates
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = crate::member::seconds)]
    pub every: f64,
    /// Print lines instead of drawing; this is the default if the output is not a terminal
    #[arg(long)]
    pub plain: bool,
    /// With --plain: end after N updates
    #[arg(long, value_name = "N", requires = "plain", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
}

/// `isotherm why`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  isotherm why v 1536M\n  isotherm why v --file /mnt/db/base.dat   # the volume holds the file system"
)]
pub struct WhyArgs {
    /// The volume, which must be served
    #[arg(value_parser = super::volume_name())]
    pub volume: PathBuf,
    /// Byte of the volume (64K, 3G or plain)
    #[arg(required_unless_present = "file", conflicts_with = "file", value_parser = crate::member::offset)]
    pub offset: Option<u64>,
    /// A file in the mounted file system that the volume holds: shows the place of its parts
    #[arg(long, value_name = "PATH")]
    pub file: Option<PathBuf>,
    /// Print every key, one on each line
    #[arg(long, conflicts_with = "file")]
    pub all: bool,
    /// Where the figures go.
    #[command(flatten)]
    pub json: JsonArg,
}

/// `isotherm what-if`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  isotherm what-if v                  # the present policy by size of flash, and other policies\n  isotherm what-if v --fast +100G     # with 100 GiB more\n  isotherm what-if v --policy lru\n\nThe server plays a sample of all requests on models of the flash, while it serves. Ranges hold in 95 of 100 cases. 99th percentiles, power, wear and money are not predicted."
)]
pub struct WhatIfArgs {
    /// The volume, which must be served, and must be a cache volume
    #[arg(value_parser = super::volume_name())]
    pub volume: PathBuf,
    /// This much flash in all, or so much more with +
    #[arg(long, value_name = "[+]SIZE", conflicts_with = "policy", value_parser = fast_ask)]
    pub fast: Option<FastAsk>,
    /// Another policy with the flash of today
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// Where the figures go.
    #[command(flatten)]
    pub json: JsonArg,
}

fn fast_ask(text: &str) -> Result<FastAsk, size::SizeError> {
    let more = text.strip_prefix('+');
    Ok(FastAsk {
        bytes: size::absolute(more.unwrap_or(text))?,
        more: more.is_some(),
    })
}

/// `isotherm set`.
#[derive(Debug, Args)]
#[command(
    after_help = set_help()
)]
pub struct SetArgs {
    /// The volume, which must be served
    #[arg(value_parser = super::volume_name())]
    pub volume: PathBuf,
    /// Parameters of the policy and knobs of the engine, of which all are set or none; or policy=NAME,KEY=VALUE,... by itself
    #[arg(required = true, value_name = "KEY=VALUE", value_parser = crate::member::setting)]
    pub values: Vec<Setting>,
    /// Where the figures go.
    #[command(flatten)]
    pub json: JsonArg,
}

/// `isotherm record`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  isotherm record v --out today.parquet --seconds 3600\n  \
    isotherm record v --events --out run.events --limit 1G   # then: isotherm replay-events run.events"
)]
pub struct RecordArgs {
    /// The volume, which must be served
    #[arg(value_parser = super::volume_name())]
    pub volume: PathBuf,
    /// File to write, a trace (Parquet) unless --events is given; it must not exist
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Record all calls of the engine and its decisions, for `replay-events`
    #[arg(long)]
    pub events: bool,
    /// Stop when the events file has this size
    #[arg(long, value_name = "SIZE", default_value = "4G", requires = "events", value_parser = size::absolute)]
    pub limit: u64,
    /// Stop after N seconds; without this option, SIGINT (Ctrl-C) or SIGTERM stops it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=31_536_000))]
    pub seconds: Option<u64>,
    /// Where the figures go.
    #[command(flatten)]
    pub json: JsonArg,
}

/// `isotherm find`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  isotherm find\n  isotherm find /dev/sda /dev/nvme0n1p3 > v.toml"
)]
pub struct FindArgs {
    /// Devices or files that may belong to volumes [default: all block devices, and the files in this directory]
    #[arg(value_name = "DEVICE")]
    pub devices: Vec<PathBuf>,
    /// Where the list goes.
    #[command(flatten)]
    pub json: JsonArg,
}

/// Examples of `set`, and the knobs that every policy shares.
fn set_help() -> String {
    let knobs: Vec<&str> = KNOBS.iter().map(|k| k.name).collect();
    format!(
        "Examples:\n  isotherm set v PT=2 TW=30 move_bytes_per_s=50M\n  isotherm set v policy=lru\n  \
         isotherm set v write-mode=write-around\n  isotherm set v wear_bytes_per_day=100G sleep_hold_s=3600\n  isotherm set v sleep_starts_per_day=20 sleep_wait_share=0.01\n\n\
         The engine's own, for every policy (docs/reference.md says units and ranges): {}.\n\n\
         A policy or a write mode takes over at once (a cache volume takes no policy that places homes); what a mode leaves dirty no longer is written home in the background. \
         What it has no use for (copies, or homes on the fast tier) is given up in the background; \
         `isotherm stats` shows under `copies` how far that is.",
        knobs.join(", ")
    )
}
