//! A lower bound for the energy of a disk and a flash cache that serve the requests of a trace, computed from the whole trace.
//!
//! The disk wakes for a *compulsory* access: the first access of an extent, if it is a read. Its data is nowhere else, unless the drive has
//! read it ahead into its own memory: so a read is not compulsory if an extent shortly before it on the disk was accessed earlier. Everything else may
//! be served by flash, and moves cost nothing. Between two times at which the disk is used, it stays awake or sleeps, whichever takes less.
//! The result is the least energy of any choice of times at which the disk is used. No run of a policy that copies data to flash when it is
//! accessed takes less, for these reasons:
//!
//! 1. *Awake*, the disk takes at least its least power without sleep, and the work itself is free. Flash and host take their least power.
//! 2. *Asleep*: the engine sends the disk to sleep when no request has used it for the time of the standby timer, so not before that time
//!    after a compulsory access or after the beginning. The disk then stops for `down_s`, and a wake-up takes `up_j`. A request that needs
//!    a sleeping disk wakes it when it arrives.
//! 3. *Size of flash*: in the time between two uses of the disk, flash serves all requests. What is written stays on flash until the next
//!    use, and what is read before it is written was there from the beginning. So neither can be more extents than flash has slots. This is
//!    a window over the requests, and the windows that are possible from a given end have a first beginning, which never moves back.
//! 4. A use of the disk that no access forces (to write data home, to fetch) may be put at an arrival, or at the end of a timer: the energy
//!    of the two intervals beside it is a convex function of its time between two of these. So only these times are tried.
//! 5. Time ends with the last arrival. What happens afterwards takes energy as well. A wake-up that is in progress at that time counts as a
//!    whole if a compulsory access follows it, and otherwise as far as it has come: a drive accepts writes into its cache while it wakes up.
//!
//! The best choice is found in one pass, as the saving of an interval is linear in its length where it is above zero: of all possible
//! beginnings the one with the largest difference between the savings so far and its own time is kept in a queue (a sliding maximum).
//!
//! The bound does not hold for a policy that prefetches data which was never accessed, that places data which exists before the run on
//! flash, or for a trace with discards. It assumes nothing about latency: a request that needs a sleeping disk waits for it.

use std::collections::VecDeque;

use isotherm_models::Sleep;

use crate::LabError;
use crate::bound::Sequence;
use crate::sim::{Setup, Shape, Source, TimeMode, Touched};
use serde::Serialize;

/// The least joules of a run. See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EnergyBound {
    /// With the size of flash that the run has.
    pub energy_j: f64,
    /// With flash of any size, which takes the same power.
    pub any_size_j: f64,
}

impl EnergyBound {
    /// The bound for a setup; `None` if there is none for it ([`Powers::of`]).
    ///
    /// # Errors
    /// The trace cannot be read, or is too long.
    pub fn of(
        setup: &Setup,
        source: &dyn Source,
        touched: &Touched,
        shape: &Shape,
    ) -> Result<Option<EnergyBound>, LabError> {
        let Some(powers) = Powers::of(setup) else {
            return Ok(None);
        };
        let s = Sequence::load(source, touched, shape, setup.limit, true)?;
        let last = setup.tiers.len() - 1;
        let fast = shape.members.iter().filter(|m| usize::from(m.tier) < last);
        let slots = fast.map(|m| u64::from(m.slots)).sum();
        let mut places = vec![0; s.extents];
        let mut rows = shape.rows(touched);
        for e in &touched.extents {
            if let Some(place) = places.get_mut(rows.row(e) as usize) {
                *place = e;
            }
        }
        // Rows between those of the trace belong to the place before them.
        for row in 1..places.len() {
            places[row] = places[row].max(places[row - 1]);
        }
        // If the trace's addresses do not fit on the drive, they move closer together there.
        let bytes = places.iter().max().map_or(0, |e| (e + 1) << touched.shift);
        if bytes > powers.disk_bytes {
            places = (0..).take(s.extents).collect();
        }
        let bound = |slots| energy_bound(&s, &places, slots, &powers);
        let both = bound(slots).zip(bound(u64::MAX));
        Ok(both.map(|(energy_j, any_size_j)| EnergyBound {
            energy_j,
            any_size_j,
        }))
    }
}

/// The powers of the devices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Powers {
    /// Watts that are always taken: flash without work, and the host.
    pub always_w: f64,
    /// The least power of the disk while it is awake, watts.
    pub awake_w: f64,
    /// The disk's standby.
    pub sleep: Sleep,
    /// Seconds without a request after which the disk is sent to sleep; `None`: never.
    pub timer_s: Option<f64>,
    /// Requests arrive at their times divided by this.
    pub acceleration: f64,
    /// Number of extents that the drive reads ahead into its own memory, which it can answer from while it sleeps.
    pub ahead: u64,
    /// Capacity of the disk.
    pub disk_bytes: u64,
}

