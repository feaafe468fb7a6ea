//! `isotherm fstab`, and the helper that mount(8) calls for `mount -t isotherm`.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::assemble::unit;
use crate::args::{FstabArgs, MountHelperArgs};
use crate::control::client::connect;
use crate::{Failure, place};

/// A boot waits for the device for at most this time; the service waits for its members almost as long.
const DEVICE_TIMEOUT: &str = "20min";
/// Time limit for a server to get ready: members may have to spin up, and recovery may run.
const READY: Duration = Duration::from_secs(20 * 60);

/// Prints the line.
///
/// # Errors
/// The volume is not registered on this machine, or the mount point is not an absolute path.
pub fn run(args: &FstabArgs) -> Result<(), Failure> {
    if !place::is_registered(&args.volume) {
        return Err(Failure::failed(format!(
            "{}: at boot volumes are looked for in {}: move its description there, with absolute paths of its members",
            args.volume.display(),
            place::SYSTEM_CONFIG
        )));
    }
    if !args.mountpoint.is_absolute() {
        return Err(Failure::usage(format!(
            "{}: give the whole path of the mount point",
            args.mountpoint.display()
        )));
    }
    let unit = unit(&args.volume)?;
    let name = args
        .volume
        .file_name()
        .unwrap_or_default()
        .to_string_lossy();
    let line = format!(
        "{}  {}  {}  {},nofail,x-systemd.requires={unit},x-systemd.device-timeout={DEVICE_TIMEOUT}  0  2",
        Path::new(place::SYSTEM_DEVICES).join(&*name).display(),
        escaped(&args.mountpoint),
        args.fs_type,
        args.options,
    );
    crate::json::to_stdout(&format!(
        "# Isotherm volume {name}; then: systemctl daemon-reload && mount {}\n{line}\n",
        escaped(&args.mountpoint)
    ))
}

/// Escaped as fstab(5) requires.
fn escaped(path: &Path) -> String {
    let text = path.to_string_lossy();
    let piece = |c: char| match c {
        ' ' => "\\040".to_owned(),
        '\t' => "\\011".to_owned(),
        '\n' => "\\012".to_owned(),
        '\\' => "\\134".to_owned(),
        c => c.to_string(),
    };
    text.chars().map(piece).collect()
}

/// Serves the volume if it is not served yet, and mounts its device. Does not return if it succeeds.
///
/// # Errors
/// The volume cannot be served, or has no device.
pub fn mount(args: &MountHelperArgs) -> Result<(), Failure> {
    let shown = device(&args.volume)?;
    let shown = if shown.is_some() {
        shown
    } else {
        serve(&args.volume)?;
        device(&args.volume)?
    };
    let device = shown.ok_or_else(|| no_device(&args.volume))?;
    let (fs_type, options) = split_options(&args.o, args.of_type.as_deref());
    let mut command = Command::new("mount");
    if let Some(t) = fs_type {
        command.args(["-t", &t]);
    }
    if !options.is_empty() {
        command.args(["-o", &options.join(",")]);
    }
    for (given, flag) in [
        (args.sloppy, "-s"),
        (args.fake, "-f"),
        (args.no_mtab, "-n"),
        (args.verbose, "-v"),
    ] {
        if given {
            command.arg(flag);
        }
    }
    let e = command.arg(device).arg(&args.mountpoint).exec();
    Err(Failure::file(Path::new("mount"), "run it", &e))
}

/// The type of the file system on the volume, if it is given, and the options for mount(8).
fn split_options(given: &[String], of_type: Option<&str>) -> (Option<String>, Vec<String>) {
    let mut fs_type = of_type
        .and_then(|t| t.strip_prefix("isotherm."))
        .map(str::to_owned);
    let mut rest = Vec::new();
    for option in given
        .iter()
        .flat_map(|o| o.split(','))
        .filter(|o| !o.is_empty())
    {
        match option.strip_prefix("fstype=") {
            Some(t) => fs_type = Some(t.to_owned()),
            None => rest.push(option.to_owned()),
        }
    }
    (fs_type, rest)
}

fn no_device(volume: &Path) -> Failure {
    Failure::failed(format!(
        "{}: is served without a device: stop it, and let it be served with --device",
        volume.display()
    ))
}

/// The device of a volume; `None` if it is not served.
fn device(volume: &Path) -> Result<Option<PathBuf>, Failure> {
    let Some(mut client) = connect(volume)? else {
        return Ok(None);
    };
    let device = client.brief()?.device;
    let link = device.map(|d| PathBuf::from(d.link));
    link.map(Some).ok_or_else(|| no_device(volume))
}

/// Starts its service if systemd runs and knows it, else a process of its own.
fn serve(volume: &Path) -> Result<(), Failure> {
    if Path::new("/run/systemd/system").is_dir() && place::is_registered(volume) {
        let unit = unit(volume)?;
        let status = Command::new("systemctl").args(["start", &unit]).status();
        let done = status.map_err(|e| Failure::file(Path::new("systemctl"), "run it", &e))?;
        if !done.success() {
            return Err(Failure::failed(format!(
                "{unit}: did not start: `systemctl status {unit}` says why"
            )));
        }
        return Ok(());
    }
    let own = std::env::current_exe()
        .map_err(|e| Failure::failed(format!("cannot find this program: {e}")))?;
    let mut child = Command::new(own)
        .arg("serve")
        .arg(volume)
        .arg("--device")
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(|e| Failure::failed(format!("cannot serve {}: {e}", volume.display())))?;
    let begun = Instant::now();
    while begun.elapsed() < READY {
        // The socket exists before the device does, and both are needed.
        if let Ok(Some(mut client)) = connect(volume)
            && let Ok(status) = client.status()
            && status.served.is_some_and(|v| v.device.is_some())
        {
            return Ok(());
        }
        if let Ok(Some(_)) = child.try_wait() {
            // The process has already printed the reason.
            return Err(Failure::failed(format!(
                "{}: could not be served",
                volume.display()
            )));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Err(Failure::failed(format!(
        "{}: not ready after {} s",
        volume.display(),
        READY.as_secs()
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_options_name_the_type_below() {
        let given = ["rw,fstype=xfs".to_owned(), "noatime".to_owned()];
        let (t, rest) = split_options(&given, Some("isotherm"));
        assert_eq!(t.as_deref(), Some("xfs"));
        assert_eq!(rest, ["rw", "noatime"]);
        assert_eq!(
            split_options(&[], Some("isotherm.ext4")).0.as_deref(),
            Some("ext4")
        );
        assert_eq!(escaped(Path::new("/a b")), "/a\\040b");
    }
}
