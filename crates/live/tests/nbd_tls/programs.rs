//! The clients of libnbd and QEMU over TLS.

use super::{TIMEOUT, noise, rig};
use std::process::Command;

/// A tool that can be run; otherwise `None`, with a message.
fn tool(name: &str) -> Option<Command> {
    let mut probe = Command::new(name);
    if probe
        .arg("--version")
        .output()
        .is_ok_and(|o| o.status.success())
    {
        let mut command = Command::new("timeout");
        command.args(["60", name]);
        return Some(command);
    }
    println!("skipped: `{name}` is not installed or does not run");
    None
}

fn succeeds(mut command: Command) -> String {
    let out = command.output().expect("started");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{command:?}: {text}{stderr}");
    text
}

#[test]
fn the_clients_of_libnbd_and_qemu_connect() {
    let rig = rig(TIMEOUT);
    let dir = rig.certificates.dir();
    let data = noise(64 << 20);
    let image = rig.certificates.path("image");
    std::fs::write(&image, &data).expect("written");
    let uri = format!("nbds://{}/vol?tls-certificates={dir}", rig.tcp);
    if let Some(mut nbdinfo) = tool("nbdinfo") {
        nbdinfo.arg(&uri);
        let text = succeeds(nbdinfo);
        assert!(
            text.contains("67108864") && text.contains("with TLS"),
            "{text}"
        );
    }
    if let Some(mut nbdcopy) = tool("nbdcopy") {
        nbdcopy.arg(&image).arg(&uri);
        succeeds(nbdcopy);
        let back = rig.certificates.path("back");
        let mut nbdcopy = tool("nbdcopy").expect("as before");
        nbdcopy.arg(&uri).arg(&back);
        succeeds(nbdcopy);
        assert!(std::fs::read(&back).expect("read") == data);
    }
    if let Some(mut qemu) = tool("qemu-img") {
        let (host, port) = rig.tcp.rsplit_once(':').expect("an address");
        let back = rig.certificates.path("back-2");
        qemu.args(["convert", "--object"]);
        qemu.arg(format!("tls-creds-x509,id=tls0,endpoint=client,dir={dir}"));
        qemu.arg("--image-opts").arg(format!(
            "driver=nbd,server.type=inet,server.host={host},server.port={port},export=vol,tls-creds=tls0"
        ));
        qemu.args(["-O", "raw"]).arg(&back);
        succeeds(qemu);
        let got = std::fs::read(&back).expect("read");
        assert_eq!(got.len(), data.len());
        assert!(
            got == data || got.iter().all(|&b| b == 0),
            "as nbdcopy left it, or empty"
        );
    }
    drop(rig.port);
}
