//! The three set-ups and their sizes.

use std::path::Path;

use isotherm_live::Volume;
use isotherm_live::config::{IoConfig, MemberConfig, Size, VolumeConfig};
use isotherm_live::volume::description;
use serde::Serialize;

use crate::Failure;

/// The model of the disk: 112 random reads a second, 126 MB/s, 32 requests in its own queue (Loris, Table I).
pub const HDD: &str = "wd5000aaks";
/// The model of the flash (Loris, Table I).
pub const SSD: &str = "ocz-vertex3-maxiops";
/// Seconds without use until the disk is sent to sleep. GreenDM (6.1.4) uses 5. But this disk needs 11 seconds to wake up, so each sleep
/// would cost a hybrid more time than its flash saves.
pub const STANDBY_S: f64 = 600.0;
/// Size of the fast tier as a share of the touched data.
pub const FAST_SHARE: f64 = 0.25;
/// Unit of placement.
pub const EXTENT: u64 = 64 << 10;

/// One of the three.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SetUp {
    /// The disk alone.
    Hdd,
    /// The disk with a little flash.
    Hybrid,
    /// Flash alone.
    Ssd,
}

impl SetUp {
    /// In the order of the table.
    pub const ALL: [SetUp; 3] = [SetUp::Hdd, SetUp::Hybrid, SetUp::Ssd];

    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            SetUp::Hdd => "HDD only",
            SetUp::Hybrid => "hybrid",
            SetUp::Ssd => "SSD only",
        }
    }

    /// The description of a volume `v` with members in `dir`: `fast` extents of flash (the hybrid only), `bytes` of every member.
    fn config(self, dir: &Path, policy: &str, bytes: &[u64], paced: bool) -> VolumeConfig {
        let member = |name: &str, tier, preset: &str, size| MemberConfig {
            path: dir.join(name),
            tier,
            size: Some(Size(size)),
            paced: paced.then(|| preset.to_owned()),
            standby_s: (preset == HDD).then_some(STANDBY_S),
            ..MemberConfig::default()
        };
        let members = match self {
            SetUp::Hdd => vec![member("hdd.img", 0, HDD, bytes[0])],
            SetUp::Ssd => vec![member("ssd.img", 0, SSD, bytes[0])],
            SetUp::Hybrid => vec![
                member("ssd.img", 0, SSD, bytes[0]),
                member("hdd.img", 1, HDD, bytes[1]),
            ],
        };
        // With one tier there is nothing to decide.
        let policy = if self == SetUp::Hybrid {
            policy
        } else {
            "linear"
        };
        VolumeConfig {
            name: "v".into(),
            uuid: None,
            extent: Size(EXTENT),
            policy: policy.into(),
            qos: Vec::new(),
            io: IoConfig::for_extents(EXTENT),
            members,
        }
    }
}

/// A volume of exactly `extents` extents, of which the hybrid has `fast` on flash.
pub struct Sized {
    kind: SetUp,
    policy: String,
    bytes: Vec<u64>,
}

impl Sized {
    /// Finds the member sizes. Metadata and reserve take a part of the members, and how much is known only when the volume is created.
    ///
    /// # Errors
    /// The volume cannot be created in `dir`, or no sizes give the requested shares.
    pub fn find(
        kind: SetUp,
        policy: &str,
        extents: u32,
        fast: u32,
        dir: &Path,
    ) -> Result<Sized, Failure> {
        let probe = tempfile::Builder::new()
            .prefix("probe-")
            .tempdir_in(dir)
            .map_err(|e| Failure::file(dir, "make a directory", &e))?;
        let mut sized = Sized {
            kind,
            policy: policy.into(),
            bytes: vec![u64::from(extents) * EXTENT],
        };
        if kind == SetUp::Hybrid {
            // Start with generous space for the metadata; the excess is removed below.
            sized.bytes = vec![
                (u64::from(fast) * EXTENT).max(4 << 20),
                (u64::from(extents - fast) * EXTENT).max(4 << 20),
            ];
        }
        // Metadata grows slightly with the volume; two or three rounds are enough.
        for round in 0..8 {
            let volume = probe.path().join(format!("v{round}"));
            let members = probe.path().join(format!("m{round}"));
            std::fs::create_dir(&members)
                .map_err(|e| Failure::file(&members, "make a directory", &e))?;
            let made = Volume::create(&volume, sized.config(&members, false), false)
                .map_err(|e| Failure::failed(e.to_string()))?;
            let missing = i64::from(extents) - (made.volume_bytes / EXTENT) as i64;
            if kind != SetUp::Hybrid {
                if missing == 0 {
                    return Ok(sized);
                }
                sized.bytes[0] = sized.bytes[0].saturating_add_signed(missing * EXTENT as i64);
                continue;
            }
            let fast_missing = i64::from(fast) - i64::from(made.slots[0]);
            if missing == 0 && fast_missing == 0 {
                return Ok(sized);
            }
            sized.bytes[0] = sized.bytes[0].saturating_add_signed(fast_missing * EXTENT as i64);
            sized.bytes[1] =
                sized.bytes[1].saturating_add_signed((missing - fast_missing) * EXTENT as i64);
        }
        Err(Failure::failed(format!(
            "no member sizes give a volume of {extents} extents with {fast} on flash"
        )))
    }

    /// The description with members in `dir`.
    pub fn config(&self, dir: &Path, paced: bool) -> VolumeConfig {
        self.kind.config(dir, &self.policy, &self.bytes, paced)
    }

    /// Makes volume `v` in `dir` and returns its path.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(&self, dir: &Path) -> Result<std::path::PathBuf, Failure> {
        let volume = dir.join("v");
        Volume::create(&volume, self.config(dir, true), false)
            .map_err(|e| Failure::failed(e.to_string()))?;
        debug_assert!(description(&volume).exists());
        Ok(volume)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_are_of_equal_size_and_the_hybrid_has_its_share() {
        let dir = tempfile::tempdir().expect("a directory");
        for (extents, fast) in [(640, 160), (2953, 568), (40, 7)] {
            for kind in SetUp::ALL {
                let sized = Sized::find(kind, "greendm", extents, fast, dir.path()).expect("sizes");
                let at = dir.path().join(format!("{kind:?}{extents}"));
                std::fs::create_dir(&at).expect("made");
                let made =
                    Volume::create(&at.join("v"), sized.config(&at, true), false).expect("made");
                assert_eq!(made.volume_bytes, u64::from(extents) * EXTENT, "{kind:?}");
                if kind == SetUp::Hybrid {
                    assert_eq!(made.slots[0], fast);
                }
            }
        }
    }
}
