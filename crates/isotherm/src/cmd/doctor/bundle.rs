//! `isotherm doctor --bundle FILE`: what somebody needs who looks into damage, in one file of text. It has no data of the volume, and no
//! secrets (`redact.rs`). It is shown before it is written, and works also for a volume that cannot be opened.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use isotherm_answers::json;
use isotherm_control::PROGRAM;
use isotherm_core::store::Superblock;
use isotherm_core::store::superblock::SuperblockError;
use isotherm_live::VolumeConfig;
use isotherm_live::config::format_uuid;
use isotherm_live::members::{self, probe};
use isotherm_live::volume::description;
use isotherm_words::printable::printable_lines;
use serde_json::Value;

use super::redact::Redactor;
use crate::Failure;
use crate::args::DoctorArgs;
use crate::cmd::ask;
use crate::control::Request;
use crate::control::client::{PATIENCE, connect};
use crate::programs::{self, Said};

/// Options of `serve` that name files with secrets.
const SECRET_FILES: [&str; 4] = [
    "--web-token",
    "--web-tls-key",
    "--nbd-tls-key",
    "--iscsi-chap",
];
/// Lines of the log that are taken, and its most bytes.
const LOG_LINES: &str = "500";
const LOG_BYTES: u64 = 1 << 20;
/// Most bytes of a description, of a file with a secret, and of the other files that are read.
const TEXT_BYTES: u64 = 1 << 20;
const JOURNALCTL: &str = "/usr/bin/journalctl";

/// A part of the bundle: its name, what it is, and its text.
struct Part(&'static str, &'static str, String);

/// Collects, shows, asks, and writes.
///
/// # Errors
/// There is no such volume; the file exists or cannot be made; or the answer was no.
pub(super) fn run(args: &DoctorArgs, file: &Path) -> Result<(), Failure> {
    let volume = &args.of.volume;
    if file.symlink_metadata().is_ok() {
        return Err(Failure::failed(format!(
            "{}: exists already: give the bundle another name",
            file.display()
        )));
    }
    if !description(volume).exists() {
        super::super::server_of(volume)?;
    }
    let parts = collect(volume, args.log.as_deref());
    let mut text = String::from(
        "Isotherm bundle: no data of the volume. Secrets were removed, and in messages all that could be one.\n",
    );
    let mut list = format!("{} gets:\n", file.display());
    for Part(name, what, body) in &parts {
        let lines = body.lines().count();
        let _ = writeln!(text, "\n===== {name}: {what}\n{}", body.trim_end());
        let _ = writeln!(list, "  {name}: {what} ({lines} lines)");
    }
    let text = printable_lines(&text);
    crate::json::to_stdout(&format!("{text}\n{}", printable_lines(&list)))?;
    super::super::confirm("look through it: names of devices stay in it", args.yes)?;
    write(file, &text).map_err(|e| Failure::file(file, "make it", &e))
}

/// Makes the file, for its owner alone. What exists under that name, also a link, is refused.
fn write(file: &Path, text: &str) -> std::io::Result<()> {
    let mut made = isotherm_paths::create(file, 0o600)?;
    let written = (made.write_all(text.as_bytes())).and_then(|()| made.sync_all());
    written.inspect_err(|_| {
        let _ = std::fs::remove_file(file); // the first error counts
    })
}

fn collect(volume: &Path, log: Option<&Path>) -> Vec<Part> {
    let file = description(volume);
    let loaded = VolumeConfig::load(&file);
    let redact = redactor(volume, loaded.as_ref().ok());
    let (status, stats) = figures(volume);
    let diagnosis = super::diagnosis(volume).map(|d| json(&d));
    let shown = |part: Result<Value, String>| match part {
        Ok(value) => {
            serde_json::to_string_pretty(&redact.value(&value)).unwrap_or_else(|e| e.to_string())
        }
        Err(why) => redact.lines(&format!("not known: {why}")),
    };
    let description = match &loaded {
        // Written anew from what was read: comments and what the program does not know are left out.
        Ok(config) => match toml::to_string(config) {
            Ok(text) => redact.known(&text),
            Err(e) => format!("not known: {e}"),
        },
        Err(e) => redact.lines(&format!(
            "cannot be read: {e}\n{}",
            without_comments(&file).unwrap_or_else(|e| e.to_string())
        )),
    };
    let log = log.map_or_else(|| journal(volume), |l| end_of(l).map_err(|e| e.to_string()));
    let log = log.unwrap_or_else(|why| format!("not known: {why}"));
    vec![
        Part("system", "versions of program, kernel and system", system()),
        Part("description", "of the volume", description),
        Part(
            "superblocks",
            "of its members: headers",
            redact.known(&superblocks(&file, loaded.ok())),
        ),
        Part("status", "figures", shown(status)),
        Part("stats", "figures", shown(stats)),
        Part(
            "doctor",
            "findings",
            shown(diagnosis.map_err(|e| e.to_string())),
        ),
        Part("log", "its last lines", redact.lines(&log)),
    ]
}

