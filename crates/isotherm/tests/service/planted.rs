//! Root's commands in the directory of another user, who has put something under every name that they could write to; and files of secrets.

use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::Place;
use crate::machine::{Machine, wait_for};

/// The other user.
const STRANGER: u32 = 65_534;
/// Names beside a description that are, or once were, written to.
const NAMES: [&str; 14] = [
    "v.toml.new",
    "v.classes",
    "v.classes.new",
    "v.checked",
    "v.reservations.new",
    "events",
    "token",
    "out.json",
    "out.parquet",
    "out.parquet.part",
    "out.events",
    "ranges.json",
    "web",
    "nbd",
];

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().expect("runs");
    let is_root = id.stdout == b"0\n";
    if !is_root {
        eprintln!("SKIPPED: only root writes in another user's directory");
    }
    is_root
}

/// A command that must neither wait for a pipe nor follow a link; it may fail.
fn tried(m: &Machine, call: &str) -> Output {
    let mut child = (m.command(call).stdout(std::process::Stdio::piped()))
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("starts");
    wait_for(&format!("`{call}` waits"), || {
        child.try_wait().expect("a child").is_some()
    });
    child.wait_with_output().expect("ended")
}

fn permit(file: &Path, mode: u32) {
    std::fs::set_permissions(file, PermissionsExt::from_mode(mode)).expect("set");
}

fn plant(kind: &str, at: &Path, victim: &Path) {
    let _ = std::fs::remove_file(at);
    let _ = std::fs::remove_dir(at);
    match kind {
        "link" => symlink(victim, at).expect("made"),
        "dangling link" => symlink(victim.with_extension("made"), at).expect("made"),
        "hard link" => std::fs::hard_link(victim, at).expect("made"),
        "directory" => std::fs::create_dir(at).expect("made"),
        "pipe" => {
            let made = Command::new("mkfifo").arg(at).status();
            assert!(made.expect("runs").success());
        }
        _ => unreachable!("{kind}"),
    }
    if kind != "hard link" {
        // Fails for others than root, whose tests do not need it.
        let _ = lchown(at, Some(STRANGER), None);
    }
}

/// Everything outside of the user's directory, with contents.
fn outside(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all: Vec<_> = std::fs::read_dir(dir)
        .expect("read")
        .map(|e| e.expect("an entry").path())
        .map(|p| (p.clone(), std::fs::read(&p).expect("read")))
        .collect();
    all.sort();
    all
}

