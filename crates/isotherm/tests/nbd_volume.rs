//! Real NBD clients with a real volume that the program serves: copies in both directions compared by checksum with a kill -9 in between,
//! qemu-img, every command and its errors through nbdsh, fio with four connections.

mod proof;

use isotherm_hostile::Rng;
use proof::{Place, Shape, able, output, run, seed};
use std::path::Path;
use std::process::Command;

/// Shape of the volume; the sizes of the copies follow from the output of nbdinfo.
fn shape() -> Shape {
    Shape {
        fast: "32M",
        slow: "128M",
        ..Shape::default()
    }
}

fn uri(place: &Place) -> String {
    format!("nbd+unix:///v?socket={}", place.path("sock").display())
}

fn serve(place: &mut Place) {
    let socket = place.path("sock");
    place.serve(&format!("--nbd unix:{}", socket.display()));
}

fn size(uri: &str) -> u64 {
    run("nbdinfo", &["--size", uri])
        .trim()
        .parse()
        .expect("a number")
}

fn sha256(file: &Path) -> String {
    let text = run("sha256sum", &[file.to_str().expect("text")]);
    text.split(' ').next().expect("a sum").to_owned()
}

/// Data in pieces, with holes in between and ends that are aligned to nothing.
fn image(path: &Path, bytes: u64, seed: u64) {
    use std::os::unix::fs::FileExt;
    let f = std::fs::File::create(path).expect("made");
    f.set_len(bytes).expect("sized");
    let mut rng = Rng::new(seed);
    let mut at = 0;
    while at < bytes {
        let n = (rng.below(3 << 20) + 1).min(bytes - at);
        if !rng.one_in(3) {
            let data: Vec<u8> = (0..n.div_ceil(8))
                .flat_map(|_| rng.draw().to_le_bytes())
                .collect();
            f.write_all_at(&data[..n as usize], at).expect("written");
        }
        at += n;
    }
}

