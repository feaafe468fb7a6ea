//! `isotherm replace`: puts another device in the place of a member.

use isotherm_live::Volume;
use isotherm_live::volume::ReplaceHow;
use serde_json::{Value, json};

use crate::Failure;
use crate::args::ReplaceArgs;
use crate::control::client::Client;
use crate::control::{ReplaceAsk, Request};
use crate::progress::Progress;

/// Replaces a member of a volume. If it is served, its server does this.
///
/// # Errors
/// The volume cannot be opened, no member is meant, or the new device cannot be used.
pub fn run(args: &ReplaceArgs) -> Result<(), Failure> {
    let size = args.new.size.map(|s| {
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
    let mut result = match super::server_of(&args.volume)? {
        Some(server) => by_server(server, args, how)?,
        None => offline(args, &how)?,
    };
    result["volume"] = json!(args.volume.to_string_lossy());
    super::take_notes(&mut result);
    args.json.print(&result, || in_words(args, &result))
}

fn by_server(mut server: Client, args: &ReplaceArgs, how: ReplaceHow) -> Result<Value, Failure> {
    if how.accept_loss {
        let what = "--accept-loss: the volume is being served, so a loss was accepted already: leave it out";
        return Err(Failure::failed(what));
    }
    // The server has another working directory.
    let absolute = |path: &std::path::Path| {
        std::path::absolute(path).map_err(|e| Failure::file(path, "find its place", &e))
    };
    let member = match how.member {
        Some(m) if m.parse::<usize>().is_err() => {
            Some(absolute(m.as_ref())?.to_string_lossy().into_owned())
        }
        other => other,
    };
    let mut made = server.ask(&Request::Replace(ReplaceAsk {
        new: absolute(&args.new.path)?,
        member,
        size: how.size,
        empty: how.empty,
        force: how.force,
        only_free: false,
    }))?;
    made["served"] = json!(true);
    Ok(made)
}

fn offline(args: &ReplaceArgs, how: &ReplaceHow) -> Result<Value, Failure> {
    let progress = Progress::files();
    let name = args.new.path.display().to_string();
    let made = Volume::replace(&args.volume, &args.new.path, how, &mut |done, all| {
        progress.file(&name, done, all);
    });
    progress.finish();
    let made = made.map_err(|e| Failure::failed(e.to_string()))?;
    let mut shown = isotherm_control::change::replacement(&made);
    shown["served"] = json!(false);
    Ok(shown)
}

fn in_words(args: &ReplaceArgs, made: &Value) -> String {
    let text = |key: &str| made[key].as_str().unwrap_or_default();
    let number = |key: &str| made[key].as_u64().unwrap_or_default();
    let (v, new, place) = (args.volume.display(), text("new"), number("member"));
    if made["already"] == json!(true) {
        return format!("{v}: {new} is member {place} already; its description names it now\n");
    }
    let old = text("old");
    let how = match number("copied_bytes") {
        0 => "it begins empty".to_owned(),
        n => format!("{n} bytes were copied"),
    };
    let (before, after) = (number("slots_before"), number("slots"));
    let size = if after == before {
        format!("{after} extents")
    } else {
        format!("{after} extents, formerly {before}")
    };
    format!(
        "{v}: member {place} (tier {}) is {new} now, formerly {old}: {how}; {size}\n",
        number("tier")
    )
}
