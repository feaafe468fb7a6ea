//! `docs/reference.md`: the options of the command line, descriptions of volumes, `set` and policies, generated from the tables that the
//! program itself uses.

use std::fmt::Write as _;

use clap::{Arg, Command};
use isotherm_core::engine::{KNOBS, Params};
use isotherm_core::policy::PRESETS;
use isotherm_live::config::{Field, IO, MEMBER, TOP};

use super::args::whole;

const HEAD: &str = "\
# Reference

<!-- Written by `isotherm generate DIR` from the program's own tables. Change those, not this page; a test compares. -->

This page lists every command, every key of a description, every knob of the engine and every parameter of a policy. The
pages [serving.md](serving.md), [policies.md](policies.md) and [lab.md](lab.md) explain their use.

- [Values](#values)
- [Exit codes](#exit-codes)
- [The description of a volume](#the-description-of-a-volume)
- [Knobs](#knobs)
- [Policies and their parameters](#policies-and-their-parameters)
- [Commands](#commands)

## Values

A size is a number of bytes with an optional suffix: `K`, `M`, `G`, `T` and `P` are powers of 1024. Fractions are allowed: `1.5G`
is 1610612736 bytes. A policy is `NAME` or `NAME,KEY=VALUE,...`. The end of a knob's name is its unit: `_s` is seconds,
`_h` hours, `_us` microseconds, `_bytes` bytes, `_per_s` and `_per_day` rates.

## Exit codes

| Code | Meaning |
|---|---|
| 0 | The command succeeded. |
| 1 | The command failed; one line on standard error says why. `check` and `validate` also end with 1 if they found a fault. |
| 2 | Wrong use: the command does not accept an argument, a name or a value. |

";

/// The whole page, as Markdown.
pub fn page() -> String {
    let mut text = HEAD.to_owned();
    description(&mut text);
    knobs(&mut text);
    policies(&mut text);
    text += "## Commands\n\n`isotherm COMMAND --help` prints the same with examples. Every command takes `--help`.\n\n";
    let mut root = whole();
    root.build();
    for sub in visible(&root) {
        command(&mut text, sub, &format!("isotherm {}", sub.get_name()));
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// A row of a table. A bar inside a cell would end the cell.
fn row(text: &mut String, cells: &[&str]) {
    for cell in cells {
        let _ = write!(text, "| {} ", cell.replace('|', "\\|").replace('\n', " "));
    }
    text.push_str("|\n");
}

fn heads(text: &mut String, cells: &[&str]) {
    row(text, cells);
    let _ = writeln!(text, "{}|", "|---".repeat(cells.len()));
}

fn code(name: &str) -> String {
    format!("`{name}`")
}

fn description(text: &mut String) {
    *text += "## The description of a volume\n\n`NAME.toml`, as `isotherm create` writes it. Unknown keys are refused.\n\n";
    for (title, fields) in [
        ("At the top", TOP),
        ("In each `[[members]]`", MEMBER),
        ("Under `[io]`, read when serving starts", IO),
    ] {
        let _ = writeln!(text, "### {title}\n");
        heads(text, &["Key", "Value", "Default", "Meaning"]);
        for Field {
            name,
            range,
            default,
            what,
            ..
        } in fields
        {
            row(text, &[&code(name), range, default, what]);
        }
        text.push('\n');
    }
}

fn knobs(text: &mut String) {
    *text += "## Knobs\n\nA knob works with every policy and changes while the volume is served: `isotherm set NAME KNOB=VALUE`. \
              The same names are valid\nunder `[io]` of a description, in `isotherm sim --set`, among the parameters of `stats --json`, and in the settings of Python's `sim`.\n\n";
    heads(text, &["Knob", "Unit and range", "Default", "Meaning"]);
    let usual = Params::default();
    for k in &KNOBS {
        let range = k.range.strip_prefix(k.name).unwrap_or(k.range);
        let range = range.trim_start_matches(": ");
        row(
            text,
            &[&code(k.name), range, &k.get(&usual).to_string(), k.what],
        );
    }
    text.push('\n');
}

fn policies(text: &mut String) {
    *text += "## Policies and their parameters\n\n`isotherm set NAME PARAMETER=VALUE` changes a parameter of the served policy, and \
              `isotherm set NAME policy=POLICY,...` the\npolicy. The rules of each policy are in [policy-rules.md](policy-rules.md).\n\n";
    for p in PRESETS {
        let _ = writeln!(text, "### `{}`\n", p.name);
        paragraph(text, &format!("({}) {}.", p.kind(), p.what));
        paragraph(text, &format!("Source: {}.", p.source));
        let params: Vec<_> = p.parameters().collect();
        if params.is_empty() {
            continue;
        }
        heads(text, &["Parameter", "Default", "Meaning and range"]);
        for q in params {
            row(text, &[&code(q.name), q.default, q.what]);
        }
        text.push('\n');
    }
}

/// Text in lines of at most 120 columns, followed by an empty line.
fn paragraph(text: &mut String, words: &str) {
    for line in crate::table::wrapped(words, 120) {
        *text += &line;
        text.push('\n');
    }
    text.push('\n');
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command
        .get_subcommands()
        .filter(|s| s.get_name() != "help" && !s.is_hide_set())
}

fn command(text: &mut String, this: &Command, name: &str) {
    let _ = writeln!(text, "### `{name}`\n");
    if let Some(about) = this.get_about() {
        paragraph(text, &format!("{about}."));
    }
    let usage = this.clone().bin_name(name).render_usage().to_string();
    let _ = writeln!(text, "```text\n{}\n```\n", usage.trim());
    let args: Vec<&Arg> = this
        .get_arguments()
        .filter(|a| !a.is_hide_set() && !matches!(a.get_id().as_str(), "help" | "version"))
        .collect();
    if !args.is_empty() {
        heads(text, &["Argument", "Default", "Meaning"]);
        for a in args {
            row(text, &[&code(&spelled(a)), &usual(a), &meaning(a)]);
        }
        text.push('\n');
    }
    for sub in visible(this) {
        command(text, sub, &format!("{name} {}", sub.get_name()));
    }
}

/// `--json`, `-f, --fast <PATH:SIZE>`, or `NAME`.
fn spelled(arg: &Arg) -> String {
    let mut names = Vec::new();
    names.extend(arg.get_short().map(|c| format!("-{c}")));
    names.extend(arg.get_long().map(|l| format!("--{l}")));
    let values: Vec<String> = arg
        .get_value_names()
        .unwrap_or_default()
        .iter()
        .map(|v| format!("<{v}>"))
        .collect();
    let takes = arg.get_action().takes_values();
    match (names.is_empty(), takes) {
        (true, _) => values.join(" "),
        (false, true) => format!("{} {}", names.join(", "), values.join(" ")),
        (false, false) => names.join(", "),
    }
}

fn usual(arg: &Arg) -> String {
    let values = arg.get_default_values().iter();
    let values: Vec<_> = values.map(|v| code(&v.to_string_lossy())).collect();
    match (values.is_empty(), arg.get_action().takes_values()) {
        (false, true) => values.join(" "),
        _ => String::new(),
    }
}

fn meaning(arg: &Arg) -> String {
    let long = arg.get_long_help().or(arg.get_help());
    let mut text = long.map_or_else(String::new, ToString::to_string);
    let choices: Vec<_> = arg
        .get_possible_values()
        .iter()
        .filter(|v| !v.is_hide_set())
        .map(|v| code(v.get_name()))
        .collect();
    if arg.get_action().takes_values() && !choices.is_empty() {
        let _ = write!(text, " ({})", choices.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use isotherm_answers::schema::{Made, made, same, written};

    use crate::lab::{
        cost, devices, files_record, formats, measure, record, replay_events, reproduce,
    };

    const HOW: &str = "cargo test -p isotherm --lib reference";

    /// The schemas of the lab's commands.
    fn of_the_lab() -> Vec<Made> {
        vec![
            made::<cost::answer::Answer<'_>>("cost", "cost"),
            made::<Vec<cost::answer::CapacityRow>>("cost-capacity", "cost capacity"),
            made::<cost::answer::ShelfAnswer>("cost-shelves", "cost shelves"),
            made::<Vec<devices::Listed<'_>>>("devices", "devices"),
            made::<measure::Answer>("devices-measure", "devices measure PATH"),
            made::<devices::Validation<'_>>("devices-validate", "devices validate"),
            made::<files_record::RecordedFiles>("files-record", "files record"),
            made::<Vec<formats::Known>>("formats", "formats"),
            made::<record::Recorded>("record", "record"),
            made::<replay_events::Replayed<'_>>("replay-events", "replay-events"),
            made::<reproduce::List<'_>>("reproduce-list", "reproduce list"),
        ]
    }

    #[test]
    fn the_page_says_what_the_program_takes() {
        assert_eq!(same("reference.md", &super::page(), HOW), Ok(()));
    }

    #[test]
    fn schemas_say_what_the_types_are() {
        let all = isotherm_answers::schema::all();
        for (name, text) in all.into_iter().chain(of_the_lab()) {
            assert_eq!(written(name, &text, HOW), Ok(()));
        }
    }
}
