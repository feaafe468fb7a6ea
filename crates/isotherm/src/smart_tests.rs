//! A program in the place of smartctl: what it prints is what smartctl 7.3 and 7.4 print, cut to what matters.

#[path = "../tests/common/executable.rs"]
mod executable;

use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;

pub(crate) const NVME: &str = r#"{"smartctl":{"version":[7,4],"exit_status":0},"device":{"name":"/dev/nvme0","type":"nvme","protocol":"NVMe"},"model_name":"Example 980","smart_status":{"passed":true,"nvme":{"value":0}},"nvme_smart_health_information_log":{"critical_warning":0,"temperature":41,"available_spare":100,"percentage_used":7,"media_errors":0},"temperature":{"current":41}}"#;
pub(crate) const SATA: &str = r#"{"smartctl":{"version":[7,3],"exit_status":64},"model_name":"Example SSD","smart_status":{"passed":true},"ata_smart_attributes":{"revision":1,"table":[{"id":5,"name":"Reallocated_Sector_Ct","value":100,"raw":{"value":3}},{"id":177,"name":"Wear_Leveling_Count","value":88,"raw":{"value":211}},{"id":190,"name":"Airflow_Temperature_Cel","value":66,"raw":{"value":34}},{"id":197,"name":"Current_Pending_Sector","value":100,"raw":{"value":8}}]},"temperature":{"current":34}}"#;
pub(crate) const STANDBY: &str = r#"{"smartctl":{"version":[7,3],"messages":[{"string":"Device is in STANDBY mode, exit(2)","severity":"information"}],"exit_status":2}}"#;
pub(crate) const FAILS: &str =
    r#"{"smartctl":{"exit_status":8},"model_name":"Example Disk","smart_status":{"passed":false}}"#;
const REFUSED: &str = r#"{"smartctl":{"messages":[{"string":"Smartctl open device: /dev/sda failed: Permission denied","severity":"error"}],"exit_status":2}}"#;

/// A directory that only this user can change, with the program.
pub(crate) fn program(script: &str) -> (tempfile::TempDir, PathBuf) {
    // Below the build's directory; /tmp is everybody's, and it is sticky, so it would do as well.
    let dir = tempfile::tempdir().expect("a directory");
    let at = dir.path().join("smartctl");
    executable::script(script, &at, 0o755);
    (dir, at)
}

fn asked(script: &str) -> Asked {
    let (_dir, at) = program(script);
    Smartctl::at(&[&at]).expect("taken").ask("/dev/sda")
}

fn prints(text: &str, code: i32) -> Asked {
    asked(&format!("cat <<'END'\n{text}\nEND\nexit {code}"))
}

fn known(asked: Asked) -> Drive {
    match asked {
        Asked::Known(drive) => drive,
        other => panic!("{other:?}"),
    }
}

fn why(asked: Asked) -> String {
    match asked {
        Asked::Unknown(why) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn drives_of_each_bus_are_understood() {
    let nvme = known(prints(NVME, 0));
    assert_eq!(
        (nvme.used_percent, nvme.temperature_c, nvme.media_errors),
        (Some(7), Some(41), Some(0))
    );
    assert_eq!(
        (nvme.passed, nvme.pending_sectors, nvme.fails()),
        (Some(true), None, false)
    );
    let sata = known(prints(SATA, 64));
    assert_eq!(
        (
            sata.used_percent,
            sata.reallocated_sectors,
            sata.pending_sectors
        ),
        (Some(12), Some(3), Some(8))
    );
    assert_eq!(
        sata.complaints(),
        ["8 sectors that cannot be read", "3 sectors replaced"]
    );
    assert!(known(prints(FAILS, 8)).fails());
    let sas = r#"{"smart_status":{"passed":true},"scsi_percentage_used_endurance_indicator":3,"scsi_grown_defect_list":2,"temperature":{"current":30}}"#;
    let sas = known(prints(sas, 0));
    assert_eq!(
        (sas.used_percent, sas.reallocated_sectors),
        (Some(3), Some(2))
    );
}

#[test]
fn a_disk_is_not_woken_and_is_asked_as_promised() {
    assert!(matches!(prints(STANDBY, 2), Asked::Asleep));
    let later = r#"{"smartctl":{"version":[7,5],"exit_status":2},"device":{"name":"/dev/sda"},"power_mode":{"ata_value":0}}"#;
    assert!(matches!(prints(later, 2), Asked::Asleep));
    let said = why(asked(
        r#"echo "{\"smartctl\":{\"messages\":[{\"string\":\"$*\"}]}}""#,
    ));
    assert_eq!(said, "--json=c -a -n standby /dev/sda");
}

#[test]
fn what_is_no_answer_is_said() {
    assert!(why(prints(REFUSED, 2)).contains("Permission denied"));
    assert!(
        why(prints("Segmentation fault", 139))
            .contains("no answer that can be read (exit code 139)")
    );
    assert!(why(prints("", 0)).contains("exit code 0"));
    assert!(why(asked("kill -9 $$")).contains("a signal"));
    assert!(why(asked("exec cat /dev/zero")).contains("without an end"));
    // Values of a wrong type or size are not known; the rest is.
    let odd = r#"{"smart_status":{"passed":"yes"},"nvme_smart_health_information_log":{"percentage_used":-1,"critical_warning":1e99},"ata_smart_attributes":{"table":[{"id":5},{"id":"x"},[],{"id":177,"name":"Wear_Leveling_Count","value":253}]},"temperature":{"current":20}}"#;
    let odd = known(prints(odd, 0));
    assert_eq!(
        odd,
        Drive {
            device: "/dev/sda".into(),
            temperature_c: Some(20),
            ..Drive::default()
        }
    );
    assert_eq!(why(prints(r#"{"model_name":"x"}"#, 4)), "reports nothing");
}

#[test]
fn a_program_that_others_could_change_is_not_run() {
    let (dir, at) = program("echo {}");
    fs::set_permissions(&at, fs::Permissions::from_mode(0o777)).expect("set");
    let said = Smartctl::at(&[&at]).expect_err("refused");
    assert!(said.contains("others could change"), "{said}");
    let none = dir.path().join("none");
    let said = Smartctl::at(&[&none]).expect_err("there is none");
    assert!(said.contains("smartmontools"), "{said}");
    // A link of another directory leads to a file that is checked, with all directories on the way.
    let (open, real) = program("echo {}");
    fs::set_permissions(open.path(), fs::Permissions::from_mode(0o777)).expect("set");
    std::os::unix::fs::symlink(&real, &none).expect("linked");
    assert!(Smartctl::at(&[&none]).is_err());
}
