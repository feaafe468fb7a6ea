//! A volume on files.

use super::check;
use super::common::two_files;
use isotherm_core::RequestOp;
use isotherm_live::copying::Step;
use isotherm_live::port::{Buffer, Completion, IoRequest};
use isotherm_live::volume::{AdoptHow, ReplaceHow};
use isotherm_live::{OpenMode, Server, Volume, VolumeConfig};
use std::fs::OpenOptions;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};

struct Rig {
    dir: tempfile::TempDir,
}

impl Rig {
    fn new() -> Rig {
        let dir = tempfile::tempdir().expect("a directory");
        let config = two_files(dir.path(), "linear", 8 << 20, 32 << 20);
        let rig = Rig { dir };
        Volume::create(&rig.path("v"), config, false).expect("a volume");
        rig
    }
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
    fn open(&self) -> Result<Volume, String> {
        Volume::open(&self.path("v"), OpenMode::ReadWrite).map_err(|e| e.to_string())
    }
    fn serve(&self) -> Result<Server, String> {
        self.open()?.serve().map_err(|e| e.to_string())
    }
}

fn ask(
    server: &Server,
    op: RequestOp,
    at: u64,
    len: u32,
    fua: bool,
    fill: u8,
) -> Result<Vec<u8>, String> {
    let port = server.port();
    let buf = matches!(op, RequestOp::Read | RequestOp::Write).then(|| {
        let mut b = port.buffer(at, len);
        b.fill(fill);
        b
    });
    let (send, receive) = mpsc::channel();
    let done = Completion::new(move |r, b: Option<Buffer>| {
        let _ = send.send((r, b.map(|b| b.to_vec()).unwrap_or_default()));
    });
    port.submit(
        IoRequest {
            op,
            offset: at,
            len,
            fua,
            class: 0,
            buffer: buf,
            pages: None,
        },
        done,
    );
    let (result, data) = receive.recv().map_err(|e| e.to_string())?;
    result.map_err(|e| format!("{op:?} failed: {e:?}"))?;
    Ok(data)
}

/// Writes zeros with FUA to whole extents that have a home: more zeros than the zeroed memory has.
pub fn long_zeroes() -> Result<(), String> {
    let rig = Rig::new();
    let server = rig.serve()?;
    let bytes = 3u32 << 20;
    ask(&server, RequestOp::Write, 0, bytes, false, 0xaa)?;
    ask(&server, RequestOp::Flush, 0, 0, false, 0)?;
    ask(
        &server,
        RequestOp::WriteZeroes { keep: true },
        0,
        bytes,
        true,
        0,
    )?;
    let got = ask(&server, RequestOp::Read, 0, bytes, false, 1)?;
    check(got.iter().all(|&b| b == 0), "what was zeroed is not zeros")
}

pub fn unaligned_writes() -> Result<(), String> {
    let rig = Rig::new();
    let server = rig.serve()?;
    let mut model = vec![1; 65536];
    ask(&server, RequestOp::Write, 0, 65536, false, 1)?;
    for (i, (at, len)) in [(5000, 10), (100, 9000), (8191, 2), (20_000, 4096)]
        .into_iter()
        .enumerate()
    {
        let fill = 10 + i as u8;
        ask(
            &server,
            RequestOp::Write,
            at as u64,
            len as u32,
            false,
            fill,
        )?;
        model[at..at + len].fill(fill);
    }
    let got = ask(&server, RequestOp::Read, 0, 65536, false, 0)?;
    check(
        got == model,
        "an odd write changed its neighbours, or not what it should",
    )
}

/// The slow member is truncated while the volume is served: nothing is durable from then on.
fn cut(rig: &Rig) -> Result<Server, String> {
    let server = rig.serve()?;
    ask(&server, RequestOp::Write, 0, 20 << 20, false, 3)?;
    ask(&server, RequestOp::Flush, 0, 0, false, 0)?;
    let slow = OpenOptions::new().write(true).open(rig.path("slow"));
    slow.and_then(|f| f.set_len(16 << 20))
        .map_err(|e| e.to_string())?;
    Ok(server)
}

pub fn cut_member() -> Result<(), String> {
    let server = cut(&Rig::new())?;
    let (end, mut rounds) = (Instant::now() + Duration::from_secs(2), 0);
    // On a busy machine, one round may take longer than that.
    while rounds < 3 || Instant::now() < end {
        rounds += 1;
        let flushed = ask(&server, RequestOp::Write, 0, 20 << 20, false, 4)
            .and_then(|_| ask(&server, RequestOp::Flush, 0, 0, false, 0));
        if flushed.is_err() {
            // The error may arrive a moment before the failure is noted.
            let noted = Instant::now() + Duration::from_secs(20);
            while server.handle().failure().is_none() && Instant::now() < noted {
                std::thread::sleep(Duration::from_millis(1));
            }
            return check(
                server.handle().failure().is_some(),
                "a cut member is no failure",
            );
        }
    }
    Err("a member that was cut short goes on".to_owned())
}

