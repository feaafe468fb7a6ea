//! `isotherm policies`: the policies that the program has.

use std::fmt::Write;

use isotherm_answers::{PolicyInfo, PolicyKind, PolicyParam};
use isotherm_core::policy::{PRESETS, Preset, nearest};

use crate::Failure;
use crate::args::PoliciesArgs;
use crate::table::{table, wrapped};

/// Most columns of the list of policies.
const WIDE: usize = 100;

/// `isotherm policies`.
///
/// # Errors
/// There is no policy of that name (the nearest is named), or the output cannot be written.
pub fn run(args: &PoliciesArgs) -> Result<(), Failure> {
    let wanted: Vec<&Preset> = match &args.name {
        None => PRESETS.iter().collect(),
        Some(name) => vec![PRESETS.iter().find(|p| p.name == name).ok_or_else(|| {
            let near = nearest(name, PRESETS.iter().map(|p| p.name));
            Failure::usage(format!(
                "unexpected argument `{name}`: no policy has this name; nearest: `{near}`"
            ))
        })?],
    };
    let list: Vec<PolicyInfo> = wanted.iter().map(|p| info(p)).collect();
    args.json.print(&list, || match &wanted[..] {
        [one] if args.name.is_some() => in_full(one),
        all => overview(all),
    })
}

/// A policy as `--json` shows it.
fn info(p: &Preset) -> PolicyInfo {
    let params = p.parameters().map(|q| PolicyParam {
        name: q.name,
        what: q.what,
        default: q.default,
    });
    PolicyInfo {
        name: p.name,
        kind: if p.is_caching() {
            PolicyKind::Caching
        } else {
            PolicyKind::Tiering
        },
        what: p.what,
        source: p.source,
        params: params.collect(),
    }
}

fn overview(all: &[&Preset]) -> String {
    let widest = |f: fn(&Preset) -> &str| all.iter().map(|p| f(p).chars().count()).max();
    let used = widest(|p| p.name).unwrap_or(0) + widest(|p| p.kind()).unwrap_or(0).max(4) + 4;
    let rows: Vec<Vec<String>> = all
        .iter()
        .flat_map(|p| {
            let words = wrapped(p.what, WIDE - used).into_iter().enumerate();
            words.map(|(i, line)| {
                let first = |s: &str| if i == 0 { s.to_owned() } else { String::new() };
                vec![first(p.name), first(p.kind()), line]
            })
        })
        .collect();
    format!(
        "{}\n`isotherm policies NAME` shows parameters and source of one\n",
        table(&["policy", "kind", "what"], &rows)
    )
}

fn in_full(p: &Preset) -> String {
    let mut text = format!("{} ({})\n", p.name, p.kind());
    for line in wrapped(p.what, WIDE - 2) {
        let _ = writeln!(text, "  {line}");
    }
    let params: Vec<_> = p.parameters().collect();
    let name = params.iter().map(|q| q.name.len()).max().unwrap_or(0);
    if !params.is_empty() {
        text += "\nparameters, as in NAME,KEY=VALUE\n";
    }
    for q in params {
        let words = format!("{}; default {}", q.what, q.default);
        for (i, line) in wrapped(&words, WIDE - name - 4).into_iter().enumerate() {
            let key = if i == 0 { q.name } else { "" };
            let _ = writeln!(text, "  {key:<name$}  {line}");
        }
    }
    text += "\nsource\n";
    for line in wrapped(p.source, WIDE - 2) {
        let _ = writeln!(text, "  {line}");
    }
    text
}
