//! `trace convert`, `cut`, `merge` and `sort`: what they write, and what they say.

mod common;

use common::Place;

/// MSR's form: a request every 10 ms, in pairs that are the wrong way round.
fn msr(disk: u64, n: u64) -> String {
    (0..n)
        .map(|i| {
            let time = 128_166_385_295_514_663 + (i ^ 1) * 100_000;
            format!("{time},h,{disk},Read,{},4096,9\n", (i ^ 1) * 4096)
        })
        .collect::<Vec<_>>()
        .concat()
}

#[test]
fn parts_are_cut_traces_merged_and_sorted() {
    let place = Place::new();
    std::fs::write(place.path("a"), msr(0, 1_000)).expect("written");
    std::fs::write(place.path("b"), msr(1, 1_000)).expect("written");
    let info = |file: &str| place.json(&format!("trace info {file}"), "trace-info");
    assert_eq!(info("a")["reader"]["sorted"], 500);
    let cut = place.json(
        "trace cut a --from 2.5 --to 0.1m --every 2 --out c",
        "trace-cut",
    );
    assert_eq!(
        (&cut["requests"], &info("c")["first_byte"]),
        (&175.into(), &(250 * 4096).into())
    );
    let merged = place.json("trace merge a b --out m", "trace-merge");
    assert_eq!(
        (&merged["requests"], &info("m")["devices"]),
        (&2_000.into(), &2.into())
    );
    place.ok("trace merge a gen:uniform,requests=10 --from-zero --out z");
    assert_eq!(info("z")["requests"], 1_010);
    // SPC is not sorted by itself; a window that is too small is refused, and leaves nothing.
    let spc = (0..640_u64)
        .map(|i| format!("0,{i},512,r,{}.0\n", i ^ 63))
        .collect::<Vec<_>>()
        .concat();
    std::fs::write(place.path("spc"), spc).expect("written");
    let said = place.fails("trace sort spc --window 3 --out s");
    assert!(
        said.contains("larger --window") && !place.path("s").exists(),
        "{said}"
    );
    let sorted = place.json("trace sort spc --out s", "trace-sort");
    assert_eq!(
        (&sorted["requests"], &info("s")["duration_s"]),
        (&640.into(), &639.0.into())
    );
    let text = place.ok("trace cut a --to 1 --as csv --out -");
    assert_eq!(text.lines().count(), 101);
    for (wrong, why) in [
        ("trace cut a --from 5 --to 5 --out x", "earlier than --to"),
        ("trace cut a --to csv --out x", "--as names the format"),
        ("trace merge a --out x", "2 values required"),
        ("trace cut a --from 1 --as msr --out x", "can only be read"),
        ("trace info a --separator ;", "--columns"),
    ] {
        let out = place.run(wrong);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(
            out.status.code() == Some(2) && said.contains(why),
            "{wrong}: {said}"
        );
    }
}

#[test]
fn a_conversion_says_what_it_assumed_and_its_copy_knows() {
    let place = Place::new();
    let lines = (0..200_u64)
        .map(|i| format!("{}:{}:4096\n", 17 + i * 7, i * i * 4096))
        .collect::<Vec<_>>()
        .concat();
    std::fs::write(place.path("own"), lines).expect("written");
    let read = "--columns time,offset,length --separator :";
    let out = place.run(&format!(
        "trace convert own {read} --to csv --out copy --json -"
    ));
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{said}");
    assert!(
        said.contains("all are taken as reads")
            && said.contains("WARNING: own")
            && said.contains("the unit of time"),
        "{said}"
    );
    let written: serde_json::Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let copy = place.json("trace info copy", "trace-info");
    assert_eq!(
        (&copy["format"], &copy["sure"]),
        (&"csv".into(), &"guess".into())
    );
    let doubt = written["doubts"][0].as_str().expect("a doubt");
    assert_eq!(copy["doubts"][0], format!("Of the original: {doubt}"));
    // A unit that the user states is no doubt.
    let stated = place.json(
        &format!("trace info own {read} --time-unit ms"),
        "trace-info",
    );
    assert!(
        stated["doubts"].as_array().is_some_and(Vec::is_empty),
        "{stated}"
    );
}
