//! A real volume over a real store: the task page's commands, word for word, with fio and ext4 above, kills, and the loss of all flash.
//!
//! It needs root, loop devices, fio, and the program `isotherm` in the place where this one was built (`cargo build -p isotherm`).

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const PAGE: &str = include_str!("../../../docs/tasks/object-store.md");
const STORE: &str = env!("CARGO_BIN_EXE_isotherm-store");

/// The command blocks of the page, with folders of the test in the place of those of a machine.
fn blocks(url: &str, size: &str) -> Vec<String> {
    let mut all = Vec::new();
    for block in PAGE.split("```sh\n").skip(1) {
        let mut text = block.split("```").next().unwrap().to_owned();
        for (page, here) in [
            ("s3://bucket/disk1", url),
            ("/run/isotherm-store/disk1", "$T/here/disk1"),
            ("/run/isotherm/v", "$T/here/mount"),
            ("/var/lib/isotherm-store/disk1", "$T/here/spool"),
            ("/etc/isotherm/v", "$T/here/v"),
            ("/dev/nvme0n1p3", "$T/here/flash"),
            ("100T", size),
        ] {
            text = text.replace(page, here);
        }
        all.push(text);
    }
    all
}

/// The commands of a block; the last but a server's waits until it serves.
fn with_waits(block: &str) -> String {
    let mut out = String::new();
    for line in block.lines() {
        let Some(command) = line.strip_suffix(" &") else {
            let _ = writeln!(out, "{line}");
            continue;
        };
        let (file, name) = if command.starts_with("isotherm-store") {
            ("disk1/disk", "store")
        } else {
            ("mount/v", "volume")
        };
        let _ = writeln!(
            out,
            "{command} >>$T/{name}.log 2>&1 & {name}=$!\nwait_for test -e $T/here/{file}"
        );
    }
    out
}

