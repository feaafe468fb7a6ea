//! `list` when a control socket was deleted under a running server.

use serde_json::json;

use crate::machine::Machine;

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
