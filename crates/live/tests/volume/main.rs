//! A volume end to end, in one process: create, serve, write and read through the port, stop, open again.

#[path = "../common/mod.rs"]
mod common;
mod old_disk;

use common::two_files;
use isotherm_core::{IoError, RequestOp};
use isotherm_live::config::Size;
use isotherm_live::port::{Buffer, Completion, IoRequest, Port};
use isotherm_live::volume::description;
use isotherm_live::{ErrorKind, OpenMode, Server, Volume, VolumeConfig};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

struct Rig {
    dir: tempfile::TempDir,
}

impl Rig {
    fn config(&self, policy: &str) -> VolumeConfig {
        two_files(self.dir.path(), policy, 16 << 20, 64 << 20)
    }
    fn new(policy: &str) -> Rig {
        let rig = Rig {
            dir: tempfile::tempdir().unwrap(),
        };
        Volume::create(&rig.volume(), rig.config(policy), false).unwrap();
        rig
    }
    fn volume(&self) -> PathBuf {
        self.dir.path().join("v")
    }
    fn serve(&self) -> Server {
        Volume::open(&self.volume(), OpenMode::ReadWrite)
            .unwrap()
            .serve()
            .unwrap()
    }
}

fn ask(
    port: &Arc<dyn Port>,
    op: RequestOp,
    offset: u64,
    len: u32,
    fua: bool,
    fill: Option<u8>,
) -> (Result<(), IoError>, Option<Buffer>) {
    let buf = matches!(op, RequestOp::Read | RequestOp::Write).then(|| {
        let mut b = port.buffer(offset, len);
        b.fill(fill.unwrap_or(0xee));
        b
    });
    let (send, receive) = mpsc::channel();
    port.submit(
        IoRequest {
            op,
            offset,
            len,
            fua,
            class: 0,
            buffer: buf,
            pages: None,
        },
        Completion::new(move |r, b| send.send((r, b)).unwrap()),
    );
    receive.recv().unwrap()
}

fn write(port: &Arc<dyn Port>, offset: u64, len: u32, fill: u8) {
    assert_eq!(
        ask(port, RequestOp::Write, offset, len, false, Some(fill)).0,
        Ok(())
    );
}

fn read(port: &Arc<dyn Port>, offset: u64, len: u32) -> Vec<u8> {
    let (result, buf) = ask(port, RequestOp::Read, offset, len, false, None);
    assert_eq!(result, Ok(()));
    buf.unwrap().to_vec()
}

#[test]
fn what_was_written_is_there_after_stop_and_open() {
    let rig = Rig::new("greendm");
    let server = rig.serve();
    let port = server.port();
    assert_eq!(read(&port, 0, 8192), [0; 8192]);
    write(&port, 0, 65536, 1);
    write(&port, 1 << 20, 300_000, 2);
    // A write with unaligned begin and end, across an extent border.
    write(&port, 65536 - 100, 250, 3);
    assert_eq!(
        ask(&port, RequestOp::Write, 5000, 10, true, Some(4)).0,
        Ok(())
    );
    assert_eq!(ask(&port, RequestOp::Flush, 0, 0, false, None).0, Ok(()));
    server.stop().unwrap();
    let volume = Volume::open(&rig.volume(), OpenMode::ReadWrite).unwrap();
    assert!(volume.report().was_clean, "{:?}", volume.report());
    let server = volume.serve().unwrap();
    let port = server.port();
    let head = read(&port, 0, 70_000);
    for (i, &b) in head.iter().enumerate() {
        let want = match i {
            5000..5010 => 4,
            ..65436 => 1,
            65436..65686 => 3,
            _ => 0,
        };
        assert_eq!(b, want, "byte {i}");
    }
    assert!(read(&port, 1 << 20, 300_000).iter().all(|&b| b == 2));
    server.stop().unwrap();
}

