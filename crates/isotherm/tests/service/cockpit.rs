//! The page of Debian's Cockpit, in a real browser over a real bridge (`make cockpit-check`, root). Only `systemctl` is a stand-in, because a
//! test's machine may have no systemd.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::json;

use crate::chromium::Browser;
use crate::common::{Place, executable};
use crate::machine::{Machine, free_port, has, wait_for};

const WS: &str = "/usr/lib/cockpit/cockpit-ws";
/// Harm would be seen: this makes an element and, without the page's policy, runs a script.
const HOSTILE: &str = "\"'><img src=x onerror=hurt=1>";
const MIDDLE: (f64, f64) = (0.5, 0.5);

/// Cockpit with its bridge, and a package directory in which nothing but our page lies.
struct Cockpit {
    child: Child,
    port: u16,
}

impl Cockpit {
    /// The page by itself.
    fn page(&self) -> String {
        format!(
            "http://127.0.0.1:{}/cockpit/@localhost/isotherm/index.html",
            self.port
        )
    }
}

impl Drop for Cockpit {
    fn drop(&mut self) {
        // The bridge, and what it started, end with it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Copies the page as the Debian package holds it, for descriptions in the machine's own directory and programs in `bin`: the bridge has a
/// search path of its own.
fn install(m: &Machine, bin: &Path) {
    let to = m.0.path("data/cockpit/isotherm");
    std::fs::create_dir_all(&to).expect("made");
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for from in ["crates/web/assets", "dist/cockpit"] {
        let files = std::fs::read_dir(tree.join(from)).expect("there");
        for file in files.map(|f| f.expect("read").path()) {
            if file.is_file() {
                std::fs::copy(&file, to.join(file.file_name().expect("a name"))).expect("copied");
            }
        }
    }
    let change = |name: &str, from: &str, into: &str| {
        let text = std::fs::read_to_string(to.join(name)).expect("read");
        assert_eq!(text.matches(from).count(), 1, "{name}: {from}");
        std::fs::write(to.join(name), text.replace(from, into)).expect("written");
    };
    let etc = m.0.path("etc").display().to_string();
    change("actions.js", "'/etc/isotherm'", &format!("'{etc}'"));
    let cockpit = "const { cockpit } = window;";
    let spawn = format!(
        "{cockpit} {{ const s = cockpit.spawn; cockpit.spawn = ([p, ...a], o) => s(['{}/' + p, ...a], o); }}",
        bin.display()
    );
    change("transport.js", cockpit, &spawn);
}

/// Cockpit for a user who is logged in, by a program that changes to him.
fn start(m: &Machine, user: &[&str]) -> Cockpit {
    let bin = m.0.path("bin");
    std::fs::create_dir(&bin).expect("made");
    install(m, &bin);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_isotherm"), bin.join("isotherm"))
        .expect("linked");
    let log = m.0.path("systemctl").display().to_string();
    executable::script(
        &format!("echo \"$@\" >>{log}"),
        &bin.join("systemctl"),
        0o755,
    );
    // Besides the real devices one whose label is hostile.
    let device = json!({"path": "/dev/x", "model": HOSTILE});
    let lsblk = format!(
        "case $1 in\n--json) lsblk \"$@\" | sed '/\"blockdevices\"/r {0}' ;;\n*) lsblk \"$@\"; cat {0} ;;\nesac",
        m.0.path("device").display()
    );
    std::fs::write(m.0.path("device"), format!("{device},\n")).expect("written");
    executable::script(&lsblk, &bin.join("lsblk"), 0o755);
    let port = free_port();
    let call = [
        user,
        &[
            WS,
            "--local-session=cockpit-bridge",
            "-a",
            "127.0.0.1",
            "-p",
        ],
    ]
    .concat();
    let mut ws = Command::new(call[0]);
    m.set(&mut ws);
    let child = ws
        .args(&call[1..])
        .arg(port.to_string())
        .env("HOME", m.0.path("mnt"))
        .env("XDG_DATA_HOME", m.0.path("data"))
        .env("XDG_CONFIG_DIRS", m.0.path("away"))
        // Without these the bridge starts a bus and an agent, which outlive a bridge that was cut off.
        .env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nowhere")
        .env("SSH_AUTH_SOCK", "/nowhere")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("cockpit-ws starts");
    let cockpit = Cockpit { child, port };
    wait_for("Cockpit listens", || {
        std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    cockpit
}

/// The sockets over which pages get their figures.
fn sockets() -> Vec<PathBuf> {
    let run = std::fs::read_dir("/run").expect("there").flatten();
    let ours = run.filter(|f| {
        f.file_name()
            .to_string_lossy()
            .starts_with("isotherm-cockpit-")
    });
    ours.map(|f| f.path()).collect()
}

fn field(b: &mut Browser, name: &str, value: &str) {
    b.wait(&format!(
        "document.querySelector('#dialog[open] input[name={name}]') !== null"
    ));
    b.click_on(
        &format!("document.querySelector('#dialog input[name={name}]')"),
        MIDDLE,
    );
    b.insert(value);
}

fn go(b: &mut Browser) {
    b.wait("document.querySelector('#dialog[open] #go:not(:disabled)') !== null");
    b.click("go", MIDDLE);
}

/// Types the name of the volume; without it nothing can be done.
fn confirm(b: &mut Browser, name: &str) {
    b.wait("document.querySelector('#dialog[open] #typed') !== null");
    assert_eq!(
        b.eval("document.getElementById('go').disabled"),
        json!(true)
    );
    b.click("typed", MIDDLE);
    b.insert("x");
    assert_eq!(
        b.eval("document.getElementById('go').disabled"),
        json!(true)
    );
    b.eval("document.getElementById('typed').value = ''; true");
    b.insert(name);
    go(b);
}

fn said(b: &mut Browser, words: &str) {
    let words = json!(words);
    b.wait(&format!(
        "document.getElementById('dialog').open && document.getElementById('dialog').innerText.includes({words})"
    ));
}

/// Opens the dialog of a button, and waits until the list has it.
fn press(b: &mut Browser, id: &str) {
    b.wait(&format!("document.getElementById('{id}') !== null"));
    b.click(id, MIDDLE);
}

fn close(b: &mut Browser) {
    b.click("close", MIDDLE);
    b.wait("!document.getElementById('dialog').open");
}

/// A volume over flash with a file system on it: refused, then erased on purpose.
fn create(b: &mut Browser, m: &Machine) {
    let etc = m.0.path("etc").display().to_string();
    let made = m.0.tool("mkfs.ext4", &["-q", "etc/f", "32M"]);
    assert!(made.status.success());
    press(b, "create");
    field(b, "name", "films");
    field(b, "fast", &format!("{etc}/f"));
    field(b, "slow", &format!("{etc}/s:128M"));
    go(b);
    said(b, "will be erased");
    said(b, "/dev/x");
    b.picture("cockpit-create");
    confirm(b, "films");
    said(b, "Not done.");
    said(b, "carries an ext4 file system");
    assert!(!m.0.path("etc/films.toml").exists());
    b.picture("cockpit-refused");
    confirm(b, "films");
    said(b, "Done.");
    assert!(m.0.path("etc/films.toml").exists());
    close(b);
}

fn adopt(b: &mut Browser, m: &Machine) {
    let etc = m.0.path("etc").display().to_string();
    let made = m.0.tool("mkfs.ext4", &["-q", "etc/old", "56M"]);
    assert!(made.status.success());
    let file = std::fs::File::options()
        .write(true)
        .open(m.0.path("etc/old"));
    file.and_then(|f| f.set_len(64 << 20)).expect("enlarged");
    press(b, "adopt");
    field(b, "name", "kept");
    field(b, "slow", &format!("{etc}/old"));
    field(b, "fast", &format!("{etc}/g:32M"));
    go(b);
    said(b, "stays in place and becomes volume");
    assert!(!m.0.path("etc/kept.toml").exists());
    b.picture("cockpit-adopt");
    confirm(b, "kept");
    said(b, "Done.");
    assert!(m.0.path("etc/kept.toml").exists());
    close(b);
}

/// Nothing is wider than the screen, and every button can be reached. The width of the window would grow with the page.
fn on_a_phone(b: &mut Browser, name: &str) {
    b.look(390, 844, false);
    let fits = "document.documentElement.scrollWidth <= 390 && [...document.querySelectorAll('#all button, #dialog[open] button')].every((e) => { const r = e.getBoundingClientRect(); return r.left >= 0 && r.right <= 390 && r.height >= 30; })";
    b.wait(fits);
    b.upper_part(name, 390, 844);
    b.look(1280, 900, false);
}

/// Names that would be markup are text, and arguments as they are.
fn hostile(b: &mut Browser, m: &Machine) {
    let etc = m.0.path("etc");
    let volume = etc.join(HOSTILE);
    let flash = etc.join(format!("f{HOSTILE}"));
    let mut create = m.command("create");
    let sized = |p: &Path, size: &str| format!("{}:{size}", p.display());
    create.arg(&volume).arg("--fast").arg(sized(&flash, "16M"));
    create.arg("--slow").arg(sized(&etc.join("hs"), "64M"));
    assert!(create.output().expect("runs").status.success());
    let mut serve = m.command("serve");
    serve.arg(&volume).args(["--nbd", "unix:h"]);
    let served = Place::wait_ready(serve, "hostile");
    let shown = json!(HOSTILE);
    let mine = format!(
        "[...document.querySelectorAll('#volumes li')].find((e) => e.innerText.includes({shown}))"
    );
    b.wait(&format!("{mine}?.querySelector('a') != null"));
    b.click_on(&format!("{mine}.querySelector('a')"), (0.1, 0.5));
    b.wait(&format!(
        "document.getElementById('name').innerText === {shown}"
    ));
    let member = json!(flash);
    b.wait(&format!(
        "document.getElementById('members').innerText.includes({member})"
    ));
    on_a_phone(b, "cockpit-phone-hostile");
    b.click_on(&format!("{mine}.querySelector('[id^=stop]')"), MIDDLE);
    confirm(b, HOSTILE);
    said(b, "stopped");
    let mut served = served;
    wait_for("it ends", || served.has_ended());
    close(b);
    b.wait(&format!("{mine}?.innerText.includes('stopped') === true"));
    assert_eq!(b.eval("window.hurt"), json!(null));
    assert_eq!(
        b.eval("document.images.length"),
        json!(1),
        "its own picture"
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn the_page_acts_in_cockpit() {
    let Some(mut b) = Browser::start() else {
        return;
    };
    assert!(
        has(WS),
        "apt install cockpit-ws cockpit-bridge cockpit-system"
    );
    let m = Machine::new();
    let before = sockets();
    let cockpit = start(&m, &[]);
    let page = cockpit.page();
    b.open(&page, 1280, 900, false);
    b.wait("document.getElementById('volumes')?.innerText === 'This machine has no volume yet.'");
    create(&mut b, &m);
    adopt(&mut b, &m);
    press(&mut b, "serve-0");
    said(&mut b, "Done.");
    let asked = std::fs::read_to_string(m.0.path("systemctl")).expect("asked");
    assert_eq!(asked, "enable --now isotherm@films.service\n");
    close(&mut b);
    let mut served = m.serve("films --nbd unix:n");
    b.wait("document.getElementById('sentence').innerText.startsWith('Serving well')");
    b.wait("document.getElementById('tiles').innerText.includes('Dirty data')");
    b.wait("document.getElementById('stop-0') !== null");
    let etc = m.0.path("etc").display().to_string();
    press(&mut b, "add-0");
    field(&mut b, "fast", &format!("{etc}/f2:32M"));
    go(&mut b);
    confirm(&mut b, "films");
    said(&mut b, "Done.");
    close(&mut b);
    b.wait("document.querySelectorAll('#members tbody tr').length === 3");
    press(&mut b, "doctor-0");
    said(&mut b, "films");
    on_a_phone(&mut b, "cockpit-phone-dialog");
    close(&mut b);
    // The view's own changes go the same way, without a token.
    b.eval("const i = document.querySelector('#policy input[aria-label=move_bytes_per_s]'); i.value = '20000000'; i.dispatchEvent(new Event('input')); true");
    b.click("set", MIDDLE);
    b.wait("document.getElementById('policy').innerText.includes('Done, and kept')");
    let params = &m.status("films")["params"];
    assert_eq!(params["move_bytes_per_s"].as_f64(), Some(20e6));
    b.eval("document.getElementById('map').scrollIntoView()");
    b.wait("document.getElementById('map-summary').innerText.startsWith('The whole volume')");
    b.picture("cockpit-page");
    on_a_phone(&mut b, "cockpit-phone");
    hostile(&mut b, &m);
    // Within Cockpit, beside its other pages.
    assert_eq!(b.wrong, Vec::<String>::new());
    b.open(
        &format!("http://127.0.0.1:{}/isotherm", cockpit.port),
        1280,
        900,
        false,
    );
    let frame =
        "document.querySelector('iframe[name=\"cockpit1:localhost/isotherm\"]')?.contentDocument";
    b.wait(&format!(
        "{frame}?.getElementById('sentence')?.innerText.startsWith('Serving well') === true"
    ));
    b.picture("cockpit-framed");
    b.look(390, 844, false);
    b.wait(&format!("{frame}.documentElement.scrollWidth <= 390"));
    b.picture("cockpit-framed-phone");
    b.open(&page, 1280, 900, false);
    let stop = "document.querySelector('#volumes [id^=stop]')";
    b.wait(&format!("{stop} !== null"));
    b.click_on(stop, MIDDLE);
    confirm(&mut b, "films");
    said(&mut b, "stopped");
    wait_for("it ends", || served.has_ended());
    close(&mut b);
    // With the page its server goes.
    assert!(sockets().len() > before.len());
    b.order("Page.navigate", &json!({"url": "about:blank"}));
    drop(cockpit);
    wait_for("the sockets go", || sockets().len() <= before.len());
}

#[test]
fn without_administrative_access_nothing_is_shown_or_done() {
    let Some(mut b) = Browser::start() else {
        return;
    };
    let m = Machine::new();
    m.create("v");
    m.0.tool("chmod", &["-R", "a+rwX", "."]);
    let other = "setpriv --reuid 65534 --regid 65534 --clear-groups";
    let cockpit = start(&m, &other.split(' ').collect::<Vec<_>>());
    b.open(&cockpit.page(), 390, 844, false);
    let said = "this takes administrative access: turn it on at the top of Cockpit";
    for place in ["volumes", "sentence"] {
        b.wait(&format!(
            "document.getElementById('{place}')?.innerText.includes('{said}') === true"
        ));
    }
    b.picture("cockpit-limited");
}
