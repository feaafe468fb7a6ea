//! The figures of tiers and disks, for answers.

use crate::catalogue::NodeId;
use crate::store::Store;
use crate::sync::lock;
use crate::tree::Tier;
use isotherm_answers::files::Tier as TierAnswer;
use isotherm_answers::files::{Cut, Disk, DiskState, Disks, Drain, Figures, Joining, Moving};
use std::sync::atomic::Ordering;

/// The figures of one disk.
fn disk(store: &Store, d: Tier, marked: bool) -> Figures {
    let (free_bytes, room_bytes) = store.room(d);
    let passes = store.open.io.get() == Some(&crate::settings::Io::Passthrough);
    Figures {
        path: store.tier_name(d),
        files: store.cat().files_on(d),
        bytes: store.bytes_on[usize::from(d)].load(Ordering::Relaxed),
        free_bytes,
        room_bytes,
        above_mark: marked && store.is_full(d),
        health: store.health_of(d, |node| store.cat().shown_path(node)),
        kernel_writes: passes.then(|| store.kernel_writes(d).figures()),
    }
}

/// A tier of several disks: sums, the newest events, and `true` for what is so of any disk.
fn several(store: &Store, t: Tier) -> TierAnswer {
    let numbers = store.layout().disks_of(t);
    let mut tier = disk(store, numbers.start, false);
    let disks: Vec<Disk> = numbers
        .map(|d| Disk {
            disk: d,
            figures: disk(store, d, true),
        })
        .collect();
    let all = || disks.iter().map(|d| &d.figures);
    (tier.files, tier.bytes) = (all().map(|d| d.files).sum(), all().map(|d| d.bytes).sum());
    (tier.free_bytes, tier.room_bytes) = store.room_of_tier(t);
    tier.kernel_writes = None;
    let (sum, health) = (&mut tier.health, || all().map(|d| &d.health));
    sum.errors = health().map(|h| h.errors).sum();
    sum.missing = health().any(|h| h.missing);
    sum.failing = health().any(|h| h.failing);
    sum.read_only = health().any(|h| h.read_only);
    let errors = health().filter_map(|h| h.last_error.clone());
    sum.last_error = errors.min_by_key(|e| e.ago_s);
    let opened = health().filter_map(|h| h.last_opened.clone());
    sum.last_opened = opened.min_by_key(|o| o.ago_s);
    // Of the disks with calls that wait, the first one stands for all.
    sum.waiting = health().find_map(|h| h.waiting.clone());
    TierAnswer {
        tier: t,
        figures: tier,
        disks,
    }
}

/// All tiers.
pub(crate) fn tiers(store: &Store) -> Vec<TierAnswer> {
    let slowest = store.layout().slowest();
    let tier = |t: Tier| {
        if t == slowest && store.layout().has_several() {
            several(store, t)
        } else {
            TierAnswer {
                tier: t,
                figures: disk(store, t, t < slowest),
                disks: Vec::new(),
            }
        }
    };
    (0..=slowest).map(tier).collect()
}

/// The file that is being moved.
pub(crate) fn moving(store: &Store) -> Option<Moving> {
    let now = store.placement.moving.now();
    now.map(|(path, copied_bytes, bytes)| Moving {
        path,
        copied_bytes,
        bytes,
    })
}

/// All disks, and what moves from one to another.
pub fn disks(store: &Store) -> Disks {
    let one = |d: Tier| {
        let left = store.tiers.is_draining(d).then(|| store.names_on(d));
        let cannot = |all: &Vec<NodeId>| {
            let rests = all.iter().filter(|n| store.placement.failed_recently(**n));
            rests.count()
        };
        DiskState {
            tier: store.layout().tier_of(d),
            disk: d,
            figures: disk(store, d, true),
            drain: match left {
                None => Drain::None,
                Some(_) if store.is_empty(d) => Drain::Empty,
                Some(_) => Drain::Draining,
            },
            cannot_move: left.as_ref().map(cannot),
            left: left.map(|all| all.len()),
        }
    };
    Disks {
        disks: (0..store.roots.len() as Tier).map(one).collect(),
        balance_percent: lock(&store.placement.policy).settings.balance,
        moving: moving(store),
        joining: lock(&store.tiers.joining).clone().map(|j| Joining {
            path: j.path.display().to_string(),
            refused: j.refused,
        }),
        cut: Cut::default(),
    }
}
