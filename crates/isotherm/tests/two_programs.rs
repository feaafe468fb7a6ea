//! `isotherm` and `isotherm-lab`: the second is found beside the first, and nowhere where others could put one.

#[path = "common/executable.rs"]
mod executable;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output};

const ISOTHERM: &str = env!("CARGO_BIN_EXE_isotherm");
const LAB: &str = env!("CARGO_BIN_EXE_isotherm-lab");

fn run(program: &Path, args: &[&OsStr]) -> Output {
    Command::new(program).args(args).output().expect("it runs")
}

fn said(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// A copy of `isotherm` alone, with a program of the lab's name that is first in PATH.
#[test]
fn without_the_lab_a_sentence_says_so_and_path_is_not_searched() {
    let dir = tempfile::tempdir().expect("a directory");
    let (alone, planted) = (dir.path().join("isotherm"), dir.path().join("path"));
    executable::install(Path::new(ISOTHERM), "", &alone, 0o755);
    fs::create_dir(&planted).expect("made");
    executable::script("echo planted", &planted.join("isotherm-lab"), 0o755);
    let out = Command::new(&alone)
        .arg("formats")
        .current_dir(&planted)
        .env("PATH", &planted)
        .output()
        .expect("it runs");
    if Path::new("/usr/libexec/isotherm-lab").exists() {
        eprintln!("skipped: this machine has the lab in /usr/libexec");
        return;
    }
    assert_eq!(out.status.code(), Some(1), "{}", said(&out));
    assert!(said(&out).contains("no isotherm-lab in"), "{}", said(&out));
    assert!(out.stdout.is_empty());
    // What needs no lab goes on.
    let out = run(&alone, &[OsStr::new("policies")]);
    assert!(out.status.success(), "{}", said(&out));
}

#[test]
fn a_link_to_the_program_finds_the_lab_beside_the_program() {
    let dir = tempfile::tempdir().expect("a directory");
    let link = dir.path().join("isotherm");
    std::os::unix::fs::symlink(ISOTHERM, &link).expect("linked");
    let out = run(&link, &["formats", "--json"].map(OsStr::new));
    assert!(out.status.success(), "{}", said(&out));
    assert!(serde_json::from_slice::<serde_json::Value>(&out.stdout).is_ok());
}

#[test]
fn both_must_be_of_one_version() {
    let out = Command::new(LAB)
        .arg("formats")
        .env("ISOTHERM_STARTED_BY", "0.0.1")
        .output()
        .expect("it runs");
    assert_eq!(out.status.code(), Some(1));
    let said = said(&out);
    assert!(said.contains("isotherm is version 0.0.1"), "{said}");
    // Called by its own name it serves as well.
    let out = run(Path::new(LAB), &[OsStr::new("formats")]);
    assert!(out.status.success());
}

/// Words, exit codes and errors are those of one program.
#[test]
fn the_words_arrive_as_they_were() {
    let isotherm = Path::new(ISOTHERM);
    let strange = OsStr::from_bytes(b"t\xff\xfe");
    let out = run(
        isotherm,
        &[OsStr::new("trace"), OsStr::new("info"), strange],
    );
    assert_eq!(out.status.code(), Some(1));
    assert!(said(&out).starts_with("isotherm: t"), "{}", said(&out));
    let out = run(isotherm, &["sim", "--bad"].map(OsStr::new));
    assert_eq!(out.status.code(), Some(2));
    let wrong = "isotherm: unexpected argument '--bad' found; see `isotherm sim --help`\n";
    assert_eq!(said(&out), wrong);
    let out = run(isotherm, &["simm"].map(OsStr::new));
    assert!(said(&out).contains("'sim'"), "{}", said(&out));
    for words in [["help", "sim"], ["sim", "--help"]] {
        let out = run(isotherm, &words.map(OsStr::new));
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(text.contains("Usage: isotherm sim"), "{text}");
    }
    // A volume's requests are recorded by the lab, its events are not.
    let out = run(
        Path::new(LAB),
        &["record", "v", "--events", "--out", "x"].map(OsStr::new),
    );
    assert_eq!(out.status.code(), Some(2));
    assert!(
        said(&out).contains("`isotherm record --events`"),
        "{}",
        said(&out)
    );
}