#[test]
fn what_another_user_plants_is_never_written_through() {
    if !is_root() {
        return;
    }
    let m = Machine::new();
    let (user, roots) = (m.0.path("user"), m.0.path("roots"));
    for dir in [&user, &roots] {
        std::fs::create_dir(dir).expect("made");
    }
    chown(&user, Some(STRANGER), None).expect("given");
    let u = user.display();
    m.ok(&format!(
        "create {u}/v --fast {u}/f:16M --slow {u}/s:64M --policy lru"
    ));
    let description = user.join("v.toml");
    chown(&description, Some(STRANGER), None).expect("given");
    let victim = roots.join("victim");
    std::fs::write(&victim, "precious").expect("written");
    permit(&victim, 0o600);
    let before = outside(&roots);
    for kind in ["link", "dangling link", "hard link", "pipe", "directory"] {
        for name in NAMES {
            plant(kind, &user.join(name), &victim);
        }
        // Whatever these do, they end. Then the names that keep the server from its work are free.
        let said = tried(
            &m,
            &format!("serve {u}/v --nbd unix:{u}/n --web unix:{u}/web2 --web-token {u}/token"),
        );
        assert!(!said.status.success(), "{kind}: a token");
        let said = tried(&m, &format!("serve {u}/v --nbd unix:{u}/nbd"));
        assert!(!said.status.success(), "{kind}: a socket");
        let served = m.serve(&format!("{u}/v --nbd unix:{u}/nbd2"));
        m.ok(&format!("set {u}/v moves_max=7"));
        m.ok(&format!("classes set {u}/v bytes/1M-2M=7"));
        m.ok(&format!("check --data {u}/v"));
        for call in [
            format!("stats {u}/v --json={u}/out.json"),
            format!("classes export {u}/v {u}/ranges.json"),
            format!("record {u}/v --seconds 1 --out {u}/out.parquet"),
            format!("record {u}/v --events --seconds 1 --out {u}/out.events"),
        ] {
            // A pipe that is named as an output is written to, once somebody reads it.
            if kind != "pipe" || !call.contains("json") {
                tried(&m, &call);
            }
        }
        m.ok(&format!("stop {u}/v"));
        assert_eq!(served.end().0, Some(0), "{kind}");
        assert_eq!(outside(&roots), before, "{kind}");
        let text = std::fs::read_to_string(&description).expect("read");
        assert!(text.contains("moves_max"), "{kind}: {text}");
        let owner = std::os::unix::fs::MetadataExt::uid(&description.metadata().expect("there"));
        assert_eq!(owner, STRANGER, "{kind}: still the user's");
    }
    // His link may not lead root's changes to a description of root's.
    std::fs::copy(&description, roots.join("v.toml")).expect("copied");
    std::fs::remove_file(&description).expect("removed");
    symlink(roots.join("v.toml"), &description).expect("made");
    lchown(&description, Some(STRANGER), None).expect("given");
    let before = outside(&roots);
    let served = m.serve(&format!("{u}/v --nbd unix:{u}/nbd2"));
    let said = tried(&m, &format!("set {u}/v moves_max=8"));
    let stderr = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(stderr.contains("name that directory itself"), "{stderr}");
    assert_eq!(outside(&roots), before);
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn a_start_waits_for_no_pipe_and_takes_no_open_secret() {
    let m = Machine::new();
    m.create("v");
    let said = |call: &str| {
        let out = tried(&m, call);
        assert!(!out.status.success(), "`{call}`");
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    let file = |name: &str, mode| {
        let file = m.0.path(name);
        std::fs::write(&file, "iqn.2026-01.example:a/0123456789abcdef").expect("written");
        permit(&file, mode);
        file.display().to_string()
    };
    let (open, token) = (file("open", 0o604), file("token", 0o600));
    let pipe = m.0.path("pipe").display().to_string();
    plant("pipe", Path::new(&pipe), Path::new(""));
    for (file, word) in [
        (pipe.as_str(), "a pipe"),
        ("/dev/zero", "a device"),
        ("/", "a directory"),
        (&open, "`chmod 600 "),
    ] {
        let tls = format!("web --listen 0.0.0.0:0 --web-token {token} --web-tls-cert");
        let nbd = "serve v --nbd 0.0.0.0:0 --nbd-allow-remote --nbd-tls-clients";
        for call in [
            format!("serve v --nbd unix:n --web unix:w --web-token {file}"),
            format!("serve v --iscsi 127.0.0.1:0 --iscsi-chap {file}"),
            format!("{tls} {file} --web-tls-key {file}"),
            format!("{nbd} {file} --nbd-tls-cert {file} --nbd-tls-key {file}"),
        ] {
            let said = said(&call);
            // The open file is no certificate, which is noticed before the key is read.
            let word = if call.contains("nbd-tls") && file == open {
                "no certificate"
            } else {
                word
            };
            assert!(said.contains(word), "`{call}`: {said}");
        }
    }
    // The description itself, and a data sheet that it names.
    let (description, sheet) = (m.0.path("etc/v.toml"), m.0.path("etc/s.toml"));
    let text = std::fs::read_to_string(&description).expect("read");
    std::fs::rename(&pipe, &sheet).expect("moved");
    let with = text.replacen("[[members]]", "[[members]]\npaced = \"s.toml\"", 1);
    std::fs::write(&description, with).expect("written");
    assert!(said("serve v --nbd unix:n").contains("no regular file"));
    std::fs::rename(&sheet, &description).expect("moved");
    assert!(said("serve v --nbd unix:n").contains("a pipe"));
}

/// What lies in `etc`: the description of `r`, what it names, and secrets.
fn describe(etc: &Path) {
    let description =
        "# sheet = \"no.toml\"\n[[members]]\nsheet = \"disk.toml\" # a drive\npaced=\"hdd\"\n";
    std::fs::write(etc.join("r.toml"), description).expect("written");
    for name in [
        "r.classes",
        "r.token",
        "r.key",
        "r.chap",
        "r.pem",
        "r.checked",
        "disk.toml",
        "no.toml",
        "other.toml",
    ] {
        std::fs::write(etc.join(name), name).expect("written");
    }
}

/// The image from which a machine boots holds the description and what it names, and no secret that lies beside it.
#[test]
fn the_boot_image_has_no_secrets() {
    let m = Machine::new();
    let at = |name: &str| m.0.path(name);
    describe(&at("etc"));
    std::fs::write(at("fstab"), "/dev/isotherm/r / ext4 defaults 0 1\n").expect("written");
    let functions = "copy_exec() { :; }\nmanual_add_modules() { :; }\n";
    std::fs::write(at("functions"), functions).expect("written");
    let hook = concat!(env!("CARGO_MANIFEST_DIR"), "/../../dist/initramfs/hook");
    let hook = std::fs::read_to_string(hook).expect("read");
    let etc = at("etc").display().to_string();
    // First the destination, which is below $DESTDIR, then the sources.
    let hook = (hook.replace("$DESTDIR/etc/isotherm", "$DESTDIR/there"))
        .replace(
            "/usr/share/initramfs-tools/hook-functions",
            &at("functions").display().to_string(),
        )
        .replace("/etc/fstab", &at("fstab").display().to_string())
        .replace("/etc/isotherm", &etc);
    let image = at("image");
    std::fs::create_dir_all(image.join("usr/bin")).expect("made");
    let run = (Command::new("sh").args(["-euc", &hook]))
        .env("DESTDIR", &image)
        .output()
        .expect("runs");
    assert!(
        run.status.success(),
        "{}",
        String::from_utf8_lossy(&run.stderr)
    );
    let mut names: Vec<String> = (outside(&image.join("there")).into_iter())
        .map(|(p, _)| p.file_name().expect("a name").to_string_lossy().into())
        .collect();
    names.sort();
    assert_eq!(names, ["disk.toml", "r.classes", "r.toml"]);
}

/// The same for dracut, whose functions are stand-ins here that say what they were asked for.
#[test]
fn the_boot_image_of_dracut_has_no_secrets() {
    let place = Place::new();
    let etc = place.path("etc/isotherm");
    std::fs::create_dir_all(&etc).expect("made");
    describe(&etc);
    std::fs::create_dir_all(place.path("image/usr/bin")).expect("made");
    let functions = "inst_simple() { echo $1; }
        inst_multiple() { :; }; inst_rules() { :; }; inst_hook() { :; }; inst_script() { :; }
        require_binaries() { :; }; derror() { echo \"$*\" >&2; }";
    let module = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../dist/dracut/90isotherm/module-setup.sh"
    );
    let run = |call: &str| {
        let script = format!("{functions}\n. {module}\n{call}");
        let mut bash = Command::new("bash");
        bash.args(["-c", &script])
            .env("dracutsysrootdir", place.path(""));
        bash.env("initdir", place.path("image"))
            .env("moddir", "/module");
        let out = bash.output().expect("runs");
        let (said, why) = (String::from_utf8(out.stdout), String::from_utf8(out.stderr));
        (
            out.status.success(),
            said.expect("text"),
            why.expect("text"),
        )
    };
    let root_on = |device: &str| {
        std::fs::write(
            place.path("etc/fstab"),
            format!("{device} / ext4 defaults 0 1\n"),
        )
        .expect("written");
    };
    root_on("/dev/sda1");
    assert!(!run("check").0, "a machine without a volume needs nothing");
    root_on("/dev/isotherm/r");
    assert!(run("check").0);
    let (ok, said, why) = run("install");
    assert!(ok, "{why}");
    let mut names: Vec<&str> = said.lines().collect();
    names.sort_unstable();
    let wanted = [
        "/etc/isotherm/disk.toml",
        "/etc/isotherm/r.classes",
        "/etc/isotherm/r.toml",
    ];
    assert_eq!(names, wanted);
    let link = std::fs::read_link(place.path("image/usr/bin/@isotherm"));
    assert_eq!(link.expect("a link"), Path::new("isotherm"));
    root_on("/dev/isotherm/other-volume");
    let (ok, _, why) = run("install");
    assert!(!ok && why.contains("must be there"), "{why}");
}
