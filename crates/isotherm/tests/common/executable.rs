//! Programs that tests make and run. Another process writes them: what this one has open for writing is inherited by programs that its other
//! threads start at that moment, and until these have called exec, the kernel does not run the file ("Text file busy").

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// A program at `to` with the bytes of the file at `from`, or with `text` if that is `/dev/stdin`.
pub fn install(from: &Path, text: &str, to: &Path, mode: u32) {
    let mut child = Command::new("install")
        .args(["-m", &format!("{mode:o}")])
        .args([from, to])
        .stdin(Stdio::piped())
        .spawn()
        .expect("install starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(text.as_bytes()).expect("taken");
    drop(stdin);
    assert!(child.wait().expect("ends").success(), "{}", to.display());
}

/// A script for the shell.
pub fn script(text: &str, to: &Path, mode: u32) {
    let text = format!("#!/bin/sh\n{text}\n");
    install(Path::new("/dev/stdin"), &text, to, mode);
}