const PRELUDE: &str = r#"set -eu
wait_for() { n=0; until "$@"; do n=$((n + 1)); [ $n -lt 600 ] || { echo "waited in vain: $*" >&2; exit 9; }; sleep 0.1; done; }
waiting() { isotherm-store status $T/here/spool | awk -F'[:,]' '/waiting_bytes/ { exit $2 != 0 }'; }
end() {
    failed=$?
    [ $failed = 0 ] || cat $T/*.log >&2
    kill -9 ${volume:-} ${store:-} 2>/dev/null || :
    umount -l $T/mnt $T/here/mount $T/here/disk1 2>/dev/null || :
    wait
    exit $failed
}
trap end EXIT
gone() { ! test -e $1; }
all_die() {
    kill -9 $volume $store; wait $volume $store || :
    umount -l $T/mnt; umount -l $T/here/mount; umount -l $T/here/disk1
}
fio_() { fio --name=$1 --directory=$T/mnt --size=24M --bs=4k --rw=randwrite --ioengine=psync --fsync=32 --verify=crc32c "$2" --output=$T/fio.log; }
mkdir -p $T/mnt $T/here $T/objects
truncate -s 64M $T/here/flash
"#;

fn script(url: &str, size: &str) -> String {
    let blocks = blocks(url, size);
    let [build, status, elsewhere, flash] = &blocks[..] else {
        panic!("{} blocks", blocks.len())
    };
    let mut text = PRELUDE.to_owned();
    text += &with_waits(build).replace("--spool ", "--order-s 1 --cache 16M --spool ");
    text += "mkfs.ext4 -q -F $T/here/mount/v 512M\nmount -o loop $T/here/mount/v $T/mnt\n";
    text += "fio_ first --do_verify=0\nsync\n";
    text += &with_waits(status);
    // Killed in the middle of uploads; the spool is replayed.
    text += "echo acknowledged >$T/mnt/mark; sync $T/mnt/mark\nall_die\n";
    let serve: String = build
        .lines()
        .filter(|l| l.ends_with('&'))
        .fold(String::new(), |t, l| t + l + "\n");
    text += &with_waits(&serve).replace("--spool ", "--order-s 1 --cache 16M --spool ");
    text += "mount -o loop $T/here/mount/v $T/mnt\ngrep -q acknowledged $T/mnt/mark\nfio_ first --verify_only\n";
    text += "fio_ second --do_verify=0\nsync\nwait_for waiting\nall_die\n";
    // All that was local is lost.
    text += "mv $T/here $T/lost; mkdir $T/here\n";
    text += &with_waits(elsewhere);
    text += "e2fsck -fy $T/here/mount/v >$T/fsck.log || [ $? -le 1 ]\nmount -o loop $T/here/mount/v $T/mnt\n";
    text += "fio_ first --verify_only\nfio_ second --verify_only\nfio_ third --do_verify=0\numount $T/mnt\n";
    text += "truncate -s 64M $T/here/flash\n";
    let (stop, replace) = flash.split_once('\n').unwrap();
    let _ = writeln!(text, "{stop}\nwait $volume\nvolume=\n{replace}");
    text += "kill $store; wait $store\nstore=\n";
    text
}

fn skip(why: &str) {
    eprintln!("SKIPPED: {why}");
}

fn able() -> Option<PathBuf> {
    let beside = Path::new(STORE).with_file_name("isotherm");
    let has = |program: &str| {
        Command::new("sh")
            .args(["-c", &format!("command -v {program}")])
            .output()
            .is_ok_and(|o| o.status.success())
    };
    if !beside.exists() {
        skip("the program isotherm is not built");
        return None;
    }
    if !["fio", "mkfs.ext4", "mount"].into_iter().all(has)
        || !Path::new("/dev/fuse").exists()
        || !Path::new("/dev/loop-control").exists()
    {
        skip("needs fio, mkfs.ext4, FUSE and loop devices");
        return None;
    }
    Some(beside.parent()?.to_owned())
}

fn run(script: &str, dir: &Path, programs: &Path, variables: &[(&str, String)]) -> Output {
    let path = format!(
        "{}:{}",
        programs.display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let mut command = Command::new("bash");
    command
        .args(["-c", script])
        .env("T", dir)
        .env("PATH", path)
        .env("XDG_RUNTIME_DIR", dir);
    command.envs(variables.iter().cloned()).output().unwrap()
}

fn check(out: &Output) {
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(
        out.status.success(),
        "{}\n{said}",
        String::from_utf8_lossy(&out.stdout)
    );
}

#[test]
fn the_task_page_over_a_directory() {
    let Some(programs) = able() else { return };
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file://{}/objects/prefix", dir.path().display());
    check(&run(&script(&url, "2G"), dir.path(), &programs, &[]));
    // Two readers of the store agree: the program, and a page of Python written from the description.
    let read = r"isotherm-store read-out $URL $T/one
python3 $PY $T/objects/prefix $T/two
cmp $T/one $T/two";
    let py = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/read_out.py").to_owned();
    check(&run(
        &format!("set -e\n{read}"),
        dir.path(),
        &programs,
        &[("URL", url), ("PY", py)],
    ));
}

#[test]
fn the_task_page_over_s3() {
    let Some(programs) = able() else { return };
    let Ok(mut server) = Command::new("moto_server")
        .args(["-p", "5977"])
        .stderr(std::process::Stdio::null())
        .spawn()
    else {
        return skip("needs moto_server (pip install 'moto[s3,server]')");
    };
    let dir = tempfile::tempdir().unwrap();
    let variables = [
        ("AWS_ACCESS_KEY_ID", "testing"),
        ("AWS_SECRET_ACCESS_KEY", "testing-secret-word"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:5977"),
    ]
    .map(|(k, v)| (k, v.to_owned()));
    let bucket = "import time, urllib.request as u\nfor i in range(100):\n  try:\n    u.urlopen(u.Request('http://127.0.0.1:5977/bucket', method='PUT')); break\n  except OSError: time.sleep(0.2)\nelse: raise SystemExit(7)";
    let made = Command::new("python3")
        .args(["-c", bucket])
        .output()
        .unwrap();
    if !made.status.success() {
        let _ = server.kill();
        let _ = server.wait();
        return skip("moto_server does not answer");
    }
    let out = run(
        &script("s3://bucket/disk1", "1T"),
        dir.path(),
        &programs,
        &variables,
    );
    let _ = server.kill();
    let _ = server.wait();
    check(&out);
    // Nothing that a person or a log sees holds the secret.
    let grep = Command::new("grep")
        .args(["-r", "testing-secret-word"])
        .arg(dir.path())
        .output()
        .unwrap();
    assert!(
        !grep.status.success(),
        "{}",
        String::from_utf8_lossy(&grep.stdout)
    );
}
