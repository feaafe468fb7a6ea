//! The web view of served volumes: over HTTP always, and in a real browser if there is one (`make web-check`).

use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::chromium::Browser;
use crate::common::Served;
use crate::machine::{Machine, free_port, get, has, wait_for};

fn body(answer: &str) -> Value {
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let body = answer.split_once("\r\n\r\n").expect("a body").1;
    serde_json::from_str(body).expect("JSON")
}

/// Sends a query to the view, as a page does.
fn ask(port: u16, what: &str) -> Value {
    body(&get(&format!("127.0.0.1:{port}"), &format!("/api/{what}")))
}

/// The first frame of the stream of events.
fn frame(port: u16, volume: &str) -> Value {
    use std::io::{BufRead, BufReader, Write};
    let mut peer = std::net::TcpStream::connect(("127.0.0.1", port)).expect("connects");
    peer.set_read_timeout(Some(crate::machine::LIMIT))
        .expect("set");
    let request = format!("GET /api/events?volume={volume} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    peer.write_all(request.as_bytes()).expect("written");
    let mut event = String::new();
    for line in BufReader::new(peer).lines() {
        let line = line.expect("read");
        if let Some(name) = line.strip_prefix("event:") {
            name.trim().clone_into(&mut event);
        }
        match line.strip_prefix("data:") {
            Some(data) if event == "frame" => {
                return serde_json::from_str(data.trim()).expect("JSON");
            }
            _ => {}
        }
    }
    panic!("the stream ended");
}

fn io(m: &Machine, nbd: &str, commands: &[&str]) {
    let uri = format!("nbd+unix:///?socket={nbd}");
    let mut args = vec!["-f", "raw"];
    for c in commands {
        args.extend(["-c", c]);
    }
    args.push(&uri);
    let out = m.0.tool("qemu-io", &args);
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn a_served_volume_is_shown_and_changed_only_with_the_token() {
    if !has("qemu-io") {
        return;
    }
    let m = Machine::new();
    m.create("v");
    let (own, all) = (free_port(), free_port());
    let nbd = m.0.path("n").display().to_string();
    let token = m.0.path("token").display().to_string();
    let out = m.run("serve v --nbd unix:x --web 0.0.0.0:1");
    assert_eq!(out.status.code(), Some(2), "other machines could look");
    let served = m.serve(&format!(
        "v --nbd unix:{nbd} --web 127.0.0.1:{own} --web-control --web-token {token}"
    ));
    // All volumes, at another port.
    let mut web = m.command(&format!("web --listen 127.0.0.1:{all}"));
    let web = Served {
        child: web.stderr(Stdio::null()).spawn().expect("starts"),
    };
    wait_for("it listens", || {
        std::net::TcpStream::connect(("127.0.0.1", all)).is_ok()
    });
    io(&m, &nbd, &["write -P 5 0 8M", "flush", "read 0 1M"]);
    let volume = m.0.path("etc/v").display().to_string();
    for (port, control) in [(own, true), (all, false)] {
        let volumes = ask(port, "volumes");
        assert_eq!(volumes["control"], json!(control));
        assert_eq!(volumes["volumes"][0]["name"], json!("v"), "{volumes}");
        let id = volumes["volumes"][0]["id"]
            .as_str()
            .expect("a name")
            .to_owned();
        wait_for("it is followed", || {
            get(
                &format!("127.0.0.1:{port}"),
                &format!("/api/policy?volume={id}"),
            )
            .starts_with("HTTP/1.1 200")
        });
        let f = frame(port, &id);
        assert_eq!(
            (&f["name"], &f["well"], &f["failed"]),
            (&json!("v"), &json!(true), &json!(false)),
            "{f}"
        );
        let bytes = m.status("v")["volume_bytes"].as_u64();
        assert_eq!(f["extents"].as_u64(), bytes.map(|b| b / 65536), "{f}");
        assert_eq!(f["members"].as_array().map(Vec::len), Some(2), "{f}");
        let map = ask(port, &format!("map?volume={id}&from=0&to=100000&bins=1000"));
        let (cells, place) = (
            map["cells"].as_u64().expect("cells"),
            map["place"].as_str().expect("text"),
        );
        assert_eq!((place.len() as u64, map["step"].as_u64()), (cells, Some(1)));
        // In a cache volume each address has its place.
        assert_eq!(map["mapped"], f["extents"], "{map}");
        assert!(!place.contains('.'), "{place}");
        let why = ask(port, &format!("why?volume={id}&offset=65536"));
        assert_eq!((&why["extent"], &why["mapped"]), (&json!(1), &json!(true)));
        assert!(ask(port, &format!("moves?volume={id}"))["ended"].is_array());
        let policy = ask(port, &format!("policy?volume={id}"));
        assert_eq!(policy["name"], json!("benefit"));
        for (key, _) in policy["params"].as_object().expect("parameters") {
            assert!(
                policy["meanings"][key]["what"].is_string(),
                "{key} is not explained"
            );
        }
    }
    let secret = std::fs::read_to_string(&token).expect("made");
    let post = |port: u16, secret: &str, values: &str| {
        use std::io::{Read, Write};
        let id = if port == own {
            "v".to_owned()
        } else {
            volume.clone()
        };
        let id = ask(port, "volumes")["volumes"][0]["id"]
            .as_str()
            .map_or(id, str::to_owned);
        let body = format!(r#"{{"volume":"{id}","values":{values}}}"#);
        let mut peer = std::net::TcpStream::connect(("127.0.0.1", port)).expect("connects");
        write!(
            peer,
            "POST /api/set HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\nAuthorization: Bearer {secret}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .expect("written");
        let mut text = String::new();
        peer.read_to_string(&mut text).expect("read");
        text.split(' ')
            .nth(1)
            .and_then(|s| s.parse::<u16>().ok())
            .unwrap_or(0)
    };
    let limit = r#"{"move_bytes_per_s":50000000}"#;
    assert_eq!(post(own, "wrong-wrong-wrong-wrong", limit), 401);
    assert_eq!(post(all, secret.trim(), limit), 401);
    assert_eq!(post(own, secret.trim(), r#"{"no_such_knob":1}"#), 422);
    assert_eq!(post(own, secret.trim(), limit), 200);
    assert_eq!(
        m.status("v")["params"]["move_bytes_per_s"].as_f64(),
        Some(50e6)
    );
    assert_eq!(served.terminate(), Some(0));
    // The volume is gone; the view of the machine stays and shows this.
    wait_for("it is seen", || {
        ask(all, "volumes")["volumes"][0]["state"] == json!("stopped")
    });
    assert_eq!(web.terminate(), Some(0));
}

/// Work for the volume, until the end of the test.
fn load(nbd: &str) -> Option<Served> {
    let mut fio = Command::new("fio");
    fio.args([
        "--name=l",
        "--ioengine=nbd",
        "--rw=randrw",
        "--rwmixread=80",
        "--bs=4k",
        "--iodepth=8",
        "--random_distribution=zipf:1.1",
    ])
    .args(["--time_based", "--runtime=600", "--size=380M"])
    .arg(format!("--uri=nbd+unix:///?socket={nbd}"))
    .stdout(Stdio::null())
    .stderr(Stdio::null());
    let child: Child = fio.spawn().ok()?;
    Some(Served { child })
}

/// A volume of 100 000 extents over a disk with the speed of a real one.
fn large(m: &Machine, name: &str) {
    let etc = m.0.path("etc").display().to_string();
    m.ok(&format!(
        "create {etc}/{name} --fast {etc}/{name}.f:48M --slow {etc}/{name}.s:401M --extent 4K --paced slow=wd5000aaks --paced fast=intel-320-300"
    ));
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn the_page_works_in_a_browser() {
    let Some(mut b) = Browser::start() else {
        return;
    };
    if !has("fio") {
        return;
    }
    let m = Machine::new();
    large(&m, "films");
    let port = free_port();
    let nbd = m.0.path("n").display().to_string();
    let token = m.0.path("token").display().to_string();
    let call =
        format!("films --nbd unix:{nbd} --web 127.0.0.1:{port} --web-control --web-token {token}");
    let served = m.serve(&call);
    // Most of the volume was written at some time.
    io(&m, &nbd, &["write -P 3 0 300M", "flush"]);
    let fio = load(&nbd);
    let url = format!("http://127.0.0.1:{port}/");
    b.open(&url, 1280, 900, false);
    b.wait("document.getElementById('sentence').innerText.startsWith('Serving well')");
    // The page must show curves, a map of all extents, moves with reasons, and figures of a volume at work.
    b.wait("document.querySelectorAll('#moves li .because').length > 3");
    b.wait("/a cell is one extent/i.test(document.getElementById('map-summary').innerText)");
    b.wait("document.querySelectorAll('#classes .bars span').length > 0 && document.querySelectorAll('#refused p').length > 0");
    std::thread::sleep(std::time::Duration::from_secs(
        std::env::var("ISOTHERM_WEB_SECONDS")
            .ok()
            .and_then(|s| s.parse().ok())
            .unwrap_or(3),
    ));
    b.picture("web-light");
    b.upper_part("web-view", 1280, 1180);
    // The duration of a frame while the map is drawn: printed, not judged.
    let ms = b.eval("(async () => { const t = []; for (let i = 0; i < 20; i++) { const a = performance.now(); document.getElementById(i % 2 ? 'by-tier' : 'by-heat').click(); t.push(performance.now() - a); await new Promise(requestAnimationFrame); } t.sort((x, y) => x - y); return [t[10], t[19]]; })()");
    eprintln!("the map of 100 000 extents is painted in {ms} ms (median, most)");
    // With the mouse: a place is explained, and the map zooms.
    b.click("map", (0.1, 0.1));
    b.wait("document.getElementById('why').innerText.includes('benefit says:')");
    b.click("zoom-in", (0.5, 0.5));
    b.click("zoom-in", (0.5, 0.5));
    b.wait("document.getElementById('map-summary').innerText.includes(' to ')");
    // With keys alone.
    b.eval("document.getElementById('map').focus()");
    b.keys(&["ArrowRight", "ArrowDown", "Enter"]);
    b.wait("document.getElementById('why').innerText.includes('benefit says:')");
    b.picture("web-zoomed");
    b.keys(&["0"]);
    b.wait("document.getElementById('map-summary').innerText.startsWith('The whole volume')");
    b.click("rate-table-button", (0.5, 0.5));
    b.wait("document.querySelectorAll('#rate-table tbody tr').length > 1");
    b.click("rate-table-button", (0.5, 0.5));
    // For a screen reader: everything that can be used has a name, and each part has one heading.
    let nameless = b.eval("[...document.querySelectorAll('button, select, input, canvas, [role=img]')].filter((e) => e.getAttribute('aria-hidden') !== 'true' && !e.innerText?.trim() && !e.getAttribute('aria-label') && !(e.labels?.length)).map((e) => e.outerHTML)");
    assert_eq!(nameless, json!([]));
    assert_eq!(
        b.eval("document.querySelectorAll('section h2').length >= 8"),
        json!(true)
    );
    // On a phone nothing may be wider than the screen.
    for (name, width, height, dark) in [
        ("web-dark", 1280, 900, true),
        ("web-phone", 390, 844, false),
        ("web-phone-dark", 390, 844, true),
    ] {
        b.look(width, height, dark);
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert_eq!(
            b.eval("document.documentElement.scrollWidth"),
            json!(width),
            "{name}"
        );
        b.picture(name);
    }
    b.look(1280, 900, false);
    // A change: the page asks for the token first, then makes the change.
    b.eval("const i = document.querySelector('#policy input[aria-label=move_bytes_per_s]'); i.value = '20000000'; i.dispatchEvent(new Event('input')); true");
    b.click("set", (0.5, 0.5));
    b.wait("!document.getElementById('ask-token').hidden");
    b.insert(std::fs::read_to_string(&token).expect("made").trim());
    b.keys(&["Tab"]);
    b.eval("document.getElementById('token-form').requestSubmit(); true");
    b.click("set", (0.5, 0.5));
    b.wait("document.getElementById('policy').innerText.includes('Done, and kept')");
    assert_eq!(
        m.status("films")["params"]["move_bytes_per_s"].as_f64(),
        Some(20e6)
    );
    assert_eq!(b.wrong, Vec::<String>::new());
    // The volume vanishes while the page is open, and returns.
    served.kill();
    drop(fio);
    b.wait("document.getElementById('sentence').innerText.startsWith('No figures') && document.getElementById('figures').classList.contains('stale')");
    b.picture("web-vanished");
    let served = m.serve(&call);
    b.wait("document.getElementById('sentence').innerText.startsWith('Serving well') && document.getElementById('live').dataset.state === 'live'");
    // A member is truncated: the volume fails, and the page shows this first.
    let slow = m.0.path("etc/films.s");
    std::fs::OpenOptions::new()
        .write(true)
        .open(&slow)
        .and_then(|f| f.set_len(1 << 20))
        .expect("cut");
    let _work = load(&nbd);
    b.wait("document.getElementById('state').dataset.state === 'failed' && document.title.startsWith('FAILED')");
    b.picture("web-failed");
    drop(served);
    degraded(&m, &mut b);
}

/// A volume without its fast member, served read-only.
fn degraded(m: &Machine, b: &mut Browser) {
    let etc = m.0.path("etc").display().to_string();
    m.ok(&format!(
        "create {etc}/half --fast {etc}/half.f:16M --slow {etc}/half.s:64M"
    ));
    let nbd = m.0.path("h").display().to_string();
    let served = m.serve(&format!("half --nbd unix:{nbd}"));
    io(m, &nbd, &["write -P 5 0 8M", "flush"]);
    assert_eq!(served.terminate(), Some(0));
    std::fs::rename(Path::new(&etc).join("half.f"), m.0.away("half.f")).expect("moved");
    let port = free_port();
    let served = m.serve(&format!(
        "half --read-only --accept-loss --nbd unix:{nbd} --web 127.0.0.1:{port}"
    ));
    b.open(&format!("http://127.0.0.1:{port}/"), 1280, 900, false);
    b.wait("document.getElementById('state').dataset.state === 'degraded'");
    b.wait("document.querySelector('#members .badge.missing') !== null");
    b.picture("web-degraded");
    drop(served);
}
