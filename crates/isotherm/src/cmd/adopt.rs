//! `isotherm adopt`: a device that holds a file system becomes the slow member of a cache volume in place.

pub(super) mod references;

use std::path::{Path, PathBuf};

use isotherm_answers::{Adopted, Noted, Set};
use isotherm_core::policy::Uses;
use isotherm_live::Volume;
use isotherm_live::volume::{AdoptHow, Adoptable, description};

use super::create::stand_in;
use crate::Failure;
use crate::args::{AdoptArgs, CreateArgs};
use crate::control::Request;
use crate::control::client::{needed, served};
use crate::member::MemberSpec;

/// The write mode of a volume from its adoption on until `adopt --finish`: flash that is lost then costs nothing.
pub(super) const TRIAL: &str = "write-mode=write-through-all";

/// Adopts a device, or ends the trial that an adoption begins.
///
/// # Errors
/// The device holds nothing that can be adopted, is in use, is referred to by its name, or has no room; or the answer is no.
pub fn run(args: &AdoptArgs) -> Result<(), Failure> {
    let Some(device) = &args.device else {
        return finish(args);
    };
    if description(&args.volume).exists() {
        return Err(Failure::failed(format!(
            "{}: exists already: choose another name; if its adoption was interrupted, `isotherm release {}` gives the device back",
            description(&args.volume).display(),
            args.volume.display()
        )));
    }
    let device = std::path::absolute(device).map_err(|e| Failure::file(device, "find", &e))?;
    if !device.exists() {
        return Err(Failure::failed(format!(
            "{}: does not exist: give the device or file with the file system",
            device.display()
        )));
    }
    let mut config = super::create::config_of(&as_created(args, &device))?;
    let tail = args.tail.as_deref().map(tail).transpose()?;
    if let Some(slow) = config.members.last_mut() {
        slow.tail.clone_from(&tail);
    }
    let policy = config.build_policy();
    if policy.is_ok_and(|p| p.uses() != Uses::Copies) {
        return Err(Failure::usage(format!(
            "--policy {}: it moves data between the devices: only a policy that keeps copies, such as benefit, leaves the data of an adopted device in place",
            config.policy
        )));
    }
    if !config.policy.contains("write-mode=") {
        config.policy = format!("{},{TRIAL}", config.policy);
    }
    let make = |only_plan| {
        let unknown = args.force;
        let how = AdoptHow { unknown, only_plan };
        Volume::adopt(&args.volume, config.clone(), how).map_err(|e| Failure::failed(e.to_string()))
    };
    let (_, plan) = make(true)?;
    let names = references::find(&device, Path::new("/"));
    if let Some(first) = names.first() {
        let all: Vec<String> = names.iter().map(ToString::to_string).collect();
        return Err(Failure::failed(format!(
            "{}: is referred to by its own name, and what follows it there would find the volume's first block, or a copy of the file system's: {}. Change this to the file system's UUID (for {}, `isotherm fstab` prints the line){}, and repeat the command",
            device.display(),
            all.join("; "),
            first.file.display(),
            references::rebuild(&names, Path::new("/")),
        )));
    }
    super::confirm(&said(args, (&device, tail.as_deref()), &plan), args.yes)?;
    let (mut made, adopted) = make(false)?;
    if args.without_flash {
        made.notes.extend(stand_in::take_out(&args.volume)?);
    }
    made.notes
        .extend(super::doctor::of_new(&args.volume, &config));
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let what = Adopted {
        volume: text(&args.volume),
        description: text(&description(&args.volume)),
        device: text(&device),
        tail: tail.as_deref().map(text),
        adopted: adopted.what,
        data_bytes: adopted.bytes,
        volume_bytes: made.volume_bytes,
        policy: config.policy,
    };
    let notes = made.notes;
    let result = super::told(Noted { what, notes });
    args.json.print(&result, || next_steps(args, &device))
}

/// What the user does next.
fn next_steps(args: &AdoptArgs, device: &Path) -> String {
    let v = args.volume.display();
    let flash = if args.without_flash {
        format!("later `isotherm cache {v} add DEVICE` gives it flash; then ")
    } else {
        String::from("then ")
    };
    format!(
        "{v}: adopted {}\n  next: `isotherm serve {v} --device`, then mount /dev/isotherm/{} where the device was mounted\n  {flash}`isotherm warm {v} --metadata` copies inodes and directories to flash, which is empty (ext2, ext3, ext4, XFS)\n  writes go through to the device until `isotherm adopt --finish {v}`\n  `isotherm release {v}` gives the device back\n",
        device.display(),
        args.volume
            .file_name()
            .unwrap_or_default()
            .to_string_lossy(),
    )
}

/// The tail device, which must be there.
fn tail(path: &Path) -> Result<PathBuf, Failure> {
    let path = std::path::absolute(path).map_err(|e| Failure::file(path, "find", &e))?;
    if path.exists() {
        return Ok(path);
    }
    Err(Failure::failed(format!(
        "{}: does not exist: give a small device or file for the tail",
        path.display()
    )))
}

/// What will be done, in words.
fn said(args: &AdoptArgs, (device, tail): (&Path, Option<&Path>), plan: &Adoptable) -> String {
    let to = tail.map_or_else(
        || String::from("the end of the device"),
        |t| format!("{}, which is needed from then on", t.display()),
    );
    let flash: Vec<String> = (args.fast.iter())
        .map(|m| m.path.display().to_string())
        .collect();
    let flash = match flash.join(", ") {
        none if none.is_empty() => String::new(),
        all => format!(", and the flash ({all}) is overwritten"),
    };
    format!(
        "{}: {} of {} bytes stays in place and becomes volume {}; its first bytes are copied to {to}{flash}",
        device.display(),
        plan.what,
        plan.bytes,
        args.volume.display(),
    )
}

/// The options of `isotherm create` for the same volume.
fn as_created(args: &AdoptArgs, device: &Path) -> CreateArgs {
    let slow = MemberSpec {
        path: device.to_owned(),
        size: None,
    };
    CreateArgs {
        volume: args.volume.clone(),
        fast: args.fast.clone(),
        without_flash: args.without_flash,
        slow: vec![slow],
        extent: args.extent,
        policy: args.policy.clone(),
        keep: true,
        ..CreateArgs::default()
    }
}

/// Ends the trial of a served volume.
fn finish(args: &AdoptArgs) -> Result<(), Failure> {
    let mut client = served(&args.volume)?;
    let before = needed(client.brief()?.policy, "policy")?;
    let v = args.volume.display();
    let after: Vec<&str> = before.split(',').filter(|p| *p != TRIAL).collect();
    let policy = after.join(",");
    if policy == before {
        return Err(Failure::failed(format!(
            "{v}: is not in the trial that follows an adoption (policy {before})"
        )));
    }
    let answer: Set = client.ask_for(&Request::Policy { policy })?;
    args.json.print(&answer, || {
        format!(
            "{v}: writes may stay on flash from now on (policy {})\n",
            answer.policy.as_deref().unwrap_or_default()
        )
    })
}
