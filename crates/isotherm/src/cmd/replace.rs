//! `isotherm replace`: puts another device in the place of a member.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use isotherm_answers::{CancelledReplace, Changed, Noted, OfVolume, Replaced};
use isotherm_live::Volume;
use isotherm_live::volume::ReplaceHow;

use crate::Failure;
use crate::answers::replacing;
use crate::args::ReplaceArgs;
use crate::control::client::{Client, connect, served};
use crate::control::{ReplaceAsk, Request};
use crate::human::bytes;
use crate::progress::Progress;

/// Interval at which the progress of a copy is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Replaces a member of a volume. If it is served, its server does this.
///
/// # Errors
/// The volume cannot be opened, no member is meant, or the new device cannot be used.
pub fn run(args: &ReplaceArgs) -> Result<(), Failure> {
    let Some(new) = &args.new else {
        return cancel(args);
    };
    let size = new.size.map(|s| {
        s.bytes().ok_or_else(|| {
            Failure::usage("the size of the new device is a number of bytes, as in PATH:1G")
        })
    });
    let how = ReplaceHow {
        member: args.member.clone(),
        size: size.transpose()?,
        empty: args.empty,
        force: args.force,
        accept_loss: args.accept_loss,
    };
    let (served, made) = match super::server_of(&args.volume)? {
        Some(server) => (true, by_server(server, (args, &new.path), how)?),
        None => (false, offline((args, &new.path), &how)?),
    };
    let result = Changed {
        volume: args.volume.to_string_lossy().into_owned(),
        what: super::told(made),
        served,
    };
    args.json.print(&result, || in_words(args, &result.what))
}

/// Gives up the copy that is in progress.
fn cancel(args: &ReplaceArgs) -> Result<(), Failure> {
    let what: CancelledReplace = served(&args.volume)?.ask_for(&Request::CancelReplace)?;
    let volume = args.volume.to_string_lossy().into_owned();
    let result = OfVolume { volume, what };
    args.json.print(&result, || {
        let what = &result.what;
        format!(
            "{}: {} stays a member; {} of it were copied to {}, which is free\n",
            result.volume,
            what.old,
            bytes(what.copied_bytes),
            what.new
        )
    })
}

fn by_server(
    mut server: Client,
    (args, new): (&ReplaceArgs, &Path),
    how: ReplaceHow,
) -> Result<Noted<Replaced>, Failure> {
    if how.accept_loss {
        let what = "--accept-loss: the volume is being served, so a loss was accepted already: leave it out";
        return Err(Failure::failed(what));
    }
    // The server has another working directory.
    let absolute = |path: &Path| {
        std::path::absolute(path).map_err(|e| Failure::file(path, "find its place", &e))
    };
    let member = match how.member {
        Some(m) if m.parse::<usize>().is_err() => {
            Some(absolute(m.as_ref())?.to_string_lossy().into_owned())
        }
        other => other,
    };
    let wanted = Request::Replace(ReplaceAsk {
        new: absolute(new)?,
        member,
        size: how.size,
        empty: how.empty,
        force: how.force,
        only_free: false,
        rate: args.rate,
    });
    let (ended, is_ended) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || follow(&args.volume, &is_ended));
        let made = server.ask_for(&wanted);
        drop(ended);
        made
    })
}

/// Shows how far the copy of a served volume is, until `is_ended`.
fn follow(volume: &Path, is_ended: &mpsc::Receiver<()>) {
    let progress = Progress::files();
    if !progress.is_shown() {
        return;
    }
    let Ok(Some(mut server)) = connect(volume) else {
        return;
    };
    while is_ended.recv_timeout(LOOK_AGAIN) == Err(mpsc::RecvTimeoutError::Timeout) {
        let Ok(status) = server.status() else {
            break;
        };
        if let Some(copy) = status.served.and_then(|v| v.replacing) {
            let (all, left) = (copy.total_bytes, copy.left_bytes);
            progress.file(&replacing::copied(&copy), all.saturating_sub(left), all);
        }
    }
    progress.finish();
}

fn offline(
    (args, new): (&ReplaceArgs, &Path),
    how: &ReplaceHow,
) -> Result<Noted<Replaced>, Failure> {
    if args.rate.is_some() {
        let what =
            "--rate: the volume is not served, so nothing else uses its devices: leave it out";
        return Err(Failure::failed(what));
    }
    let progress = Progress::files();
    let name = new.display().to_string();
    let made = Volume::replace(&args.volume, new, how, &mut |done, all| {
        progress.file(&name, done, all);
    });
    progress.finish();
    let made = made.map_err(|e| Failure::failed(e.to_string()))?;
    Ok(Noted {
        what: isotherm_control::change::replacement(&made),
        notes: made.notes,
    })
}

fn in_words(args: &ReplaceArgs, made: &Replaced) -> String {
    let (v, new, place) = (args.volume.display(), &made.new, made.member);
    if made.already {
        return format!("{v}: {new} is member {place} already; its description names it now\n");
    }
    let how = match made.copied_bytes {
        0 => "it begins empty".to_owned(),
        n => format!("{n} bytes were copied"),
    };
    let (before, after) = (made.slots_before, made.slots);
    let size = if after == before {
        format!("{after} extents")
    } else {
        format!("{after} extents, formerly {before}")
    };
    format!(
        "{v}: member {place} (tier {}) is {new} now, formerly {}: {how}; {size}\n",
        made.tier, made.old
    )
}