impl Powers {
    /// The powers of a setup; `None` if it has no single disk on its slowest tier, no other tier, a warm-up, a new volume, whose
    /// addresses depend on the order of requests, or a closed loop, in which their times depend on the policy.
    pub fn of(setup: &Setup) -> Option<Powers> {
        let TimeMode::Trace { acceleration } = setup.time else {
            return None;
        };
        let (last, faster) = setup.tiers.split_last()?;
        let [disk] = &last.devices[..] else {
            return None;
        };
        if faster.is_empty() || setup.warm_up > 0 || setup.begin.new_volume {
            return None;
        }
        let disk_sheet = disk.sheet_for(0).ok()?;
        let hdd = disk_sheet.hdd.as_ref()?;
        let ahead = hdd.read_ahead_kib * 1024;
        let hdd = &hdd.power;
        let disks = disk_sheet
            .array
            .as_ref()
            .map_or(1.0, |a| f64::from(a.disks));
        let mut always_w = setup.host_w;
        for d in faster.iter().flat_map(|t| &t.devices) {
            let sheet = d.sheet_for(0).ok()?;
            always_w += if let Some(s) = &sheet.ssd {
                let least = s.power.idle_w.min(s.power.read_w).min(s.power.write_w);
                if d.standby_after_s.is_some() {
                    least.min(s.power.standby_w)
                } else {
                    least
                }
            } else {
                0.0
            };
        }
        Some(Powers {
            always_w,
            awake_w: disks * hdd.idle_w.min(hdd.active_w).min(hdd.seek_w),
            sleep: Sleep::of_sheet(disk_sheet)?,
            timer_s: disk.standby_after_s,
            acceleration,
            ahead: ahead.div_ceil(u64::from(setup.extent_bytes)),
            disk_bytes: disk_sheet.capacity(),
        })
    }
    /// Joules that a sleep saves if the disk may be sent to sleep `seconds` before it is used again. `wakes`: the part of the wake-up that
    /// counts.
    fn saved(&self, seconds: f64, wakes: f64) -> f64 {
        let s = &self.sleep;
        (self.awake_w - s.standby_w) * (seconds - s.down_s).max(0.0) - wakes * self.wake_j()
    }
    /// The part of a wake-up at `at` that counts if requests end at `end`, and the last compulsory access is at `last`.
    fn wakes(&self, at: f64, last: f64, end: f64) -> f64 {
        if at <= last || self.sleep.up_s <= 0.0 {
            1.0
        } else {
            ((end - at) / self.sleep.up_s).min(1.0)
        }
    }
    /// Joules of a wake-up beyond those of a disk that is awake.
    fn wake_j(&self) -> f64 {
        self.sleep.up_j - self.awake_w * self.sleep.up_s
    }
}

/// The least joules of disk, flash and host, for a sequence that was loaded with times; `None`: it has no requests. `places`: the extent of
/// the disk at which each unit is, in ascending order. `slots` is the size of flash in extents; with `u64::MAX` its size does not matter.
/// See the module.
pub fn energy_bound(s: &Sequence, places: &[u64], slots: u64, powers: &Powers) -> Option<f64> {
    let uses = Uses::of(s, places, powers)?;
    let end = uses.points.last()?.at;
    let awake = (powers.always_w + powers.awake_w) * end;
    if powers.timer_s.is_none() {
        return Some(awake);
    }
    Some(awake - uses.most_saved(s, slots, powers))
}

/// A time at which the disk may be used.
#[derive(Clone, Copy, Debug)]
struct Point {
    /// Seconds since the beginning.
    at: f64,
    /// The earliest time at which the disk can be sent to sleep if this is its last use.
    from: f64,
    /// Whether it must be used.
    compulsory: bool,
    /// The first access of the request that arrives then, and how many it has.
    first: usize,
    accesses: usize,
}

/// The times at which the disk may be used, in their order. The first one is the beginning.
struct Uses {
    points: Vec<Point>,
}

impl Uses {
    fn of(s: &Sequence, places: &[u64], powers: &Powers) -> Option<Uses> {
        let timer = powers.timer_s.unwrap_or(f64::INFINITY);
        let mut points = vec![Point {
            at: 0.0,
            from: timer,
            compulsory: true,
            first: 0,
            accesses: 0,
        }];
        let (mut seen, mut next, mut now) = (vec![false; s.extents], 0, 0.0f64);
        let mut asleep_from = timer;
        for &(at, accesses) in s.requests() {
            now = now.max(at.as_secs_f64() / powers.acceleration);
            let all = next..next + accesses as usize;
            if asleep_from < now && points.last().is_some_and(|p| p.at < asleep_from) {
                points.push(Point {
                    at: asleep_from,
                    from: asleep_from,
                    compulsory: false,
                    first: all.start,
                    accesses: 0,
                });
            }
            next = all.end;
            let mut compulsory = false;
            for a in all.clone() {
                let unit = s.unit(a);
                let fresh = !std::mem::replace(&mut seen[unit], true);
                let mut before = (0..unit)
                    .rev()
                    .take_while(|&u| places[unit].abs_diff(places[u]) <= powers.ahead);
                compulsory |= fresh && !s.is_write(a) && !before.any(|u| seen[u]);
            }
            if compulsory {
                asleep_from = now + timer;
            }
            points.push(Point {
                at: now,
                from: asleep_from.max(now),
                compulsory,
                first: all.start,
                accesses: all.len(),
            });
        }
        (points.len() > 1).then_some(Uses { points })
    }

