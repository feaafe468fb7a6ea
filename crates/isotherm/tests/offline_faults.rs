//! Every command that changes the members of a stopped volume, killed or failed at each of its writes, flushes and changes of names. The
//! volume has all of its data afterwards, also if the first superblock of any member is torn then, and the same command can be repeated.
//!
//! strace injects the faults. Without it the test is skipped, and says so. A command has too many places for every run: `ISOTHERM_SEEDS=0`
//! tries all of them, otherwise at most `PLACES` for each command and kind of fault, spread evenly.

mod common;

use common::Place;
use isotherm_core::store::{BLOCK, Superblock};
use isotherm_core::{IoError, RequestOp};
use isotherm_live::port::{Buffer, Completion, IoRequest, Port};
use isotherm_live::{OpenMode, Volume};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, mpsc};

const PLACES: usize = 4;
const MIB: u64 = 1 << 20;
/// The calls by which a command changes anything.
const CALLS: [&str; 10] = [
    "pwrite64",
    "pwritev2",
    "fdatasync",
    "fsync",
    "fallocate",
    "ftruncate",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
];
const TORN: usize = 512;

fn ask(port: &Arc<dyn Port>, op: RequestOp, at: u64, buffer: Option<Buffer>, len: u32) -> Buffer {
    let (send, receive) = mpsc::channel::<(Result<(), IoError>, Option<Buffer>)>();
    let request = IoRequest {
        op,
        offset: at,
        len,
        fua: false,
        class: 0,
        buffer,
        pages: None,
    };
    port.submit(
        request,
        Completion::new(move |r, b| drop(send.send((r, b)))),
    );
    let (result, buffer) = receive.recv().expect("answered");
    assert_eq!(result, Ok(()), "{op:?} at {at}");
    buffer.expect("a read or write has a buffer")
}

/// The byte that the test writes at this place; 0: it writes none.
fn content(mib: u64) -> u8 {
    if mib % 3 == 2 { 0 } else { mib as u8 + 1 }
}

fn fill(volume: &Path) {
    let server = Volume::open(volume, OpenMode::ReadWrite)
        .expect("opened")
        .serve()
        .expect("served");
    let port = server.port();
    for mib in (0..port.volume_bytes() / MIB).filter(|&m| content(m) != 0) {
        let mut b = port.buffer(mib * MIB, MIB as u32);
        b.fill(content(mib));
        ask(&port, RequestOp::Write, mib * MIB, Some(b), MIB as u32);
    }
    drop(port);
    server.stop().expect("stopped");
}

/// Opens the volume, compares its first `bytes` with what was written, and stops it.
fn holds(volume: &Path, bytes: u64, what: &str) {
    let opened = Volume::open(volume, OpenMode::ReadWrite);
    let server = opened
        .unwrap_or_else(|e| panic!("{what}: {e}"))
        .serve()
        .expect("served");
    let port = server.port();
    assert!(
        port.volume_bytes() >= bytes,
        "{what}: the volume is smaller"
    );
    for mib in 0..bytes / MIB {
        let b = port.buffer(mib * MIB, MIB as u32);
        let b = ask(&port, RequestOp::Read, mib * MIB, Some(b), MIB as u32);
        let bad = b.iter().position(|&x| x != content(mib));
        assert_eq!(bad, None, "{what}: MiB {mib} is not what was written");
    }
    drop(port);
    server.stop().unwrap_or_else(|e| panic!("{what}: {e}"));
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    let done = Command::new("cp")
        .args(["-r", "--sparse=always"])
        .arg(from)
        .arg(to)
        .status();
    assert!(done.expect("cp").success());
}

fn tear(member: &Path) {
    let f = OpenOptions::new().write(true).open(member).expect("opened");
    f.write_all_at(&[0x5a; TORN], 0).expect("written");
}

/// Whether the file begins with a superblock.
fn is_member(file: &Path) -> bool {
    let mut head = [0; 8];
    File::open(file).is_ok_and(|f| f.read_exact_at(&mut head, 0).is_ok()) && head == *b"ISOTHERM"
}

/// What happens at a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The process is killed.
    Kill,
    /// From then on, this kind of call fails on all files.
    Errors,
    /// From then on, this kind of call fails on the new device.
    NewDeviceFails,
}

impl Fault {
    fn on(self) -> Option<&'static str> {
        (self == Fault::NewDeviceFails).then_some("t")
    }
}

