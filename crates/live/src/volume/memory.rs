//! The memory of a volume's map, computed, reported and checked before it is allocated, because an allocation that fails ends the process.

use crate::error::{Error, ErrorKind};
use isotherm_core::geometry::Geometry;
use isotherm_core::map::ExtentMap;
use isotherm_core::volume::PAST_FLOOR;
use std::fs;
use std::path::Path;

/// Memory of the policies that need most, besides the map, in bytes: per extent of a tiering volume, per fast slot of a cache volume (where
/// they remember as many extents without a copy as flash has slots, or [`PAST_FLOOR`]).
const PER_EXTENT: u64 = 8;
const PER_SLOT: u64 = 32;
/// Above this size, the creation of a volume gives a warning.
const WARN_ABOVE: u64 = 1 << 30;

/// The memory that a volume needs, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Needs {
    /// Memory at the start.
    pub least: u64,
    /// Memory with the largest number of partly valid extents that have bitmaps, and a copy in every slot of the faster tiers.
    pub most: u64,
}

impl Needs {
    pub(super) fn of(geo: &Geometry, buffers: u64) -> Needs {
        let (least, most) = ExtentMap::estimate(geo);
        let fast = geo.tier_slots(geo.slowest()).start;
        let policy = if geo.is_cache() {
            u64::from(fast.max(PAST_FLOOR.min(geo.extents))) * PER_SLOT
        } else {
            u64::from(geo.extents) * PER_EXTENT + u64::from(geo.slots()) / 7
        };
        let others = policy + buffers;
        Needs {
            least: least + others,
            most: most + others,
        }
    }

    fn words(self) -> String {
        let gib = |n: u64| format!("{:.1} GiB", n as f64 / f64::from(1 << 30));
        format!(
            "serving it takes {} of memory, and up to {} with partly written extents and all of the cache in use",
            gib(self.least),
            gib(self.most)
        )
    }

    /// A warning for the user, if there is reason for one.
    pub(super) fn note(self) -> Option<String> {
        (self.least > WARN_ABOVE).then(|| self.words())
    }

    /// Refuses a map that does not fit in `there` (bytes, if known).
    pub(super) fn check_fits(
        self,
        there: Option<u64>,
        whose: &str,
        file: &Path,
    ) -> Result<(), Error> {
        match there.filter(|&bytes| bytes < self.least) {
            None => Ok(()),
            Some(bytes) => Err(Error::new(
                ErrorKind::System,
                format!(
                    "{}: extent: {}; {whose} has {:.1} GiB to give: choose larger extents, or a machine with more memory",
                    file.display(),
                    self.words(),
                    bytes as f64 / f64::from(1 << 30)
                ),
            )),
        }
    }
}

fn meminfo(key: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix(key))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib << 10)
}

fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// The memory of our control group (version 2): all of it, or the part that is not in use.
fn group(free: bool) -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = own.lines().find_map(|l| l.strip_prefix("0::/"))?;
    let dir = Path::new("/sys/fs/cgroup").join(path);
    let limits = dir
        .ancestors()
        .take_while(|d| d.starts_with("/sys/fs/cgroup"));
    limits
        .filter_map(|d| {
            let max = number(&d.join("memory.max"))?;
            let used = if free {
                number(&d.join("memory.current"))?
            } else {
                0
            };
            Some(max.saturating_sub(used))
        })
        .min()
}

fn smaller(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a.into_iter().chain(b).min()
}

/// Bytes of memory of this machine, or of our control group.
pub(super) fn installed() -> Option<u64> {
    smaller(meminfo("MemTotal:"), group(false))
}

/// Bytes that are available now.
pub(super) fn available() -> Option<u64> {
    smaller(meminfo("MemAvailable:"), group(true))
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::TierId;
    use isotherm_core::geometry::Member;

    fn geo(fast: u32, slow: u32, extent_shift: u32) -> Geometry {
        let m = |t, slots| Member {
            tier: TierId(t),
            first_slot: 0,
            slots,
            data_offset: 0,
            stash: isotherm_core::geometry::Stash::default(),
        };
        Geometry::new(extent_shift, 12, slow, vec![m(0, fast), m(1, slow)]).unwrap()
    }

    #[test]
    fn a_hundred_terabytes_fit_and_what_does_not_is_refused_with_figures() {
        let large = Needs::of(&geo(1_907_000, 95_367_000, 20), 64 << 20);
        assert!(large.least < 2_500_000_000, "{large:?}");
        assert!(large.most > large.least && large.note().is_some());
        let file = Path::new("v.toml");
        assert!(
            large
                .check_fits(Some(large.least), "this machine", file)
                .is_ok()
        );
        assert!(large.check_fits(None, "this machine", file).is_ok());
        let e = large
            .check_fits(Some(1 << 30), "this machine", file)
            .unwrap_err();
        assert!(
            e.to_string().contains("this machine has 1.0 GiB to give"),
            "{e}"
        );
        assert_eq!(Needs::of(&geo(100, 1000, 16), 0).note(), None);
        assert!(installed() >= available() && available() > Some(1 << 20));
    }
}
