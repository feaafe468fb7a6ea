//! Every preset meets its published figures, driven in virtual time.

use isotherm_core::Nanos;
use isotherm_models::hdd::HddSheet;
use isotherm_models::measure::{Outcome, Work, run, validate};
use isotherm_models::{
    DestageBy, FlashState, ModelOp, Options, SheetError, Span, preset, presets, sheet,
};

fn random(name: &str, options: &Options, op: ModelOp, span: u64, depth: u32) -> Outcome {
    let mut model = preset(name, options).unwrap();
    let span = if span == 0 { model.capacity() } else { span };
    let work = Work {
        op,
        len: 4096,
        random: true,
        span,
        depth,
        count: 4000,
        seed: 7,
    };
    run(model.as_mut(), Nanos(0), &work).0
}

#[test]
fn the_figures_of_the_sheets_within_ten_percent() {
    let (mut compared, mut outside) = (0, 0);
    for sheet in presets().unwrap() {
        for c in validate(&sheet).unwrap() {
            // This figure was measured by others. It is shown for comparison, and no parameter was fitted to it.
            if !c.published.fitted {
                let off = c.error().abs();
                println!("{} {}: {:?}", c.device, c.modelled, c.published);
                // The only figure that is known to be farther off (docs/models.md).
                if c.published.source.ends_with("a file of 650 MB written") {
                    assert!((0.5..0.8).contains(&off), "{off}: {:?}", c.published);
                } else {
                    assert!(off < 0.5, "{}: {:?}", c.device, c.published);
                }
                outside += 1;
                continue;
            }
            let what = c.published.what;
            assert!(
                c.error().abs() < 0.10,
                "{} {what:?}: {} vs {}",
                c.device,
                c.published.value,
                c.modelled
            );
            compared += 1;
        }
    }
    assert!(compared >= 50, "only {compared} figures");
    assert!(outside >= 11, "only {outside} from outside");
}

/// What the 29 % by which the model of the Barracuda XT writes faster at random than the drive was measured can and cannot come from. Two
/// changes lead to the measured 7 ms, each alone, so this figure cannot tell which one the drive has, and the sheet has neither.
#[test]
fn what_can_explain_the_random_writes_of_the_barracuda() {
    let times = |change: &dyn Fn(&mut HddSheet)| {
        let mut s = sheet("st32000641as").unwrap();
        change(s.hdd.as_mut().unwrap());
        let all = validate(&s).unwrap();
        let of = |what: &str| {
            let row = all.iter().find(|c| c.published.source.contains(what));
            row.unwrap().modelled / 1e3
        };
        (of("14 ms for reads"), of("7 ms for writes"))
    };
    let near = |ms: f64, want: f64| assert!((ms / want - 1.0).abs() < 0.02, "{ms} not {want}");
    let (read, write) = times(&|_| ());
    near(read, 12.67);
    near(write, 5.00);
    // Conditions that are excluded: without a write buffer, writes take longer than reads; its size does not matter.
    near(times(&|h| h.write_cache = false).1, 13.69);
    near(times(&|h| h.cache_mib = 16).1, 5.00);
    // Seeks as slow as the measured reads demand explain less than half of it.
    let (read, write) = times(&|h| h.average_seek_ms = 9.83);
    near(read, 14.0);
    near(write, 5.89);
    // Either of these explains it: the order of the shortest arm movement, or a choice among fewer runs.
    near(times(&|h| h.destage_by = DestageBy::Seek).1, 7.03);
    near(times(&|h| h.destage_look = 16).1, 6.84);
}

/// Loris does not say over which part of the disk its Table I was measured; its experiments used the first 8 GB. The data sheet's seeks give
/// neither figure there, and neither over the whole disk: the measured ones lie between. The sheet assumes the whole disk and faster seeks.
#[test]
fn the_part_of_the_disk_in_loris_table_is_not_known() {
    let mut s = sheet("wd5000aaks").unwrap();
    let h = s.hdd.as_mut().unwrap();
    (h.track_to_track_ms, h.average_seek_ms, h.full_stroke_ms) = (2.0, 8.9, 21.0);
    h.skew_ms = 2.1;
    let mut rates = |span| {
        for p in &mut s.published {
            p.span = span;
        }
        let all = validate(&s).unwrap();
        (all[0].modelled, all[1].modelled)
    };
    let (whole, part) = (rates(None), rates(Some(8_000_000_000)));
    assert!(
        (70.0..80.0).contains(&whole.0) && (60.0..70.0).contains(&whole.1),
        "{whole:?}"
    );
    assert!(
        (148.0..158.0).contains(&part.0) && (112.0..122.0).contains(&part.1),
        "{part:?}"
    );
}