/// What `status --json` and `stats --json` say.
fn figures(volume: &Path) -> (Result<Value, String>, Result<Value, String>) {
    let ask = |request| {
        let client = connect(volume).map_err(|e| e.to_string())?;
        let Some(client) = client else {
            return Ok(None);
        };
        let answer = client.with_limit(PATIENCE).ask(request);
        answer.map(Some).map_err(|e| e.to_string())
    };
    let offline = || ask::offline(volume).map(|s| json(&s));
    let status = ask(&Request::Status).and_then(|s| match s {
        Some(status) => Ok(status),
        None => offline().map_err(|e| e.to_string()),
    });
    let stats = ask(&Request::Stats).and_then(|s| s.ok_or("is not served".to_owned()));
    (status, stats)
}

/// Knows the secrets of the server, if there is one, and the names of this volume.
fn redactor(volume: &Path, config: Option<&VolumeConfig>) -> Redactor {
    let file = description(volume);
    let mut kept = vec![volume.display().to_string(), file.display().to_string()];
    if let Some(config) = config {
        kept.push(config.name.clone());
        kept.extend(config.uuid.clone());
        let base = file.parent().unwrap_or(Path::new(""));
        for path in config.all_paths() {
            kept.push(base.join(&path).display().to_string());
            kept.push(path.display().to_string());
        }
    }
    Redactor::new(secrets(volume).unwrap_or_default(), kept)
}

/// Paths of the files with secrets that the server was given, as it was told and in full, and the secrets in them.
fn secrets(volume: &Path) -> Option<Vec<String>> {
    let stream = connect(volume).ok()??.into_stream();
    let pid = isotherm_live::peer_process(stream.get_ref()).ok()??;
    let process = PathBuf::from(format!("/proc/{}", pid.as_raw_nonzero()));
    let words = std::fs::read(process.join("cmdline")).ok()?;
    let words = words.split(|b| *b == 0);
    let words: Vec<String> = (words.map(|w| String::from_utf8_lossy(w).into_owned())).collect();
    Some(secrets_of(&words, &process.join("cwd")))
}

/// The same for a command line and the directory in which it was given.
fn secrets_of(words: &[String], base: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for (n, word) in words.iter().enumerate() {
        let (option, value) = match word.split_once('=') {
            Some((option, value)) => (option, Some(value)),
            None => (word.as_str(), words.get(n + 1).map(String::as_str)),
        };
        let Some(path) = value.filter(|_| SECRET_FILES.contains(&option)) else {
            continue;
        };
        let full = base.join(path);
        if let Ok(real) = std::fs::canonicalize(&full) {
            found.push(real.display().to_string());
        }
        if let Ok(text) = isotherm_paths::read_secret(&full, TEXT_BYTES) {
            let lines = text.lines().filter(|l| !l.starts_with("-----"));
            // A token may have spaces. What is shorter is no secret: a name, or a word of a comment.
            let parts = lines.flat_map(|l| [l.trim()].into_iter().chain(l.split_whitespace()));
            found.extend(parts.filter(|p| p.len() >= 12).map(str::to_owned));
        }
        found.push(path.to_owned());
    }
    found
}