#[test]
fn copies_survive_kill_9_and_compare_equal() {
    if !able(&["nbdcopy", "nbdinfo", "qemu-img", "sha256sum"], false) {
        return;
    }
    let seed = seed();
    let mut place = Place::new(&shape());
    serve(&mut place);
    let uri = uri(&place);
    let bytes = size(&uri);
    let (source, back) = (place.path("source"), place.path("back"));
    image(&source, bytes, seed);
    let (source_name, back_name) = (source.to_str().expect("text"), back.to_str().expect("text"));
    run("nbdcopy", &["--flush", source_name, &uri]);
    place.kill();
    serve(&mut place);
    run("nbdcopy", &["--connections=4", &uri, back_name]);
    assert_eq!(sha256(&source), sha256(&back), "seed {seed}");
    run(
        "qemu-img",
        &["compare", "-f", "raw", "-F", "raw", source_name, &uri],
    );
    let copy = place.path("copy.qcow2");
    run(
        "qemu-img",
        &[
            "convert",
            "-f",
            "raw",
            "-O",
            "qcow2",
            &uri,
            copy.to_str().expect("text"),
        ],
    );
    run(
        "qemu-img",
        &[
            "compare",
            "-f",
            "qcow2",
            "-F",
            "raw",
            copy.to_str().expect("text"),
            &uri,
        ],
    );
    // A copy to the volume through qemu, over other data.
    image(&source, bytes, seed + 1);
    run(
        "qemu-img",
        &["convert", "-n", "-f", "raw", "-O", "raw", source_name, &uri],
    );
    place.kill();
    serve(&mut place);
    run("nbdcopy", &[&uri, back_name]);
    assert_eq!(sha256(&source), sha256(&back), "seed {seed}, by qemu-img");
    place.stop();
    place.check();
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn fio_verifies_over_four_connections() {
    if !able(&["fio", "nbdinfo"], false) {
        return;
    }
    if !output(Command::new("fio").arg("--enghelp"))
        .stdout
        .windows(3)
        .any(|w| w == b"nbd")
    {
        println!("skipped: this fio has no nbd engine");
        return;
    }
    let seed = seed();
    let mut place = Place::new(&shape());
    serve(&mut place);
    let uri = uri(&place);
    let part = size(&uri) / 4 / (1 << 20);
    let fio = |extra: &str| {
        let mut c = Command::new("fio");
        c.args([
            "--name=v",
            "--ioengine=nbd",
            "--numjobs=4",
            "--iodepth=8",
            "--rw=randwrite",
            "--bs=16k",
            "--verify=crc32c",
            "--end_fsync=1",
            "--verify_state_save=0",
        ])
        .args([
            format!("--uri={uri}"),
            format!("--size={part}m"),
            format!("--offset_increment={part}m"),
            format!("--randseed={seed}"),
            extra.to_owned(),
        ])
        .current_dir(place.path(""));
        let out = output(&mut c);
        assert!(
            out.status.success(),
            "fio {extra}: {}{}",
            String::from_utf8_lossy(&out.stdout),
            String::from_utf8_lossy(&out.stderr)
        );
    };
    fio("--do_verify=1");
    place.kill();
    serve(&mut place);
    let out = output(
        Command::new("fio")
            .args([
                "--name=v",
                "--ioengine=nbd",
                "--numjobs=4",
                "--iodepth=8",
                "--rw=randwrite",
                "--bs=16k",
                "--verify=crc32c",
                "--verify_only",
                "--verify_state_save=0",
            ])
            .args([
                format!("--uri={uri}"),
                format!("--size={part}m"),
                format!("--offset_increment={part}m"),
                format!("--randseed={seed}"),
            ])
            .current_dir(place.path("")),
    );
    assert!(
        out.status.success(),
        "after kill -9: {}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    place.stop();
}

/// Every command, and requests that must be refused. Numbers are those of errno.
const SCRIPT: &str = r#"
import errno
n = h.get_size()
assert h.can_flush() and h.can_fua() and h.can_trim() and h.can_zero() and h.can_multi_conn()
one = b"\x01" * 70000
h.pwrite(one, 65536 - 100)
assert h.pread(70000, 65536 - 100) == one
h.pwrite(b"odd", 12345, nbd.CMD_FLAG_FUA)
assert h.pread(5, 12344) == b"\0odd\0"
h.flush()
h.zero(4096, 65536)
assert h.pread(4096, 65536) == bytes(4096)
h.zero(1001, 81921, nbd.CMD_FLAG_NO_HOLE)
assert h.pread(1003, 81920) == b"\x01" + bytes(1001) + b"\x01"
h.trim(65536, 65536)
assert h.pread(65536, 65536) == bytes(65536)
if h.can_cache():
    h.cache(65536, 0)
seen = []
h.block_status(1 << 20, 0, lambda context, offset, entries, error: seen.append((context, offset, entries)))
assert seen and seen[0][0] == "base:allocation" and seen[0][1] == 0, seen
def refused(call, number):
    try:
        call()
    except nbd.Error as e:
        assert e.errnum == number, (e.errnum, number)
        return
    raise AssertionError("not refused")
h.set_strict_mode(0)
refused(lambda: h.pread(4096, n), errno.EINVAL)
refused(lambda: h.pread(4096, n - 100), errno.EINVAL)
refused(lambda: h.pwrite(bytes(4096), n - 100), errno.ENOSPC)
refused(lambda: h.zero(4096, n), errno.ENOSPC)
refused(lambda: h.trim(4096, n), errno.EINVAL)
refused(lambda: h.trim(4096, (1 << 63) - 4096), errno.EINVAL)
assert h.pread(3, 12345) == b"odd"
print("all commands")
"#;

#[test]
fn every_command_and_error_through_nbdsh() {
    if !able(&["nbdsh"], false) {
        return;
    }
    let mut place = Place::new(&shape());
    serve(&mut place);
    let said = run(
        "nbdsh",
        &["--base-allocation", "-u", &uri(&place), "-c", SCRIPT],
    );
    assert!(said.contains("all commands"), "{said}");
    // Data of FUA writes and flushed data must be there after a kill.
    place.kill();
    serve(&mut place);
    run(
        "nbdsh",
        &[
            "-u",
            &uri(&place),
            "-c",
            "assert h.pread(5, 12344) == b'\\0odd\\0'",
        ],
    );
    place.stop();
    // A read-only server must refuse every change.
    place.serve(&format!(
        "--read-only --nbd unix:{}",
        place.path("sock").display()
    ));
    run(
        "nbdsh",
        &[
            "-u",
            &uri(&place),
            "-c",
            "assert h.is_read_only()\nh.set_strict_mode(0)\ntry:\n    h.pwrite(b'x' * 512, 0)\n    raise AssertionError('written')\nexcept nbd.Error as e:\n    assert e.errnum == 1, e.errnum",
        ],
    );
}