/// A command, and the directory in which it runs. Volumes keep absolute paths, so every try happens at the same place.
struct Try<'a> {
    place: &'a Place,
    before: PathBuf,
    dir: PathBuf,
    call: &'a str,
}

impl Try<'_> {
    fn fresh(&self) {
        copy(&self.before, &self.dir);
    }
    /// Runs the command under strace. With `on`, only the calls on this file count.
    fn isotherm(&self, on: Option<&str>, strace: &[&str]) -> std::process::Output {
        let mut c = Command::new("strace");
        c.args(["-f", "-qq", "-o"]).arg(self.place.path("trace"));
        if let Some(name) = on {
            c.arg("-P").arg(self.dir.join(name));
        }
        c.args(strace)
            .arg(env!("CARGO_BIN_EXE_isotherm"))
            .args(self.call.split_whitespace());
        c.current_dir(&self.dir).output().expect("strace runs")
    }
    /// The number of calls of each kind that the command makes.
    fn count(&self, on: Option<&str>) -> BTreeMap<&'static str, usize> {
        self.fresh();
        let out = self.isotherm(on, &["-e", &format!("trace={}", CALLS.join(","))]);
        let err = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success(), "`{}`: {err}", self.call);
        let log = fs::read_to_string(self.place.path("trace")).expect("a trace");
        let called = |name: &str| {
            let call = format!(" {name}(");
            log.lines().filter(|l| l.contains(&call)).count()
        };
        let all = CALLS.map(|name| (name, called(name)));
        all.into_iter().filter(|c| c.1 > 0).collect()
    }
    /// At most `most` of the places at which the command is disturbed.
    fn places(&self, on: Option<&str>, most: usize) -> Vec<(&'static str, usize)> {
        let each = |(name, n): (&'static str, usize)| (1..=n).map(move |i| (name, i));
        // Each step of a change ends with a flush, so those of one device are enough.
        let counts = self.count(on).into_iter();
        let counts = counts.filter(|c| on.is_none() || c.0 == "fdatasync");
        let all: Vec<_> = counts.flat_map(each).collect();
        assert!(all.len() > 3, "`{}` makes {all:?}", self.call);
        let everything = std::env::var("ISOTHERM_SEEDS").is_ok_and(|s| s == "0");
        let step = if everything {
            1
        } else {
            all.len().div_ceil(most)
        };
        all.into_iter().step_by(step).collect()
    }
    /// Runs the command with a fault. Returns whether it has succeeded all the same.
    fn with(&self, fault: Fault, (name, n): (&str, usize)) -> bool {
        self.fresh();
        let (trace, on) = (format!("trace={name}"), fault.on());
        let inject = match fault {
            Fault::Kill => format!("inject={name}:signal=KILL:when={n}"),
            _ => format!("inject={name}:error=EIO:when={n}+"),
        };
        let out = self.isotherm(on, &["-e", &trace, "-e", &inject]);
        let done = out.status.success();
        let said = [out.stdout, out.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        let what = self.named(fault, (name, n));
        assert!(!(fault == Fault::Kill && done), "{what}: it was not killed");
        assert!(!said.contains("panicked"), "{what}: {said}");
        assert!(
            fault == Fault::Kill || done || !said.trim().is_empty(),
            "{what}: no message"
        );
        done
    }
    fn named(&self, fault: Fault, (name, n): (&str, usize)) -> String {
        format!("`{}`, {fault:?} at {name} {n}", self.call)
    }
    /// The new device is the member, and the command says so, only if the other member's table names it. Otherwise the former one still is,
    /// and the volume needs nothing of the new one.
    fn has_one_member(&self, done: bool, what: &str) {
        let superblock = |name: &str| {
            let mut b = vec![0; BLOCK];
            File::open(self.dir.join(name))
                .ok()?
                .read_exact_at(&mut b, 0)
                .ok()?;
            Superblock::decode(&b).ok()
        };
        let new = superblock("t").map(|sb| sb.members[usize::from(sb.index)].uuid);
        let mut others = ["f", "s"].into_iter().filter_map(superblock);
        let is_named = |sb: Superblock| sb.members.iter().any(|m| Some(m.uuid) == new);
        if others.any(is_named) {
            return;
        }
        assert!(
            !done,
            "{what}: the command says that it has replaced the member"
        );
        assert!(
            is_member(&self.dir.join("f")) && is_member(&self.dir.join("s")),
            "{what}: a member is erased"
        );
        let _ = fs::remove_file(self.dir.join("t"));
    }
    fn again(&self) -> std::process::Output {
        let mut c = Command::new(env!("CARGO_BIN_EXE_isotherm"));
        c.args(self.call.split_whitespace());
        c.current_dir(&self.dir).output().expect("starts")
    }
    fn volume(&self) -> PathBuf {
        self.dir.join("v")
    }
    /// Compares the data as it is, and if `torn`, with the first superblock of each file that has one torn, in turn.
    fn check(&self, bytes: u64, torn: bool, what: &str) {
        let after = self.place.path("after");
        copy(&self.dir, &after);
        holds(&self.volume(), bytes, what);
        for name in ["f", "s", "t"] {
            if !torn || !is_member(&after.join(name)) {
                continue;
            }
            copy(&after, &self.dir);
            tear(&self.dir.join(name));
            holds(&self.volume(), bytes, &format!("{what}, then {name} torn"));
        }
        copy(&after, &self.dir);
    }
}

/// Disturbs `call` at its places. `prepare` brings a volume in the directory into the state before the command.
fn disturb(call: &str, prepare: impl Fn(&Path)) {
    if !Command::new("strace")
        .arg("-V")
        .output()
        .is_ok_and(|o| o.status.success())
    {
        println!("skipped: no strace here: `{call}` is not disturbed");
        return;
    }
    let place = Place::in_memory();
    let dir = place.path("d");
    fs::create_dir(&dir).expect("made");
    let create = "create v --fast f:8M --slow s:24M --extent 64K --policy lru";
    let made = Command::new(env!("CARGO_BIN_EXE_isotherm"))
        .args(create.split_whitespace())
        .current_dir(&dir)
        .output();
    let made = made.expect("starts");
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let v = dir.join("v");
    fill(&v);
    let volume = Volume::open(&v, OpenMode::ReadOnly)
        .expect("opened")
        .serve()
        .expect("served");
    let bytes = volume.port().volume_bytes();
    volume.stop().expect("stopped");
    prepare(&dir);
    let t = Try {
        before: place.path("before"),
        dir: dir.clone(),
        place: &place,
        call,
    };
    copy(&dir, &t.before);
    let mut faults = vec![(Fault::Kill, PLACES), (Fault::Errors, PLACES)];
    if call.contains(" t:") {
        faults.push((Fault::NewDeviceFails, usize::MAX));
    }
    for (fault, most) in faults {
        let places = t.places(fault.on(), most);
        holds(&v, bytes, call);
        let mut failed = 0;
        for at in places {
            let what = t.named(fault, at);
            let done = t.with(fault, at);
            failed += usize::from(!done);
            if fault == Fault::NewDeviceFails {
                t.has_one_member(done, &what);
            }
            t.check(bytes, fault == Fault::Kill, &what);
            if fault == Fault::NewDeviceFails {
                continue;
            }
            // The command can be repeated, or there is nothing left to do.
            let again = t.again();
            let err = String::from_utf8_lossy(&again.stderr);
            let over = err.contains("larger") || err.contains("another device is member");
            assert!(again.status.success() || over, "{what}, again: {err}");
            holds(&v, bytes, &format!("{what}, again"));
        }
        assert!(failed > 0, "`{call}`: no fault had an effect");
    }
}

fn grown(dir: &Path) {
    let s = OpenOptions::new().write(true).open(dir.join("s"));
    s.expect("opened").set_len(40 * MIB).expect("longer");
}

#[test]
fn a_repair() {
    disturb("check v --repair", |dir| tear(&dir.join("f")));
}

#[test]
fn a_growth() {
    disturb("grow v", grown);
}

#[test]
fn a_replacement_of_the_disk() {
    disturb("replace v t:32M --member 1", |_| {});
}

#[test]
fn a_replacement_of_the_flash_of_a_grown_volume() {
    disturb("replace v t:8M --member 0", |dir| {
        grown(dir);
        let done = Command::new(env!("CARGO_BIN_EXE_isotherm"))
            .args(["grow", "v"])
            .current_dir(dir)
            .output();
        assert!(done.expect("starts").status.success());
    });
}

/// A creation beside the volume, whose own files are in nobody's way when it is repeated.
#[test]
fn a_creation() {
    disturb(
        "create w --fast wf:8M --slow ws:16M --policy lru --force",
        |_| {},
    );
}
