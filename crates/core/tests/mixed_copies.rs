//! Extents whose blocks have several classes, under `dss-lru-s`: the class of a copy is the best class of its valid blocks.
#![allow(clippy::unwrap_used)]

mod rig;

use isotherm_core::engine::Params;
use isotherm_core::geometry::{Geometry, Member};
use isotherm_core::null::NullEngine;
use isotherm_core::policy::{Policy, build, priority};
use isotherm_core::{ExtentId, Nanos, Request, RequestOp, Tag, TierId};
use rig::Run;

const JOURNAL: u8 = 7;
const SMALL: u8 = 9;
const FILM: u8 = 14;

/// Three slots of 64 KiB.
fn null() -> NullEngine<Box<dyn Policy>> {
    let m = |t, slots| Member {
        tier: TierId(t),
        first_slot: 0,
        slots,
        data_offset: 0,
        stash: isotherm_core::geometry::Stash::default(),
    };
    let geo = Geometry::new(16, 12, 20, vec![m(0, 3), m(1, 20)]).unwrap();
    NullEngine::new(geo, build("dss-lru-s", std::iter::empty()).unwrap())
}

fn read(e: &mut NullEngine<Box<dyn Policy>>, at: u64, unit: u32, block: u64, class: u8) {
    let request = ((u64::from(unit) << 16) + (block << 12), 4096);
    e.access(
        Nanos::from_millis(at),
        ExtentId(unit),
        false,
        class,
        request,
    );
}

/// Worked by hand: extent 0 contains a journal block and the end of a film.
#[test]
fn a_read_of_a_film_does_not_evict_a_journal_block() {
    let mut e = null();
    read(&mut e, 1, 0, 3, JOURNAL);
    read(&mut e, 2, 1, 0, SMALL);
    read(&mut e, 3, 2, 0, SMALL);
    read(&mut e, 4, 0, 9, FILM);
    // No slot is free. The oldest of the small files leaves, and not extent 0, although the last access to extent 0 was to the film.
    read(&mut e, 5, 3, 0, SMALL);
    assert!(e.copy(ExtentId(0)).is_some() && e.copy(ExtentId(1)).is_none());
    let m = e.space().map.mixed(priority);
    assert_eq!((m.known, m.mixed, m.blocks, m.neighbours), (3, 1, 48, 1));
    // The journal's block is now used for the film, too. Extent 0 contains only parts of the film, so it leaves first.
    read(&mut e, 6, 0, 3, FILM);
    read(&mut e, 7, 4, 0, SMALL);
    assert!(
        e.copy(ExtentId(0)).is_some(),
        "its other blocks are like the first"
    );
    let whole = (0, 65_536);
    e.access(Nanos::from_millis(8), ExtentId(0), false, FILM, whole);
    read(&mut e, 9, 5, 0, SMALL);
    assert!(e.copy(ExtentId(0)).is_none());
}

/// After a reclassification, all blocks of an extent have the same class until the next access.
#[test]
fn a_reclassified_copy_moves_at_once() {
    let mut e = null();
    read(&mut e, 1, 0, 3, JOURNAL);
    read(&mut e, 2, 0, 4, FILM);
    read(&mut e, 3, 1, 0, SMALL);
    read(&mut e, 4, 2, 0, SMALL);
    e.reclassify(Nanos::from_millis(5), ExtentId(0), FILM);
    assert!(
        e.explain(Nanos::from_millis(5), ExtentId(0))
            .contains("priority 7")
    );
    read(&mut e, 6, 3, 0, SMALL);
    assert!(e.copy(ExtentId(0)).is_none());
}

/// A request to blocks of 512 bytes of an extent of 16 KiB, and the 20 ms after it.
fn request(run: &mut Run, op: RequestOp, (extent, block): (u64, u64), blocks: u32, class: u8) {
    let request = Request {
        tag: Tag(1),
        op,
        offset: (extent << 14) + block * 512,
        len: blocks * 512,
        fua: false,
        class,
    };
    run.engine.submit(run.now, request, &mut run.out);
    run.carry_out();
    let until = run.now + Nanos::from_millis(20);
    run.run(until);
}

/// Extents of 16 KiB with blocks of 512 bytes. In a copy that was allocated by a write, only the written blocks are valid, and not their
/// neighbours.
#[test]
fn an_allocated_copy_has_the_class_of_its_valid_blocks() {
    let engine = rig::shaped("dss-lru-s", Params::default(), (4, 40), 14);
    let mut run = Run::of(engine);
    let mut at = |op, block: u64, class| {
        request(&mut run, op, (5, block), 1, class);
        let e = run.engine.explain(run.now, ExtentId(5));
        (e.copied_blocks, e.why.split(';').next().unwrap().to_owned())
    };
    let copy = |priority: u8| format!("a copy on the dirty list, priority {priority}");
    assert_eq!(at(RequestOp::Write, 0, FILM), (1, copy(7)));
    // The journal's block is in the same extent, but not in the copy.
    assert_eq!(at(RequestOp::Read, 9, JOURNAL), (1, copy(7)));
    assert_eq!(at(RequestOp::Write, 9, JOURNAL), (2, copy(0)));
    // From now on the copy has the class of the journal, even if the film is read.
    assert_eq!(at(RequestOp::Read, 0, FILM), (2, copy(0)));
    let m = run.engine.space().map.mixed(priority);
    assert_eq!((m.known, m.mixed, m.blocks, m.neighbours), (1, 1, 2, 1));
}

/// A piece of 4 KiB has one class, that of the last access, as the paper's entries do.
#[test]
fn nothing_is_smaller_than_four_kib() {
    let mut run = Run::of(rig::shaped("dss-lru-s", Params::default(), (4, 40), 12));
    for (block, class) in [(0, JOURNAL), (5, FILM)] {
        request(&mut run, RequestOp::Write, (0, block), 1, class);
    }
    let why = run.engine.explain(run.now, ExtentId(0)).why;
    assert!(why.contains("priority 7"), "{why}");
    assert_eq!(run.engine.space().map.mixed(priority).mixed, 0);
}