#[test]
fn random_requests_of_all_kinds_agree_with_a_flat_array() {
    for (policy, seed) in [("greendm", 1u64), ("hot-dst-recency", 2), ("mylinear", 3)] {
        let rig = Rig::new(policy);
        let mut model = vec![0u8; 24 << 20];
        let mut numbers = isotherm_core::random::SplitMix64::new(seed);
        let mut random = move |n| numbers.below(n);
        for session in 0..3 {
            let server = rig.serve();
            let port = server.port();
            for step in 0..300 {
                let len = [1, 100, 512, 4096, 5000, 65536, 200_000][random(7) as usize];
                let mut offset = random((24 << 20) - 200_000);
                if random(2) == 0 {
                    offset &= !4095;
                }
                let range = offset as usize..offset as usize + len as usize;
                let fill = random(255) as u8 + 1;
                let at = format!("{policy}, session {session}, step {step}, {range:?}");
                match random(10) {
                    0..4 => {
                        let got = read(&port, offset, len);
                        let wrong = got
                            .iter()
                            .zip(&model[range.clone()])
                            .position(|(a, b)| a != b);
                        assert_eq!(wrong, None, "read: {at}");
                    }
                    4..8 => {
                        let fua = random(8) == 0;
                        assert_eq!(
                            ask(&port, RequestOp::Write, offset, len, fua, Some(fill)).0,
                            Ok(()),
                            "{at}"
                        );
                        model[range].fill(fill);
                    }
                    8 => {
                        let keep = random(2) == 0;
                        assert_eq!(
                            ask(
                                &port,
                                RequestOp::WriteZeroes { keep },
                                offset,
                                len,
                                false,
                                None
                            )
                            .0,
                            Ok(()),
                            "zeroes: {at}"
                        );
                        model[range].fill(0);
                    }
                    _ => assert_eq!(ask(&port, RequestOp::Flush, 0, 0, false, None).0, Ok(())),
                }
            }
            server.stop().unwrap();
        }
        let server = rig.serve();
        let port = server.port();
        for (i, part) in model.chunks(1 << 20).enumerate() {
            assert!(
                read(&port, (i as u64) << 20, 1 << 20) == part,
                "{policy}, MiB {i}"
            );
        }
    }
}

#[test]
fn many_requests_at_once_from_many_threads() {
    let rig = Rig::new("greendm");
    let server = rig.serve();
    std::thread::scope(|s| {
        for t in 0..4u64 {
            let port = server.port();
            s.spawn(move || {
                let base = t << 22;
                let (send, receive) = mpsc::channel();
                for i in 0..256u64 {
                    let mut buf = port.buffer(base + i * 16384, 16384);
                    buf.fill((t * 50 + i % 50) as u8 + 1);
                    let send = send.clone();
                    let done = Completion::new(move |r, _| send.send(r).unwrap());
                    port.submit(IoRequest::write(base + i * 16384, 16384, buf), done);
                }
                assert!((0..256).all(|_| receive.recv() == Ok(Ok(()))));
                for i in 0..256u64 {
                    let want = (t * 50 + i % 50) as u8 + 1;
                    assert!(
                        read(&port, base + i * 16384, 16384)
                            .iter()
                            .all(|&b| b == want)
                    );
                }
            });
        }
    });
    let handle = server.handle();
    let counters = handle.call(|engine, _| engine.counters().clone()).unwrap();
    assert_eq!((counters.reads, counters.writes), (1024, 1024));
    assert_eq!(handle.buffer_bytes_out(), 0);
    server.stop().unwrap();
    assert!(handle.call(|_, _| ()).is_none());
    let port: Arc<dyn Port> = Arc::new(handle);
    assert_eq!(
        ask(&port, RequestOp::Read, 0, 4096, false, None).0,
        Err(IoError::Gone)
    );
}

#[test]
fn block_status_tells_written_from_unwritten() {
    let rig = Rig::new("greendm");
    let server = rig.serve();
    let port = server.port();
    write(&port, 65536, 65536, 1);
    write(&port, 4 * 65536 + 8192, 4096, 1);
    let want = [
        (65536, false),
        (65536, true),
        (2 * 65536 + 8192, false),
        (4096, true),
        (65536 - 12288, false),
    ];
    assert_eq!(port.block_status(0, 5 * 65536, 100), want);
    assert_eq!(port.block_status(0, 5 * 65536, 2), want[..2]);
    assert_eq!(port.block_status(65536 + 10, 20, 9), [(20, true)]);
    assert_eq!(
        ask(&port, RequestOp::Discard, 65536, 65536, false, None).0,
        Ok(())
    );
    assert_eq!(port.block_status(0, 3 * 65536, 9), [(3 * 65536, false)]);
}

#[test]
fn impossible_requests_are_refused() {
    let rig = Rig::new("greendm");
    let server = rig.serve();
    let port = server.port();
    let end = port.volume_bytes();
    assert_eq!(
        ask(&port, RequestOp::Read, end - 512, 1024, false, None).0,
        Err(IoError::Invalid)
    );
    for len in [0, 100] {
        assert_eq!(
            ask(
                &port,
                RequestOp::WriteZeroes { keep: true },
                end - 1,
                len,
                false,
                None
            )
            .0,
            Err(IoError::Invalid)
        );
    }
    drop(port);
    server.stop().unwrap();
    let server = Volume::open(&rig.volume(), OpenMode::ReadOnly)
        .unwrap()
        .serve()
        .unwrap();
    let port = server.port();
    assert!(port.read_only());
    assert_eq!(
        ask(&port, RequestOp::Write, 0, 512, false, Some(1)).0,
        Err(IoError::ReadOnly)
    );
    assert_eq!(read(&port, 0, 512), [0; 512]);
    server.stop().unwrap();
}