/// A volume that failed must not be closed as clean, because its guarantees were not kept.
pub fn failed_is_not_clean() -> Result<(), String> {
    let rig = Rig::new();
    let server = cut(&rig)?;
    let _ = ask(&server, RequestOp::Write, 0, 20 << 20, false, 4);
    let _ = ask(&server, RequestOp::Flush, 0, 0, false, 0);
    check(server.stop().is_err(), "a volume that failed ends well")
}

/// A member is truncated, and the engine is closed at once to be opened again, so that the flush of closing fails. A new engine must not go
/// on, because it would not know what was lost. (If the cut is noticed earlier, the recording is refused in any case, so there are several
/// attempts.)
pub fn failed_is_not_reopened() -> Result<(), String> {
    for _ in 0..10 {
        let rig = Rig::new();
        let server = rig.serve()?;
        ask(&server, RequestOp::Write, 0, 20 << 20, false, 3)?;
        let slow = OpenOptions::new().write(true).open(rig.path("slow"));
        slow.and_then(|f| f.set_len(16 << 20))
            .map_err(|e| e.to_string())?;
        let begun = server.handle().record_events();
        check(begun.is_err(), "a volume that failed is served on")?;
    }
    Ok(())
}

/// A member and a copy of it from the same session: neither may be used.
pub fn twins() -> Result<(), String> {
    let rig = Rig::new();
    let server = rig.serve()?;
    ask(&server, RequestOp::Write, 0, 65536, false, 3)?;
    server.stop().map_err(|e| e.to_string())?;
    std::fs::copy(rig.path("slow"), rig.path("copy")).map_err(|e| e.to_string())?;
    match rig.open() {
        Err(why) if why.contains("both member") => Ok(()),
        Err(why) => Err(format!("refused for another reason: {why}")),
        Ok(_) => Err("one of two copies is taken".to_owned()),
    }
}

/// A tail device from before the last session: the first bytes of its disk are out of date.
pub fn old_tail() -> Result<(), String> {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name);
    let text = |e: std::io::Error| e.to_string();
    // As much of an ext4 file system as adoption looks at.
    let mut data = vec![0u8; 6 << 20];
    let fields = [
        (0, 9),
        (4, 6 << 8),
        (0x18, 2),
        (0x38, 0xef53),
        (0x60, 0x40u32),
    ];
    for (offset, value) in fields {
        data[1024 + offset..][..4].copy_from_slice(&value.to_le_bytes());
    }
    std::fs::write(at("slow"), &data).map_err(text)?;
    std::fs::write(at("tail"), vec![0; 6 << 20]).map_err(text)?;
    let mut config = two_files(dir.path(), "lru", 8 << 20, 6 << 20);
    (config.members[1].size, config.members[1].tail) = (None, Some(at("tail")));
    let how = AdoptHow::default();
    Volume::adopt(&at("v"), config, how).map_err(|e| e.to_string())?;
    std::fs::copy(at("tail"), at("old")).map_err(text)?;
    let open = || Volume::open(&at("v"), OpenMode::ReadWrite).map_err(|e| e.to_string());
    let server = open()?.serve().map_err(|e| e.to_string())?;
    ask(&server, RequestOp::Write, 0, 65536, false, 3)?;
    server.stop().map_err(|e| e.to_string())?;
    std::fs::rename(at("old"), at("tail")).map_err(text)?;
    match open() {
        Err(why) if why.contains("the tail is an older copy") => Ok(()),
        Err(why) => Err(format!("refused for another reason: {why}")),
        Ok(_) => Err("an old tail is taken".to_owned()),
    }
}

/// Writes to a disk while it is copied: after its first passes, and before the change to the new one.
pub fn written_while_copied() -> Result<(), String> {
    let rig = Rig::new();
    let server = rig.serve()?;
    // The slow disk has the end of the volume.
    let (from, bytes) = (20 << 20, 4u32 << 20);
    ask(&server, RequestOp::Write, from, bytes, false, 1)?;
    let file = rig.path("v.toml");
    let config = VolumeConfig::load(&file).map_err(|e| e.to_string())?;
    let how = ReplaceHow {
        member: Some("1".into()),
        size: Some(40 << 20),
        ..ReplaceHow::default()
    };
    let begun = (server.handle()).begin_replace((&config, &file), &rig.path("new"), &how, None);
    let mut begun = begun.map_err(|e| e.to_string())?;
    begun.copy().map_err(|e| e.to_string())?;
    ask(&server, RequestOp::Write, from, 1 << 20, true, 2)?;
    ask(
        &server,
        RequestOp::WriteZeroes { keep: true },
        from + (1 << 20),
        1 << 20,
        true,
        0,
    )?;
    loop {
        match begun.switch().map_err(|e| e.to_string())? {
            Step::Done(made) => break check(made.copied_bytes > 0, "nothing was copied")?,
            Step::Later(same) => begun = *same,
        }
        begun.copy().map_err(|e| e.to_string())?;
    }
    let got = ask(&server, RequestOp::Read, from, bytes, false, 9)?;
    let is = |mib: usize, byte| got[mib << 20..(mib + 1) << 20].iter().all(|&b| b == byte);
    check(
        is(0, 2) && is(1, 0) && is(2, 1) && is(3, 1),
        "what was written meanwhile is not on the new disk",
    )
}