/// A block of a copy becomes part of a journal, while the extent as a whole keeps its class: another of its blocks was in a journal all the
/// time, but that block is not in the copy.
#[test]
fn a_block_that_changes_its_class_moves_its_copy_at_once() {
    let engine = rig::shaped("dss-lru-s", Params::default(), (4, 40), 14);
    let mut run = Run::of(engine);
    let say = |run: &mut Run, class, runs: &[(u32, u8)]| {
        let unit = ExtentId(5);
        run.engine
            .reclassify_blocks(run.now, unit, class, runs, &mut run.out);
        run.carry_out();
        let e = run.engine.explain(run.now, unit);
        e.why.split(';').next().unwrap().to_owned()
    };
    let none = say(&mut run, JOURNAL, &[(1, JOURNAL), (3, FILM)]);
    assert!(none.starts_with("no copy"), "{none}");
    request(&mut run, RequestOp::Write, (5, 16), 8, FILM);
    let copy = |priority: u8| format!("a copy on the dirty list, priority {priority}");
    // The same news again: block 0 is not in the copy.
    let same = say(&mut run, JOURNAL, &[(1, JOURNAL), (3, FILM)]);
    assert_eq!(same, copy(priority(FILM)));
    let parts = [(1, JOURNAL), (1, FILM), (1, SMALL), (1, FILM)];
    assert_eq!(say(&mut run, JOURNAL, &parts), copy(priority(SMALL)));
    let all = say(&mut run, JOURNAL, &[(4, JOURNAL)]);
    assert_eq!(all, copy(priority(JOURNAL)));
    let film = say(&mut run, JOURNAL, &[(1, JOURNAL), (3, FILM)]);
    assert_eq!(film, copy(priority(FILM)), "the file was deleted");
}

/// Caching presets without an order of classes of their own: with `metadata_share`, copies that hold metadata stay.
#[test]
fn caching_presets_keep_metadata_within_its_share() {
    let presets = [
        "lru",
        "fifo",
        "lfu",
        "arc",
        "s3-fifo",
        "sieve",
        "smq",
        "w-tinylfu",
        "clock",
        "two-q",
        "lru-2",
        "lirs",
    ];
    for (preset, share) in presets.into_iter().flat_map(|p| [(p, 0), (p, 50)]) {
        let counts = ["lfu", "w-tinylfu"].contains(&preset);
        let policy = build(preset, [("metadata_share", f64::from(share))].into_iter()).unwrap();
        let m = |t, slots| Member {
            tier: TierId(t),
            first_slot: 0,
            slots,
            data_offset: 0,
            stash: isotherm_core::geometry::Stash::default(),
        };
        let geo = Geometry::new(16, 12, 4000, vec![m(0, 40), m(1, 4000)]).unwrap();
        let mut e = NullEngine::new(geo, policy);
        let mut now = 0;
        let mut read = |e: &mut NullEngine<Box<dyn Policy>>, unit, class| {
            now += 1;
            read(e, now, unit, u64::from(unit % 16), class);
        };
        // 30 units of metadata, of which 20 may stay; they are read a few times, so that every preset admits them.
        for unit in (0..30).cycle().take(240) {
            read(&mut e, unit, JOURNAL);
        }
        let held = |e: &NullEngine<_>| (0..30).filter(|u| e.copy(ExtentId(*u)).is_some()).count();
        assert!(held(&e) > 20, "{preset}: {}", held(&e));
        // A long scan, in which each unit of film is read as often.
        for unit in 100..1000 {
            for _ in 0..8 {
                read(&mut e, unit, FILM);
            }
        }
        let after = held(&e);
        if share == 0 {
            // What counts uses keeps them anyway.
            assert!(after < 10 || counts, "{preset}: {after}");
        } else {
            assert!((20..=30).contains(&after), "{preset}: {after}");
        }
        // Metadata is deleted and becomes film: it is kept no longer.
        for unit in 0..30 {
            e.reclassify(Nanos::from_millis(100_000), ExtentId(unit), FILM);
        }
        for unit in 1000..2000 {
            for _ in 0..8 {
                read(&mut e, unit, FILM);
            }
        }
        assert!(held(&e) < 10 || counts, "{preset}: {}", held(&e));
    }
}

/// A write allocates a copy in which only the written block is valid, under `lru` and `fifo`: a journal's block is kept without its
/// neighbours, and a film's block does not stay because the journal is beside it.
#[test]
fn metadata_is_kept_without_its_neighbours() {
    for preset in ["lru", "fifo"] {
        let mut run = Run::of(rig::shaped(preset, Params::default(), (4, 400), 14));
        run.engine.set("metadata_share", 50.0).unwrap();
        let at = |run: &mut Run, op, extent, block, class| {
            request(run, op, (extent, block), 1, class);
        };
        let held = |run: &Run, unit| run.engine.space().map.copied_blocks(ExtentId(unit));
        at(&mut run, RequestOp::Write, 5, 9, JOURNAL);
        at(&mut run, RequestOp::Write, 6, 9, FILM);
        // Extent 6 has a journal's block, too, but not in its copy.
        at(&mut run, RequestOp::Read, 6, 20, JOURNAL);
        assert_eq!((held(&run, 5), held(&run, 6)), (1, 1), "{preset}");
        for unit in 10..40 {
            at(&mut run, RequestOp::Write, unit, 0, FILM);
        }
        assert_eq!((held(&run, 5), held(&run, 6)), (1, 0), "{preset}");
    }
}