#[test]
fn loris_device_table() {
    // The table itself, so that a change of the sheet's own list of figures is noticed.
    let o = Options {
        flash: FlashState::Fresh,
        ..Options::default()
    };
    let near =
        |got: f64, want: f64| assert!((got / want - 1.0).abs() < 0.10, "{got} instead of {want}");
    near(random("wd5000aaks", &o, ModelOp::Read, 0, 1).iops, 112.0);
    let through = Options {
        write_cache: Some(false),
        ..o
    };
    near(
        random("wd5000aaks", &through, ModelOp::Write, 0, 1).iops,
        91.0,
    );
    near(
        random("ocz-vertex3-maxiops", &o, ModelOp::Read, 0, 32).iops,
        35_000.0,
    );
    near(
        random("ocz-vertex3-maxiops", &o, ModelOp::Write, 0, 32).iops,
        75_000.0,
    );
    let sequential = |op, depth| {
        let mut m = preset("wd5000aaks", &o).unwrap();
        let work = Work {
            op,
            len: 1 << 20,
            random: false,
            span: 8 << 30,
            depth,
            count: 2000,
            seed: 1,
        };
        run(m.as_mut(), Nanos(0), &work).0.mb_s
    };
    near(sequential(ModelOp::Read, 1), 126.0);
    near(sequential(ModelOp::Write, 4), 126.0);
}

#[test]
fn a_short_span_and_a_deep_queue_are_faster() {
    // A write buffer would hide the effect of the depth.
    let o = Options {
        write_cache: Some(false),
        ..Options::default()
    };
    let capacity = sheet("wd5000aaks").unwrap().capacity();
    for op in [ModelOp::Read, ModelOp::Write] {
        let full = random("wd5000aaks", &o, op, 0, 1).iops;
        let short = random("wd5000aaks", &o, op, capacity / 100, 1).iops;
        let deep = random("wd5000aaks", &o, op, 0, 32).iops;
        assert!(short > full * 1.3, "{op:?}: short {short}, full {full}");
        assert!(deep > full * 1.8, "{op:?}: deep {deep}, full {full}");
        let fcfs = Options {
            queue_depth: Some(1),
            ..o
        };
        let unsorted = random("wd5000aaks", &fcfs, op, 0, 32).iops;
        assert!(
            (unsorted / full - 1.0).abs() < 0.05,
            "{op:?}: {unsorted} with a queue the drive cannot see"
        );
    }
}

#[test]
fn the_inner_zone_is_slower() {
    let rate = |start| {
        let size = 1 << 30;
        let o = Options {
            size,
            span: Span::At { start },
            ..Options::default()
        };
        let mut m = preset("wd5000aaks", &o).unwrap();
        let work = Work {
            op: ModelOp::Read,
            len: 1 << 20,
            random: false,
            span: size,
            depth: 2,
            count: 1000,
            seed: 1,
        };
        run(m.as_mut(), Nanos(0), &work).0.mb_s
    };
    let inner = rate(sheet("wd5000aaks").unwrap().capacity() - (1 << 30));
    assert!((60.0..67.0).contains(&inner), "{inner}");
    assert!(rate(0) > 120.0);
}

#[test]
fn a_small_member_stretched_over_the_drive_seeks_like_the_drive() {
    let size = 2 << 30;
    let stretched = Options {
        size,
        span: Span::Full,
        ..Options::default()
    };
    let at_start = Options {
        size,
        ..Options::default()
    };
    for op in [ModelOp::Read, ModelOp::Write] {
        let full = random("wd5000aaks", &Options::default(), op, 0, 1).iops;
        let small = random("wd5000aaks", &stretched, op, size, 1).iops;
        assert!(
            (small / full - 1.0).abs() < 0.03,
            "{op:?}: {small} vs {full}"
        );
        assert!(random("wd5000aaks", &at_start, op, size, 1).iops > 1.3 * full);
    }
    let mut m = preset("wd5000aaks", &stretched).unwrap();
    let work = Work {
        op: ModelOp::Read,
        len: 1 << 20,
        random: false,
        span: size,
        depth: 2,
        count: 2048,
        seed: 1,
    };
    let (outcome, _) = run(m.as_mut(), Nanos(0), &work);
    assert!(
        (80.0..126.0).contains(&outcome.mb_s),
        "runs survive stretching: {}",
        outcome.mb_s
    );
}

#[test]
fn sequential_writes_without_cache_miss_a_revolution_at_depth_one() {
    let rate = |write_cache, depth| {
        let o = Options {
            write_cache: Some(write_cache),
            ..Options::default()
        };
        let mut m = preset("wd5000aaks", &o).unwrap();
        let work = Work {
            op: ModelOp::Write,
            len: 4096,
            random: false,
            span: 1 << 30,
            depth,
            count: 3000,
            seed: 1,
        };
        run(m.as_mut(), Nanos(0), &work).0.iops
    };
    let revolutions = 7200.0 / 60.0;
    assert!(
        (rate(false, 1) / revolutions - 1.0).abs() < 0.05,
        "{}",
        rate(false, 1)
    );
    assert!(rate(false, 8) > 3.0 * revolutions);
}

