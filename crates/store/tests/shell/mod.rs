//! Shell scripts over the programs `isotherm` and `isotherm-store`: root, loop devices and fio are needed, and `isotherm` in the place where this
//! program was built (`cargo build -p isotherm`).
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

const STORE: &str = env!("CARGO_BIN_EXE_isotherm-store");

/// Functions for scripts; all files are below `$T`. A volume is served as `$T/here/mount/v`, and `$volume` and `$store` are processes.
pub const PRELUDE: &str = r#"set -eu
V=$T/here/v
wait_for() { n=0; until "$@"; do n=$((n + 1)); [ $n -lt 3000 ] || { echo "waited in vain: $*" >&2; exit 9; }; sleep 0.1; done; }
waiting() { awk -F'[:,]' '/waiting_bytes/ { exit $2 != 0 }' $V.spool/status.json; }
told() { sed -n "s/.*\"$1\": *\([^,]*\).*/\1/p" $V.spool/status.json; }
end() {
    failed=$?
    [ $failed = 0 ] || cat $T/*.log >&2
    kill -9 ${volume:-} ${store:-} 2>/dev/null || :
    [ ! -e $V.spool/status.json ] || kill -9 $(told process) 2>/dev/null || :
    umount -l $T/mnt $T/here/mount $T/here/disk1 $V.disk 2>/dev/null || :
    wait
    exit $failed
}
trap end EXIT
fails() { if "$@" >$T/said 2>&1; then echo "did not fail: $*" >&2; exit 8; fi; }
says() { grep -q -- "$1" $T/said || { echo "not said: $1" >&2; cat $T/said >&2; exit 7; }; }
ended() { ! kill -0 $1 2>/dev/null; }
another() { q=$(told process); [ "$q" != $1 ] && kill -0 $q 2>/dev/null; }
fio_() { fio --name=$1 --directory=$T/mnt --size=24M --bs=4k --rw=randwrite --ioengine=psync --fsync=32 --verify=crc32c "$2" --output=$T/fio.log; }
make() { isotherm create $V --fast $T/here/flash --slow $URL:${1:-2G} --store order_s=1 --store cache=16M; }
serve() {
    isotherm serve $V --block-file $T/here/mount >>$T/volume.log 2>&1 & volume=$!
    wait_for test -e $T/here/mount/v
}
mkdir -p $T/mnt $T/here/mount $T/objects
truncate -s 64M $T/here/flash
"#;

/// Says that a test was skipped.
pub fn skip(why: &str) {
    eprintln!("SKIPPED: {why}");
}

/// The folder of the programs, if this machine can run the scripts.
pub fn able() -> Option<PathBuf> {
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

/// Runs a script.
pub fn run(script: &str, dir: &Path, programs: &Path, variables: &[(&str, String)]) -> Output {
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

/// Checks that it has succeeded.
pub fn check(out: &Output) {
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(
        out.status.success(),
        "{}\n{said}",
        String::from_utf8_lossy(&out.stdout)
    );
}

/// A server of S3 for the test, with the bucket `bucket`; the variables with which it is reached.
pub struct S3 {
    server: Child,
    pub variables: Vec<(&'static str, String)>,
}

impl Drop for S3 {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

const BUCKET: &str = "import sys, time, urllib.request as u
for i in range(100):
  try:
    u.urlopen(u.Request(sys.argv[1] + '/bucket', method='PUT')); break
  except OSError: time.sleep(0.2)
else: raise SystemExit(7)";

/// The variables of a client of an S3 server at this port.
pub fn variables(port: u16) -> Vec<(&'static str, String)> {
    [
        ("AWS_ACCESS_KEY_ID", "testing".to_owned()),
        ("AWS_SECRET_ACCESS_KEY", "testing-secret-word".to_owned()),
        ("AWS_REGION", "us-east-1".to_owned()),
        ("AWS_ALLOW_HTTP", "true".to_owned()),
        ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}")),
    ]
    .to_vec()
}

impl S3 {
    /// Starts it, if it is installed.
    pub fn start(port: u16) -> Option<S3> {
        let started = Command::new("moto_server")
            .args(["-p", &port.to_string()])
            .stderr(Stdio::null())
            .spawn();
        let Ok(server) = started else {
            skip("needs moto_server (pip install 'moto[s3,server]')");
            return None;
        };
        let variables = variables(port);
        let s3 = S3 { server, variables };
        let made = Command::new("python3")
            .args(["-c", BUCKET, &format!("http://127.0.0.1:{port}")])
            .output();
        if !made.unwrap().status.success() {
            skip("moto_server does not answer");
            return None;
        }
        Some(s3)
    }
}
