//! The health of drives by their own account: smartctl(8) of smartmontools, which is asked for JSON and wakes no sleeping disk.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use isotherm_answers::Drive;
use serde_json::Value;

use crate::programs::{self, Said};

/// Names a program to be used in the place of the installed one. It is subject to the same rules.
const OTHER: &str = "ISOTHERM_SMARTCTL";
/// Where packages put it. The search path is not asked: it may be that of another user.
const PLACES: [&str; 4] = [
    "/usr/sbin/smartctl",
    "/usr/local/sbin/smartctl",
    "/usr/bin/smartctl",
    "/run/current-system/sw/bin/smartctl",
];
/// Time for one drive. A disk that answers takes less than a second.
const PATIENCE: Duration = Duration::from_secs(20);
/// Most bytes of an answer; those of large disks have some ten thousand.
const ANSWER: u64 = 1 << 20;
/// Attributes of SSDs whose normalised value is the rest of the endurance in percent, the most exact first.
const RESTS: [&str; 6] = [
    "Percent_Lifetime_Remain",
    "Remaining_Lifetime_Perc",
    "Percent_Life_Remaining",
    "SSD_Life_Left",
    "Media_Wearout_Indicator",
    "Wear_Leveling_Count",
];

/// The program that asks drives.
#[derive(Clone, Debug)]
pub struct Smartctl(PathBuf);

/// A drive was asked.
#[derive(Debug)]
pub enum Asked {
    /// It has answered.
    Known(Drive),
    /// It sleeps.
    Asleep,
    /// Why it is not known.
    Unknown(String),
    /// The program waits for a drive that hangs, and cannot be ended.
    Stuck(Child),
}

impl Smartctl {
    /// The installed program.
    ///
    /// # Errors
    /// There is none, or others could change it.
    pub fn find() -> Result<Smartctl, String> {
        match std::env::var_os(OTHER) {
            Some(path) => Smartctl::at(&[Path::new(&path)]),
            None => Smartctl::at(&PLACES.map(Path::new)),
        }
    }

    pub(crate) fn at(places: &[&Path]) -> Result<Smartctl, String> {
        let there = places.iter().find(|p| p.exists());
        let there = there.ok_or("smartctl is not installed (package smartmontools)")?;
        let program = programs::checked(there, "the health of drives");
        program.map(Smartctl).map_err(|e| e.to_string())
    }

    /// Asks the drive with this device file.
    pub fn ask(&self, device: &str) -> Asked {
        let mut command = Command::new(&self.0);
        command.args(["--json=c", "-a", "-n", "standby", device]);
        match programs::output(&mut command, ANSWER, PATIENCE) {
            Ok(Said::All(code, text)) => understood(device, code, &text),
            Ok(Said::TooMuch) => Asked::Unknown("smartctl prints without an end".into()),
            Ok(Said::TooLate) => Asked::Unknown(format!(
                "does not answer smartctl within {} s",
                PATIENCE.as_secs()
            )),
            Ok(Said::Stuck(child)) => Asked::Stuck(child),
            Err(e) => Asked::Unknown(format!("{}: {e}", self.0.display())),
        }
    }
}

/// The outcome for a drive: smartctl's exit code and answer.
fn understood(device: &str, code: Option<i32>, text: &[u8]) -> Asked {
    let Ok(said) = serde_json::from_slice::<Value>(text) else {
        let code = code.map_or("a signal".into(), |c| format!("exit code {c}"));
        return Asked::Unknown(format!(
            "smartctl gives no answer that can be read ({code})"
        ));
    };
    let messages = || {
        said["smartctl"]["messages"]
            .as_array()
            .into_iter()
            .flatten()
    };
    let mut texts = messages().filter_map(|m| m["string"].as_str());
    // `Device is in STANDBY mode, exit(2)`; likewise SLEEP. Not every version has that in JSON, but it names the device, and no error.
    let in_words = texts.clone().any(|t| t.contains("mode, exit(2)"));
    let is_error = messages().any(|m| m["severity"] == "error");
    if code == Some(2) && (in_words || (said["device"].is_object() && !is_error)) {
        return Asked::Asleep;
    }
    let drive = drive(device, &said);
    let is_known = Drive {
        device: device.to_owned(),
        model: drive.model.clone(),
        ..Drive::default()
    } != drive;
    if is_known {
        return Asked::Known(drive);
    }
    let why = texts.next().unwrap_or("reports nothing");
    Asked::Unknown(why.chars().take(200).collect())
}

/// The figures in an answer. Drives of each bus have their own.
fn drive(device: &str, said: &Value) -> Drive {
    let nvme = &said["nvme_smart_health_information_log"];
    let rows = || {
        said["ata_smart_attributes"]["table"]
            .as_array()
            .into_iter()
            .flatten()
    };
    let raw = |id: u64| rows().find(|r| r["id"].as_u64() == Some(id))?["raw"]["value"].as_u64();
    let rest = |name: &&str| {
        let row = rows().find(|r| r["name"].as_str() == Some(*name))?;
        // Some drives begin at 200 or more, which is no percentage.
        Some(100 - row["value"].as_u64().filter(|n| *n <= 100)?)
    };
    let used = [
        said["endurance_used"]["current_percent"].as_u64(),
        nvme["percentage_used"].as_u64(),
        said["scsi_percentage_used_endurance_indicator"].as_u64(),
        RESTS.iter().find_map(rest),
    ];
    Drive {
        device: device.to_owned(),
        model: ["model_name", "scsi_model_name"]
            .iter()
            .find_map(|k| said[*k].as_str())
            .map(|m| m.chars().take(80).collect()),
        passed: said["smart_status"]["passed"].as_bool(),
        critical_warning: nvme["critical_warning"].as_u64(),
        used_percent: used.into_iter().flatten().next(),
        reallocated_sectors: raw(5).or_else(|| said["scsi_grown_defect_list"].as_u64()),
        pending_sectors: raw(197),
        media_errors: raw(198).or_else(|| nvme["media_errors"].as_u64()),
        temperature_c: said["temperature"]["current"].as_i64(),
        ..Drive::default()
    }
}

#[cfg(test)]
#[path = "smart_tests.rs"]
pub(crate) mod tests;