#[test]
fn sequential_writes_with_cache_stream_at_depth_one() {
    for name in ["wd5000aaks", "st32000641as", "exos-18tb", "maxtor-250"] {
        let outer = sheet(name).unwrap().hdd.unwrap().outer_mb_s;
        for len in [64 << 10, 128 << 10, 1 << 20] {
            let mut m = preset(name, &Options::default()).unwrap();
            let work = Work {
                op: ModelOp::Write,
                len,
                random: false,
                span: 8 << 30,
                depth: 1,
                count: (2 << 30) / u64::from(len),
                seed: 1,
            };
            let got = run(m.as_mut(), Nanos(0), &work).0.mb_s;
            assert!(
                (got / outer - 1.0).abs() < 0.05,
                "{name} {len}: {got} of {outer}"
            );
        }
    }
}

#[test]
fn a_buffer_hides_positioning_only_until_it_is_full() {
    for (name, options) in [
        ("wd5000aaks", Options::default()),
        ("st32000641as", Options::default()),
    ] {
        let through = Options {
            write_cache: Some(false),
            ..options
        };
        // A full buffer is emptied in an order that suits the arm, at any depth: at least as fast as a deep queue, and at most 1.5 times as
        // fast.
        let deep = random(name, &through, ModelOp::Write, 0, 32).iops;
        for depth in [1, 4, 32] {
            let cached = random(name, &options, ModelOp::Write, 0, depth).iops;
            assert!(
                (0.8..1.5).contains(&(cached / deep)),
                "{name} {depth}: {cached} {deep}"
            );
        }
    }
}

#[test]
fn a_miss_names_the_nearest_preset() {
    for (asked, nearest) in [
        ("wd5000aak", "wd5000aaks"),
        ("INTEL-320", "intel-320-300"),
        ("nvme_tlc", "nvme-tlc"),
    ] {
        let e = preset(asked, &Options::default()).err().unwrap();
        assert_eq!(
            e,
            SheetError::Unknown {
                name: asked.to_owned(),
                nearest: nearest.to_owned()
            }
        );
        assert!(e.to_string().contains(nearest));
    }
}

#[test]
fn bad_sheets_name_file_and_field() {
    let good = include_str!("../presets/wd5000aaks.toml");
    let parse = |text: &str| {
        isotherm_models::Sheet::parse(text, "mine.toml")
            .unwrap_err()
            .to_string()
    };
    let e = parse(&good.replace("rpm = 7200.0", "rpm = -1.0"));
    assert!(e.contains("mine.toml") && e.contains("hdd.rpm"), "{e}");
    let e = parse(&good.replace("heads = 2", "hedas = 2"));
    assert!(e.contains("hedas") && e.contains("heads"), "{e}");
    let e = parse(&good.replace("average_seek_ms = 4.63", "average_seek_ms = 10.5"));
    assert!(
        e.contains("average_seek_ms") && e.contains("seek curve"),
        "{e}"
    );
    let e = parse(&good.replace("idle_w = 8.40", "idle_w = nan"));
    assert!(e.contains("hdd.power.idle_w"), "{e}");
    assert!(parse("name = 'x'\ndescription = ''").contains("exactly one"));
}

#[test]
fn impossible_options_are_refused() {
    let refuse = |name: &str, o: Options| preset(name, &o).err().unwrap().to_string();
    let d = Options::default();
    assert!(
        refuse(
            "wd5000aaks",
            Options {
                size: u64::MAX,
                ..d
            }
        )
        .contains("the drive only")
    );
    assert!(
        refuse(
            "wd5000aaks",
            Options {
                span: Span::At { start: u64::MAX },
                ..d
            }
        )
        .contains("beyond")
    );
    assert!(
        refuse(
            "intel-320-300",
            Options {
                reads_per_write: Some(f64::NAN),
                ..d
            }
        )
        .contains("reads_per_write")
    );
    assert!(
        refuse(
            "wd5000aaks",
            Options {
                queue_depth: Some(0),
                ..d
            }
        )
        .contains("queue_depth")
    );
}

/// A price without a date is soon wrong, and one without a source cannot be checked.
#[test]
fn prices_have_a_date_and_a_source() {
    let mut priced = 0;
    for s in presets().unwrap() {
        let of_price = [s.price_date.as_deref(), s.price_source.as_deref()];
        let known = of_price.map(|t| t.is_some_and(|t| !t.is_empty()));
        assert_eq!(known, [s.price_usd.is_some(); 2], "{}", s.name);
        let year = s.price_date.as_deref().map(|d| d[..4].parse::<u32>());
        assert!(
            year.is_none_or(|y| matches!(y, Ok(2000..2100))),
            "{}",
            s.name
        );
        priced += usize::from(s.price_usd.is_some());
    }
    assert!(priced >= 8, "{priced}");
    // The pair with which a plan begins.
    for name in ["sata-enterprise", "exos-18tb"] {
        assert!(sheet(name).unwrap().price_usd.is_some(), "{name}");
    }
}
