//! libiscsi's programs and conformance tests.

use super::rig;
use std::process::Command;

fn tool(program: &str, args: &[&str]) -> Option<(bool, String)> {
    let Ok(out) = Command::new(program).args(args).output() else {
        println!("skipped: {program} is not installed (libiscsi-bin)");
        return None;
    };
    let all = [out.stdout, out.stderr].concat();
    Some((
        out.status.success(),
        String::from_utf8_lossy(&all).into_owned(),
    ))
}

#[test]
fn programs_of_libiscsi_find_and_ask_the_disk() {
    let rig = rig();
    let portal = format!("iscsi://{}", rig.at);
    let url = format!("{portal}/{}/0", rig.target);
    for (program, args, says) in [
        ("iscsi-ls", vec!["-s", &portal], rig.target.as_str()),
        ("iscsi-inq", vec![url.as_str()], "ISOTHERM"),
        (
            "iscsi-inq",
            vec!["-e", "1", "-c", "178", url.as_str()],
            "lbpu",
        ),
        ("iscsi-readcapacity16", vec![url.as_str()], "67108864"),
    ] {
        let Some((ok, text)) = tool(program, &args) else {
            return;
        };
        assert!(
            ok && text.to_lowercase().contains(&says.to_lowercase()),
            "{program} {args:?}: {text}"
        );
    }
}

/// libiscsi's own conformance tests of the features that the target claims.
#[test]
fn conformance_tests_of_libiscsi_pass() {
    let rig = rig();
    let url = format!("iscsi://{}/{}/0", rig.at, rig.target);
    let long = std::env::var_os("ISOTHERM_CONFORMANCE").is_some();
    let long = if long { &LONG[..] } else { &[] };
    for family in QUICK.iter().chain(long) {
        let test = format!("--test={family}");
        let args = ["--dataloss", "--allow-sanitize", &test, &url];
        let Some((ok, text)) = tool("iscsi-test-cu", &args) else {
            return;
        };
        let tests = text
            .lines()
            .find(|l| l.trim_start().starts_with("tests"))
            .unwrap_or_default();
        let numbers: Vec<u32> = tests
            .split_whitespace()
            .filter_map(|w| w.parse().ok())
            .collect();
        assert!(
            ok && numbers.get(1).is_some_and(|ran| *ran > 0),
            "{family}: {text}"
        );
        assert_eq!(numbers.get(3), Some(&0), "{family}: {text}");
    }
    rig.check_served();
}

/// The quick tests. Tests of features that the target does not have are left out (legacy reservations, copies, atomic writes).
const QUICK: [&str; 22] = [
    "ALL.GetLBAStatus.*",
    "ALL.Inquiry.*",
    "ALL.Mandatory.*",
    "ALL.ModeSense6.*",
    "ALL.NoMedia.*",
    "ALL.PrinReadKeys.*",
    "ALL.PrinReportCapabilities.*",
    "ALL.PrinServiceactionRange.*",
    "ALL.ProutClear.*",
    "ALL.ProutPreempt.*",
    "ALL.ProutRegister.*",
    "ALL.ProutReserve.*",
    "ALL.Read6.*",
    "ALL.ReadCapacity10.*",
    "ALL.ReadCapacity16.*",
    "ALL.ReadOnly.*",
    "ALL.StartStopUnit.*",
    "ALL.TestUnitReady.*",
    "ALL.Unmap.*",
    "ALL.iSCSIResiduals.*",
    "ALL.iSCSITMF.*",
    "ALL.iSCSIdatasn.*",
];

/// `ISOTHERM_CONFORMANCE=1` adds these.
const LONG: [&str; 15] = [
    "ALL.Read10.*",
    "ALL.Read12.*",
    "ALL.Read16.*",
    "ALL.Verify10.*",
    "ALL.Verify12.*",
    "ALL.Verify16.*",
    "ALL.Write10.*",
    "ALL.Write12.*",
    "ALL.Write16.*",
    "ALL.WriteSame10.*",
    "ALL.WriteSame16.*",
    "ALL.WriteVerify10.*",
    "ALL.WriteVerify12.*",
    "ALL.WriteVerify16.*",
    "ALL.iSCSIcmdsn.*",
];
