//! The settings of a mount, and the refusal to serve with them.

use crate::rules::Rule;
use crate::tree::Tier;
use std::path::PathBuf;

/// The default preset.
pub const DEFAULT_POLICY: &str = "benefit";

/// The start of the source of a mount of this program in the mount table; the fastest tier follows.
pub(crate) const SOURCE: &str = "isotherm:";

/// The rule that chooses the disk of a new file, or of one that moves to a tier of several disks.
///
/// Only disks that answer, are below their upper mark and have the space that the file needs are candidates; if there is none, those with
/// the space, and if there is none of these, all that answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Create {
    /// The first disk that has the directory of the file; if none has, the one with the most free space. So the files of one directory wake
    /// one disk.
    #[default]
    SameDirectory,
    /// The disk with the most free space.
    MostFree,
    /// The disk of which the largest part is free.
    PercentFree,
}

/// The settings of heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadSettings {
    /// Number of bytes that are kept of each file; 0: none.
    pub bytes: u64,
    /// Share of the fastest tier that heads may take, in per cent.
    pub percent: u8,
}

impl Default for HeadSettings {
    fn default() -> HeadSettings {
        HeadSettings {
            bytes: 0,
            percent: 5,
        }
    }
}

/// The settings of ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeSettings {
    /// Share of the fastest tier that ranges may take, in per cent; 0: there are none.
    pub percent: u8,
    /// Files of at least so many bytes have ranges.
    pub from: u64,
}

impl Default for RangeSettings {
    fn default() -> RangeSettings {
        RangeSettings {
            percent: 25,
            from: 64 << 20,
        }
    }
}

impl RangeSettings {
    /// Whether a file of that size on that tier has ranges.
    pub(crate) fn takes(&self, tier: Tier, bytes: u64) -> bool {
        self.percent > 0 && tier > 0 && bytes >= self.from
    }
}

/// The path of reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Io {
    /// Through the kernel's cache and this program. Open files can be moved.
    Cached,
    /// The same, and the kernel also caches written data (its writeback cache) and manages sizes and modification times.
    Writeback,
    /// The kernel itself reads and writes the file on the tier. Open files are not moved.
    Passthrough,
    /// As `Passthrough`, but only the handles for reading. Writes go through this program, except to the slowest tier.
    PassthroughReads,
}

impl Io {
    /// As answers have it.
    pub fn answer(self) -> isotherm_answers::files::Io {
        use isotherm_answers::files::Io as Answer;
        match self {
            Io::Cached => Answer::Cached,
            Io::Writeback => Answer::Writeback,
            Io::Passthrough => Answer::Passthrough,
            Io::PassthroughReads => Answer::PassthroughReads,
        }
    }
    /// Whether the kernel itself may read files.
    pub fn passes(self) -> bool {
        matches!(self, Io::Passthrough | Io::PassthroughReads)
    }
}

/// The settings of a mount.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The directories of the tiers, fastest first.
    pub tiers: Vec<PathBuf>,
    /// Further disks of the slowest tier.
    pub more_slow: Vec<PathBuf>,
    /// Chooses the disk of a file within a tier of several.
    pub create: Create,
    /// A preset of the core, with its parameters.
    pub policy: String,
    /// Low and high mark in per cent: a tier above the high mark spills, and is emptied to the low mark.
    pub marks: (u8, u8),
    /// Most bytes of files on each tier.
    pub quotas: Vec<Option<u64>>,
    /// Rules, which precede the policy.
    pub rules: Vec<Rule>,
    /// Whether files are moved automatically.
    pub moves: bool,
    /// Whether to serve even if a disk other than the fastest tier's is absent.
    pub degraded: bool,
    /// Whether to accept the directories as the tiers from now on, even if they differ from the last mount.
    pub accept: bool,
    /// Whether policies that keep copies get copies: the file stays at home. If not, it is moved where they want a copy.
    pub copies: bool,
    /// Heads of files of slower tiers that are kept on the fastest.
    pub heads: HeadSettings,
    /// With copies: the ranges of large files that are kept on the fastest tier. Such files are not copied as a whole.
    pub ranges: RangeSettings,
    /// For tests: move files to random tiers, without end, with this seed.
    pub chaos: Option<u64>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            tiers: Vec::new(),
            more_slow: Vec::new(),
            create: Create::default(),
            policy: DEFAULT_POLICY.into(),
            marks: (80, 90),
            quotas: Vec::new(),
            rules: Vec::new(),
            moves: true,
            degraded: false,
            accept: false,
            copies: false,
            heads: HeadSettings::default(),
            ranges: RangeSettings::default(),
            chaos: None,
        }
    }
}

impl Settings {
    /// The ranges of this mount: none without copies.
    pub(crate) fn ranges_wanted(&self) -> RangeSettings {
        RangeSettings {
            percent: if self.copies { self.ranges.percent } else { 0 },
            ..self.ranges
        }
    }
}

/// The reason why tiers cannot be served, in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(pub String);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

/// A refusal with a message.
pub(crate) fn refuse<T>(text: impl Into<String>) -> Result<T, Refused> {
    Err(Refused(text.into()))
}