    /// The most joules that sleep saves.
    fn most_saved(&self, s: &Sequence, slots: u64, powers: &Powers) -> f64 {
        // Joules per second of sleep.
        let rate = powers.awake_w - powers.sleep.standby_w;
        if rate <= 0.0 {
            return 0.0;
        }
        let mut search = Search {
            points: &self.points,
            window: Window::new(s),
            oldest: 0,
            best: VecDeque::new(),
            rate,
            slots,
        };
        let end = self.points.last().map_or(0.0, |p| p.at);
        let last = self.points.iter().rfind(|p| p.compulsory);
        let last = last.map_or(0.0, |p| p.at);
        let mut saved = 0.0f64;
        for (i, p) in self.points.iter().enumerate() {
            if let Some((begin, before)) = search.best_begin(i) {
                saved =
                    saved.max(before + powers.saved(p.at - begin, powers.wakes(p.at, last, end)));
            }
            search.pass(i, saved);
        }
        match search.best_begin(self.points.len()) {
            Some((begin, before)) => saved.max(before + powers.saved(end - begin, 0.0)),
            None => saved,
        }
    }
}

/// The search for the best beginning of each interval.
struct Search<'a> {
    points: &'a [Point],
    window: Window<'a>,
    /// The first point from which an interval may begin.
    oldest: usize,
    /// Possible beginnings: each with the savings before it less what its own time is worth, in falling order of that.
    best: VecDeque<(usize, f64)>,
    rate: f64,
    slots: u64,
}

impl Search<'_> {
    /// The best beginning of an interval that ends with point `i`: from when the disk may be sent to sleep, and the savings before.
    fn best_begin(&mut self, i: usize) -> Option<(f64, f64)> {
        while self.window.holds_too_much(self.slots) && self.oldest + 1 < i {
            self.oldest += 1;
            self.window.remove(self.points[self.oldest]);
        }
        while self.best.front().is_some_and(|b| b.0 < self.oldest) {
            self.best.pop_front();
        }
        let &(b, value) = self.best.front()?;
        let begin = self.points[b].from;
        Some((begin, value + self.rate * begin))
    }
    /// Makes point `i` a possible beginning; `saved`: the savings before it.
    fn pass(&mut self, i: usize, saved: f64) {
        let p = self.points[i];
        if p.compulsory {
            // No later interval goes back beyond it.
            self.best.clear();
            self.window.clear(&self.points[(self.oldest + 1).min(i)..i]);
            self.oldest = i;
        } else {
            self.window.add(p);
        }
        let value = saved - self.rate * p.from;
        while self.best.back().is_some_and(|b| b.1 <= value) {
            self.best.pop_back();
        }
        self.best.push_back((i, value));
    }
}

/// The accesses between two uses of the disk.
struct Window<'a> {
    s: &'a Sequence,
    next: Vec<u32>,
    /// Of each extent: accesses in the window, and writes among them.
    counts: Vec<(u32, u32)>,
    /// Extents that are written in the window.
    written: u64,
    /// Extents whose first access in the window is a read.
    read_first: u64,
}

impl Window<'_> {
    fn new(s: &Sequence) -> Window<'_> {
        Window {
            s,
            next: s.next_uses(),
            counts: vec![(0, 0); s.extents],
            written: 0,
            read_first: 0,
        }
    }
    fn holds_too_much(&self, slots: u64) -> bool {
        self.written > slots || self.read_first > slots
    }
    fn add(&mut self, p: Point) {
        for a in p.first..p.first + p.accesses {
            let (c, write) = (&mut self.counts[self.s.unit(a)], self.s.is_write(a));
            self.read_first += u64::from(c.0 == 0 && !write);
            self.written += u64::from(c.1 == 0 && write);
            c.0 += 1;
            c.1 += u32::from(write);
        }
    }
    /// Removes the earliest accesses.
    fn remove(&mut self, p: Point) {
        for a in p.first..p.first + p.accesses {
            let (c, write) = (&mut self.counts[self.s.unit(a)], self.s.is_write(a));
            c.0 -= 1;
            c.1 -= u32::from(write);
            self.written -= u64::from(c.1 == 0 && write);
            self.read_first -= u64::from(!write);
            let follows = c.0 > 0 && !self.s.is_write(self.next[a] as usize);
            self.read_first += u64::from(follows);
        }
    }
    /// Removes everything; `points` are those in the window.
    fn clear(&mut self, points: &[Point]) {
        for p in points {
            for a in p.first..p.first + p.accesses {
                self.counts[self.s.unit(a)] = (0, 0);
            }
        }
        (self.written, self.read_first) = (0, 0);
    }
}