/// A description that cannot be read, without what a person wrote for himself.
fn without_comments(file: &Path) -> std::io::Result<String> {
    let text = isotherm_paths::read_text(file, TEXT_BYTES)?;
    let lines = text
        .lines()
        .map(|l| l.split('#').next().unwrap_or_default());
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

/// The two superblocks of each member, decoded. The bytes of a block that is no superblock may be data, and are not shown.
fn superblocks(file: &Path, config: Option<VolumeConfig>) -> String {
    let Some(mut config) = config else {
        return "not known: the members are not known".into();
    };
    let mut text = String::new();
    if let Err(e) = members::find(&mut config, file) {
        let _ = writeln!(text, "{e}");
    }
    let base = file.parent().unwrap_or(Path::new(""));
    for (n, member) in config
        .members
        .iter()
        .enumerate()
        .filter(|(_, m)| !m.removed)
    {
        let _ = writeln!(text, "member {n}: {}", member.path.display());
        match probe::both(&base.join(&member.path)) {
            Ok((first, second)) => {
                let _ = writeln!(
                    text,
                    "  first: {}\n  second: {}",
                    header(&first),
                    header(&second)
                );
            }
            Err(e) => {
                let _ = writeln!(text, "  cannot be read: {e}");
            }
        }
    }
    text
}

fn header(read: &Result<Superblock, SuperblockError>) -> String {
    match read {
        Ok(sb) => format!("volume {}: {sb:?}", format_uuid(&sb.uuid)),
        Err(e) => format!("none: {e:?}"),
    }
}

fn system() -> String {
    let read = |path: &str| {
        let text = isotherm_paths::read_text(Path::new(path), TEXT_BYTES);
        text.unwrap_or_else(|e| format!("not known: {e}"))
    };
    let os = read("/etc/os-release");
    let name = os.lines().find_map(|l| l.strip_prefix("PRETTY_NAME="));
    format!(
        "program  {PROGRAM}\nkernel  {} {} {}\nsystem  {}\n",
        read("/proc/sys/kernel/osrelease").trim_end(),
        read("/proc/sys/kernel/version").trim_end(),
        std::env::consts::ARCH,
        name.unwrap_or("not known").trim_matches('"'),
    )
}

/// What the journal has of the volume.
fn journal(volume: &Path) -> Result<String, String> {
    let name = volume.file_name().unwrap_or_default().to_string_lossy();
    let mut command = Command::new(JOURNALCTL);
    command.args([
        "--no-pager",
        "--quiet",
        "--no-hostname",
        "--output=short-iso",
    ]);
    command.arg(format!("--lines={LOG_LINES}"));
    command.arg(format!("ISOTHERM_VOLUME={name}")).arg("+");
    command.arg(format!("_SYSTEMD_UNIT=isotherm@{name}.service"));
    match programs::output(&mut command, LOG_BYTES, Duration::from_secs(20)) {
        Ok(Said::All(Some(0), text)) if !text.is_empty() => {
            Ok(String::from_utf8_lossy(&text).into_owned())
        }
        Ok(Said::All(..)) => Err("the journal has nothing of it (--log FILE gives another)".into()),
        Ok(Said::TooMuch) => Err("the journal has lines that are too long".into()),
        Ok(Said::TooLate | Said::Stuck(_)) => Err("the journal does not answer".into()),
        Err(e) => Err(format!("{JOURNALCTL}: {e} (--log FILE gives another log)")),
    }
}

/// The last lines of a log in a file.
fn end_of(log: &Path) -> std::io::Result<String> {
    use std::io::{Read, Seek, SeekFrom};
    // A pipe would have no end.
    if !std::fs::metadata(log)?.is_file() {
        return Err(std::io::Error::other("is no regular file"));
    }
    let mut file = File::open(log)?;
    let from = file.metadata()?.len().saturating_sub(LOG_BYTES);
    file.seek(SeekFrom::Start(from))?;
    let mut text = Vec::new();
    file.take(LOG_BYTES).read_to_end(&mut text)?;
    // Half of a secret is not known for one: the line that is cut off goes.
    let cut = if from > 0 {
        text.iter()
            .position(|b| *b == b'\n')
            .map_or(text.len(), |n| n + 1)
    } else {
        0
    };
    Ok(String::from_utf8_lossy(&text[cut..]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_files_of_secrets_and_what_is_in_them_are_known() {
        let dir = tempfile::tempdir().expect("a directory");
        for (n, option) in SECRET_FILES.iter().enumerate() {
            let (name, secret) = (format!("key file {n}"), format!("secret-number-{n}"));
            let file = dir.path().join(&name);
            let text = format!("-----BEGIN SOMETHING-----\njoe {secret}\n");
            std::fs::write(&file, text).expect("written");
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("set");
            let full = std::fs::canonicalize(&file)
                .expect("there")
                .display()
                .to_string();
            let two = ["isotherm", "serve", "v", option, &name].map(str::to_owned);
            let one = [format!("{option}={name}")];
            for words in [&two[..], &one[..]] {
                let found = secrets_of(words, dir.path());
                let line = format!("joe {secret}");
                assert_eq!(found, [full.as_str(), &line, &secret, &name], "{words:?}");
            }
        }
    }

    #[test]
    fn the_end_of_a_log_begins_with_a_whole_line() {
        let dir = tempfile::tempdir().expect("a directory");
        let log = dir.path().join("log");
        // The limit is in the middle of the first line.
        let line = format!("token abc\n{}\n", "x".repeat(LOG_BYTES as usize - 5));
        std::fs::write(&log, &line).expect("written");
        let end = end_of(&log).expect("read");
        assert_eq!(end, line.split_inclusive('\n').nth(1).expect("a line"));
        std::fs::write(&log, "token abc\nlast\n").expect("written");
        assert_eq!(end_of(&log).expect("read"), "token abc\nlast\n");
    }
}
