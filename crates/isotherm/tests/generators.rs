//! Generators on the command line: they are accepted wherever a trace is expected.

mod common;

use common::Place;

const POSTMARK: &str = "gen:postmark,files=400,transactions=800";

#[test]
fn a_generator_stands_for_a_trace() {
    let place = Place::new();
    let info = place.json(&format!("trace info {POSTMARK} --plot p.svg"), "trace-info");
    let plot = std::fs::read_to_string(place.path("p.svg")).expect("drawn");
    assert!(
        plot.contains("cache size (log)"),
        "the axis says what it is"
    );
    assert_eq!(info["format"], "generated");
    assert_eq!(info["reuse"]["sampling_rate"], 1.0);
    let svg = std::fs::read_to_string(place.path("p.svg")).expect("drawn");
    // The cells of the heat map, the bars of the sizes, and the curve of hit ratios.
    assert!(svg.matches("<rect").count() > 30 && svg.contains("<polyline"));
    assert!(svg.contains("gen:postmark") && svg.contains("cache size (log)"));

    let written = place.json(
        &format!("trace convert {POSTMARK} --to parquet --out p.parquet"),
        "trace-convert",
    );
    assert_eq!(written["requests"], info["requests"]);
    let part = place.json("trace info p.parquet --limit 5", "trace-info");
    assert_eq!(part["requests"], 5);
    let again = place.json("trace info p.parquet", "trace-info");
    for key in [
        "requests",
        "bytes_read",
        "bytes_written",
        "unique_4k",
        "by_class",
        "sizes",
        "reuse",
    ] {
        assert_eq!(again[key], info[key], "{key}");
    }

    let sim = |trace: &str| {
        let call = format!("sim {trace} --policy greendm --fast-size 10% --hit-only --json");
        let value: serde_json::Value = serde_json::from_str(&place.ok(&call)).expect("JSON");
        ["requests", "accesses", "fast_hit_ratio", "promotions"].map(|k| value[k].clone())
    };
    assert_eq!(sim(POSTMARK), sim("p.parquet"));
}

#[test]
fn wrong_generators_are_wrong_usage() {
    let place = Place::new();
    for (call, wants) in [
        ("trace info gen:postmrk", "nearest: `postmark`"),
        ("trace info gen:zipf,expnent=1", "nearest: `exponent`"),
        (
            "sim gen:zipf,x=1 --policy greendm --fast-size 1M --hit-only",
            "has no parameter `x`",
        ),
        ("trace convert gen:zipf,reads=2 --out z", "from 0 to 1"),
    ] {
        let out = place.run(call);
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!(out.status.code(), Some(2), "{call}: {said}");
        assert!(said.contains(wants), "{call}: {said}");
    }
    assert!(place.names().is_empty());
    let list = place.ok("trace generators");
    assert!(
        list.contains("gen:web-search")
            && list.contains("GreenDM Table 6.3")
            && list.contains("1055236")
    );
}

#[test]
fn a_trace_goes_through_a_pipe() {
    let place = Place::new();
    for to in ["csv", "fio-v3", "blkreplay", "parquet"] {
        let convert = format!("trace convert {POSTMARK} --to {to} --out");
        place.ok(&format!("{convert} file.{to}"));
        let file = std::fs::read(place.path(&format!("file.{to}"))).expect("written");
        for out in ["-", "/dev/stdout"] {
            let piped = place.run(&format!("{convert} {out}"));
            let said = String::from_utf8_lossy(&piped.stderr).into_owned();
            assert!(piped.status.success(), "{to}: {said}");
            assert!(said.contains(&format!(" requests as {to}")), "{said}");
            assert!(piped.stdout == file, "{to} differs through a pipe");
        }
        // Standard output may be a file that has content.
        let redirected = std::fs::File::options()
            .create(true)
            .append(true)
            .open(place.path("all"));
        let mut command = place.command(&format!("{convert} -"));
        command.stdout(redirected.expect("made"));
        assert!(command.output().expect("runs").status.success());
    }
    let all = std::fs::metadata(place.path("all")).expect("there").len();
    let each: u64 = ["csv", "fio-v3", "blkreplay", "parquet"]
        .iter()
        .map(|to| {
            std::fs::metadata(place.path(&format!("file.{to}")))
                .expect("there")
                .len()
        })
        .sum();
    assert_eq!(all, each);
    // The figures would be mixed with the trace.
    let both = place.run(&format!("trace convert {POSTMARK} --to csv --out - --json"));
    assert_eq!(both.status.code(), Some(2));
    assert!(both.stdout.is_empty());
    place.ok(&format!(
        "trace convert {POSTMARK} --to csv --out - --json=figures"
    ));
    assert!(place.path("figures").exists());
    let why = place.fails(&format!(
        "trace convert {POSTMARK} --to oracle-general --out -"
    ));
    assert!(why.contains("which a pipe does not allow"), "{why}");
    // A reader that needs no more of it.
    let head = std::process::Command::new("bash")
        .args(["-c", "set -o pipefail; \"$0\" trace convert gen:zipf,requests=200000 --to csv --out - 2>errors | head -n 2"])
        .arg(env!("CARGO_BIN_EXE_isotherm"))
        .current_dir(place.path("."))
        .output()
        .expect("runs");
    assert!(head.status.success());
    assert_eq!(String::from_utf8_lossy(&head.stdout).lines().count(), 2);
    let errors = std::fs::read_to_string(place.path("errors")).expect("read");
    assert_eq!(errors, "");
    // A device that takes nothing.
    let full = place.fails(&format!(
        "trace convert {POSTMARK} --to csv --out /dev/full"
    ));
    assert!(full.contains("cannot write"), "{full}");
    assert!(
        std::path::Path::new("/dev/full").exists()
            && !std::path::Path::new("/dev/full.part").exists()
    );
}
