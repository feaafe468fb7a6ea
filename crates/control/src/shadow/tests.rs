//! The memory of a set is bounded, whatever the volume and its flash are; and what it does at its edges.

use isotherm_core::Nanos;
use isotherm_core::policy::Policy;
use isotherm_core::random::SplitMix64;
use isotherm_words::policy_spec::PolicySpec;

use super::{BYTES_MOST, Begin, CANDIDATES, GROUPS, Shadows, Shape, TOUCHES_LEAST, Touch};

fn build(text: &str) -> Result<Box<dyn Policy>, String> {
    PolicySpec::split(text)?.build()
}

const BEGIN: Begin<'_> = Begin {
    stratum_shift: 3,
    now: Nanos(0),
    loads: None,
};

fn touch(n: u64, extent: u32) -> Touch {
    Touch {
        now: Nanos::from_millis(n),
        extent,
        before: 0,
        inside: 0,
        bytes: 4096,
        class: (n % 7) as u8,
        write: n.is_multiple_of(3),
    }
}

/// Accesses all over the volume, so that all flash is full and all ghosts are there.
fn filled(shape: Shape, policy: &str) -> Shadows {
    let mut set = Shadows::new(shape, policy, &build, BEGIN).expect("fits");
    let sampler = set.sampler();
    let mut random = SplitMix64::new(7);
    let rows = u64::from(shape.extents >> sampler.stratum_shift());
    for n in 0..40_000 {
        let (group, row) = (random.below(GROUPS.into()), random.below(rows));
        let extent = sampler.extent(group as u32, row as u32);
        set.play(&touch(n, extent));
    }
    set
}

#[test]
fn memory_is_bounded() {
    for (extents, fast) in [
        (1 << 14, 1 << 11),
        (1 << 20, 1 << 17),
        (1 << 26, 0),
        (1 << 28, 1 << 24),
        // The largest volume, with little flash, and with as much as disk.
        (3 << 30, 1 << 22),
        (1 << 30, 1 << 30),
    ] {
        for policy in ["benefit", "arc", "hystor"] {
            let shape = Shape {
                extents,
                extent_shift: 16,
                block_shift: 12,
                fast,
            };
            let set = filled(shape, policy);
            let (bytes, rate) = (set.bytes() as u64, set.sampler().rate());
            println!("{extents} {fast} {policy}: {bytes} bytes, rate {rate}");
            assert!(bytes <= BYTES_MOST, "{extents} {fast} {policy}: {bytes}");
        }
    }
}

/// The candidates are those of the registry, and caches.
#[test]
fn candidates_are_policies() {
    for name in CANDIDATES {
        let uses = build(name).expect("a policy").uses();
        assert_eq!(uses.kind(), "caching", "{name}");
    }
}

const SMALL: Shape = Shape {
    extents: 1 << 14,
    extent_shift: 16,
    block_shift: 12,
    fast: 1 << 11,
};

#[test]
fn what_does_not_fit_is_refused_in_words() {
    let refused = |shape, policy| {
        let set = Shadows::new(shape, policy, &build, BEGIN);
        set.err().expect("refused").to_string()
    };
    assert!(refused(SMALL, "greendm").contains("cache volumes only"));
    let tiny = Shape {
        extents: 100,
        fast: 10,
        ..SMALL
    };
    assert!(refused(tiny, "lru").contains("too small"));
    assert!(refused(SMALL, "no-such-policy").contains("no-such-policy"));
}

#[test]
fn marks_follow_the_number_of_accesses() {
    let mut set = Shadows::new(SMALL, "lru", &build, BEGIN).expect("fits");
    let mut windows = Vec::new();
    let end = 16 * TOUCHES_LEAST;
    for n in 1..=end {
        assert_eq!(set.lacks(), (2 * TOUCHES_LEAST).saturating_sub(n - 1));
        set.play(&touch(n, (n * 37 % 16_384) as u32));
        // All extents are sampled.
        if set.is_mark_due() {
            set.mark(n);
            windows.push(set.window().1 / TOUCHES_LEAST);
        }
    }
    // From the last mark but one: half of the accesses.
    assert_eq!(windows, [1, 1, 2, 4, 8]);
    assert_eq!(set.estimates(end).len(), set.settings().len());
    // Time alone makes a mark once a day.
    let day = 86_400_000;
    for n in 0..=TOUCHES_LEAST {
        assert_eq!(set.is_mark_due(), n == TOUCHES_LEAST);
        set.play(&touch(end + day, 5));
    }
    assert!(set.is_mark_due());
    // The clock of a touch may go back, that of the set does not; and an extent beyond the volume is ignored.
    let before = set.sampled();
    set.play(&touch(0, 5));
    set.play(&touch(end + day, 1 << 14));
    assert_eq!(set.sampled(), before + 1);
}