fn refusal(volume: &Path, mode: OpenMode) -> (ErrorKind, String) {
    match Volume::open(volume, mode) {
        Ok(_) => panic!("must be refused"),
        Err(e) => (e.kind, e.to_string()),
    }
}

#[test]
fn wrong_set_ups_are_refused_with_the_reason() {
    let rig = Rig::new("greendm");
    let again = Volume::create(&rig.volume(), rig.config("greendm"), false).unwrap_err();
    assert!(again.to_string().contains("exists already"), "{again}");
    let other =
        Volume::create(&rig.dir.path().join("w"), rig.config("greendm"), false).unwrap_err();
    assert!(
        other.kind == ErrorKind::InUse
            && other
                .to_string()
                .contains("belongs to a volume already (`v`)"),
        "{other}"
    );
    let server = rig.serve();
    let (kind, text) = refusal(&rig.volume(), OpenMode::ReadWrite);
    assert!(
        kind == ErrorKind::InUse && text.contains("device in use by process"),
        "{text}"
    );
    drop(server);
    let edit = |from: &str, to: &str| {
        let file = description(&rig.volume());
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.contains(from), "{from} in {text}");
        std::fs::write(&file, text.replace(from, to)).unwrap();
    };
    edit("64K", "128K");
    assert!(
        refusal(&rig.volume(), OpenMode::ReadWrite)
            .1
            .contains("extent: the volume was created with 65536")
    );
    edit("128K", "64K");
    // A member in a distant directory is not found by its superblock either.
    let away = tempfile::tempdir().unwrap();
    let (here, there) = (rig.dir.path().join("slow"), away.path().join("slow"));
    std::fs::rename(&here, &there).unwrap();
    edit("/slow", "/none");
    assert!(
        refusal(&rig.volume(), OpenMode::ReadWrite)
            .1
            .contains("does not exist")
    );
    // The data that survives is served.
    let half = Volume::open(&rig.volume(), OpenMode::ReadOnly).unwrap();
    assert!(
        half.notes().iter().any(|n| n.contains("served without")),
        "{:?}",
        half.notes()
    );
    drop(half);
    edit("/none", "/slow");
    std::fs::rename(&there, &here).unwrap();
    std::fs::File::options()
        .write(true)
        .open(rig.dir.path().join("slow"))
        .unwrap()
        .set_len(8 << 20)
        .unwrap();
    let (_, text) = refusal(&rig.volume(), OpenMode::ReadWrite);
    assert!(text.contains("cut short"), "{text}");
}

#[test]
fn a_damaged_first_superblock_is_no_loss() {
    use std::os::unix::fs::FileExt;
    let rig = Rig::new("greendm");
    let server = rig.serve();
    write(&server.port(), 0, 65536, 9);
    server.stop().unwrap();
    let fast = std::fs::File::options()
        .write(true)
        .open(rig.dir.path().join("fast"))
        .unwrap();
    fast.write_all_at(&[0; 4096], 0).unwrap();
    fast.sync_all().unwrap();
    drop(fast);
    let server = rig.serve();
    assert_eq!(read(&server.port(), 0, 65536), vec![9; 65536]);
}

#[test]
fn nothing_is_created_half_way() {
    let rig = Rig {
        dir: tempfile::tempdir().unwrap(),
    };
    let mut config = rig.config("greendm");
    config.members[1].size = Some(Size(1 << 20));
    let e = Volume::create(&rig.volume(), config, false).unwrap_err();
    assert!(e.to_string().contains("room for no extent"), "{e}");
    assert_eq!(std::fs::read_dir(rig.dir.path()).unwrap().count(), 0);
    let made = Volume::create(&rig.volume(), rig.config("greendm"), false).unwrap();
    let all: u64 = made.slots.iter().map(|&n| u64::from(n)).sum();
    let reserve = u64::from((made.slots[1] / 16).clamp(2, 64));
    assert_eq!(made.volume_bytes, (all - reserve) * 65536);
}

#[test]
fn a_paced_volume_counts_what_its_model_did() {
    let rig = Rig {
        dir: tempfile::tempdir().unwrap(),
    };
    let mut config = rig.config("mylinear");
    config.members[1].paced = Some("wd5000aaks".into());
    let made = Volume::create(&rig.volume(), config, false).unwrap();
    let server = rig.serve();
    let port = server.port();
    let fast = u64::from(made.slots[0]) * 65536;
    write(&port, fast + 65536, 65536, 5);
    assert_eq!(read(&port, fast + 65536, 4096), [5; 4096]);
    let (counters, _) = server
        .handle()
        .call(|_, world| world.model(1))
        .flatten()
        .unwrap();
    assert!(
        counters.bytes_written >= 65536 && counters.bytes_read >= 4096,
        "{counters:?}"
    );
    assert!(
        server
            .handle()
            .call(|_, world| world.model(0).is_none())
            .unwrap()
    );
    server.stop().unwrap();
}
