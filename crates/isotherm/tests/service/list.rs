//! `list` when a control socket was deleted under a running server.

use serde_json::json;

use crate::machine::Machine;

/// As after `su`, or from cron.
#[test]
fn a_user_without_a_runtime_directory_sees_what_he_serves() {
    let place = crate::common::Place::new();
    place.tool("chmod", &["777", "."]);
    let as_user = |call: &str| {
        let mut c = std::process::Command::new("setpriv");
        c.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        c.args(["env", "-u", "XDG_RUNTIME_DIR"]);
        c.arg(format!("HOME={}", place.path("").display()));
        c.arg(env!("CARGO_BIN_EXE_isotherm"));
        c.args(call.split(' ')).current_dir(place.path(""));
        c
    };
    let made = as_user("create v --slow s:16M --policy linear").output();
    if !made.is_ok_and(|o| o.status.success()) {
        return println!("skipped: nothing can be run as another user here");
    }
    let call = "v --nbd unix:n";
    let mut serve = as_user(&format!("serve {call}"));
    serve.stdin(std::process::Stdio::null());
    let served = crate::common::Place::wait_ready(serve, call);
    let out = as_user("list --json").output().expect("it runs");
    let all: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let own = all
        .as_array()
        .into_iter()
        .flatten()
        .find(|v| v["name"] == json!("v"));
    assert_eq!(own.expect("listed")["state"], json!("serving"), "{all}");
    assert_eq!(served.terminate(), Some(0));
}

#[test]
fn a_served_volume_whose_socket_is_gone_is_not_called_stopped() {
    for options in ["", "--read-only"] {
        let m = Machine::new();
        m.create("v");
        let nbd = m.0.path("n").display().to_string();
        let served = m.serve(&format!("v --nbd unix:{nbd} {options}"));
        let one = |m: &Machine| m.json("list", "list")[0].clone();
        let socket = m.0.path("run/v.sock");
        std::fs::remove_file(&socket).expect("the socket is there");
        let gone = one(&m);
        assert_eq!(gone["state"], json!("unreachable"), "{gone}");
        assert_eq!(gone["pid"], json!(served.child.id()), "{gone}");
        let note = gone["note"].as_str().expect("a note");
        assert!(
            note.contains("its control socket") && note.contains("kill -TERM"),
            "{note}"
        );
        // The advice of the note.
        assert_eq!(served.terminate(), Some(0));
        assert_eq!(one(&m)["state"], json!("stopped"));
        // Another program that holds a member does not serve it.
        let member = m.0.path("etc/v.fast").display().to_string();
        let mut holder = std::process::Command::new("flock")
            .args([&member, "sh", "-c", "echo; exec sleep 60"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("flock is installed");
        let mut line = [0];
        std::io::Read::read_exact(holder.stdout.as_mut().expect("piped"), &mut line)
            .expect("it holds the lock");
        assert_eq!(one(&m)["state"], json!("stopped"));
        holder.kill().expect("killed");
        holder.wait().expect("waited");
    }
}
