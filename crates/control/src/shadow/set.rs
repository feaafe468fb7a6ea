//! The set of shadows of a volume: which settings, how large a sample, and what is counted.
//!
//! **Shadows.** Each setting has one for each group of the sample, whose spread is the error, and one for all groups together.
//!
//! **Settings.** The volume's policy with a ladder of sizes of flash: ¼, ½, 1, 2, 4 and 8 times today's, or, without flash, 1/1024, 1/256,
//! 1/64, 1/16 and ¼ of the volume. At today's size, a few candidate policies besides ([`CANDIDATES`]). An access to a sampled
//! extent is played twice for each setting: by the shadow of its group, and by that of all.
//!
//! **Rate.** The sample is the largest whose shadows take at most [`BYTES_MOST`] by this bound, with strata of S = 2ⁿ extents (so a share
//! of 8/S is sampled): Σ over the settings of 9 × [`ENGINE_BYTES`] + 16 × ([`ROW_BYTES`] × extents + [`SLOT_BYTES`] × slots) / S. The caller
//! doubles S when the accesses become too many. A new set begins empty.
//!
//! **Window.** A shadow begins with empty flash, which the volume's own is not. So the first part of the time is not counted: the counts
//! begin at a mark. A mark is made whenever the number of sampled accesses has doubled, or a day has passed, and the last but one counts.
//! After the first two marks a quarter to a half of the accesses has only filled the shadows.

use std::fmt;

use isotherm_core::geometry::{Geometry, Member, Stash};
use isotherm_core::load::Loads;
use isotherm_core::null::NullEngine;
use isotherm_core::policy::{Policy, Uses};
use isotherm_core::volume::Space;
use isotherm_core::{ExtentId, Nanos, TierId};

use super::estimate::Estimate;
use super::sampler::{GROUPS, STRATUM_LEAST, STRATUM_MOST, Sampler, Touch};

/// Policies that are tried at the present size, besides the volume's own. They were the best presets most often
/// (`docs/policies-compared.md`).
pub const CANDIDATES: [&str; 4] = ["benefit", "lru", "s3-fifo", "w-tinylfu"];
/// Most memory of a set.
pub const BYTES_MOST: u64 = 16 << 20;
/// Fewest sampled accesses between two marks. Nothing is answered before the second one.
pub const TOUCHES_LEAST: u64 = 2048;
/// Fewest slots of a shadow: with fewer, rounding would have more effect than the policy.
const SLOTS_LEAST: u32 = 16;
/// Memory of a shadow of whatever size.
pub const ENGINE_BYTES: u64 = 16 << 10;
/// Its memory for each extent.
pub const ROW_BYTES: u64 = 12;
/// Its memory for each fast slot.
pub const SLOT_BYTES: u64 = 64;
/// Shadows of a setting.
const EACH: usize = GROUPS as usize + 1;
/// Time after which a mark is made in any case.
const DAY: Nanos = Nanos::from_secs(86_400);

/// What a volume looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Its extents.
    pub extents: u32,
    /// log2 of the bytes of one.
    pub extent_shift: u32,
    /// log2 of the logical block.
    pub block_shift: u32,
    /// Slots of its flash; 0 without flash.
    pub fast: u32,
}

/// What a shadow plays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The policy, as in the description of a volume.
    pub policy: String,
    /// Slots of flash of the whole volume.
    pub slots: u32,
}

/// Why there is no set of shadows, in words for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit(pub String);

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How a set begins.
#[derive(Clone, Copy, Debug)]
pub struct Begin<'a> {
    /// log2 of the least number of extents in a stratum.
    pub stratum_shift: u32,
    /// The time.
    pub now: Nanos,
    /// Costs and latencies of the volume's tiers, if they are known: see [`Shadows::measured_by`].
    pub loads: Option<&'a Loads>,
}

/// Builds a policy from its text.
pub type Build<'a> = &'a dyn Fn(&str) -> Result<Box<dyn Policy>, String>;

/// See the module.
pub struct Shadows {
    shape: Shape,
    sampler: Sampler,
    settings: Vec<Setting>,
    /// The setting of today, unless there is no flash.
    present: Option<usize>,
    /// For each setting, one for each group, and one for all.
    engines: Vec<NullEngine<Box<dyn Policy>>>,
    now: Nanos,
    sampled: u64,
    /// One bit for each sampled extent that was accessed, by row and group, and the number of them.
    touched: Vec<u8>,
    touched_count: u64,
    /// The last mark but one, and the last.
    marks: [Mark; 2],
}

#[derive(Clone, Debug, Default)]
struct Mark {
    at: Nanos,
    sampled: u64,
    /// All accesses of the volume, sampled or not.
    seen: u64,
    /// By shadow.
    misses: Vec<u64>,
}

impl Shadows {
    /// The shadows of a volume with this policy.
    ///
    /// # Errors
    /// The policy places homes, or the volume is too small to be sampled.
    pub fn new(
        shape: Shape,
        policy: &str,
        build: Build<'_>,
        begin: Begin<'_>,
    ) -> Result<Shadows, Unfit> {
        let built = build(policy).map_err(Unfit)?;
        if built.uses() != Uses::Copies {
            return Err(Unfit(format!(
                "policy {policy} places homes on flash, and what-if knows cache volumes only, where flash holds copies"
            )));
        }
        let (mut settings, sampler) =
            fitting(shape, policy, built.unit_bytes(), begin.stratum_shift);
        settings.retain(|s| s.slots >> sampler.stratum_shift() >= SLOTS_LEAST);
        if settings.is_empty() {
            return Err(Unfit(format!(
                "a sample of {} extents in groups of which each must have {SLOTS_LEAST} slots of flash is too small to tell anything: \
                 the volume has too few extents, or too little flash",
                shape.extents
            )));
        }
        let own = |s: &Setting| s.policy == policy && s.slots == shape.fast;
        let mut set = Shadows {
            shape,
            sampler,
            present: settings.iter().position(own),
            engines: Vec::with_capacity(settings.len() * EACH),
            settings,
            now: begin.now,
            sampled: 0,
            touched: vec![0; sampler.rows(shape.extents) as usize],
            touched_count: 0,
            marks: [Mark::default(), Mark::default()],
        };
        for s in &set.settings {
            for n in 0..EACH {
                let groups = if n + 1 < EACH { 1 } else { GROUPS };
                let geometry =
                    miniature(shape, sampler, s.slots, groups).map_err(|e| Unfit(e.into()))?;
                let mut space = Space::new(geometry);
                if let Some(loads) = begin.loads {
                    space.loads.measured_by(loads);
                }
                let policy = build(&s.policy).map_err(Unfit)?;
                set.engines.push(NullEngine::over(space, policy));
            }
        }
        set.marks = [set.mark_now(0), set.mark_now(0)];
        Ok(set)
    }

    /// How extents are sampled.
    pub fn sampler(&self) -> Sampler {
        self.sampler
    }
    /// The settings: the ladder by ascending size, then the candidates.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }
    /// The place of the present setting in that list; `None` without flash, or with too little of it for this sample.
    pub fn present(&self) -> Option<usize> {
        self.present
    }
    /// Number of sampled accesses.
    pub fn sampled(&self) -> u64 {
        self.sampled
    }
    /// Accesses that are still needed before it answers, sampled ones.
    pub fn lacks(&self) -> u64 {
        (2 * TOUCHES_LEAST).saturating_sub(self.sampled)
    }
    /// Estimated bytes of the volume that were accessed, in whole extents.
    pub fn touched_bytes(&self) -> u64 {
        let extents = self.touched_count as f64 / self.sampler.rate();
        extents as u64 * (1u64 << self.shape.extent_shift)
    }
    /// Its memory.
    pub fn bytes(&self) -> usize {
        let shadows: usize = self.engines.iter().map(NullEngine::bytes).sum();
        let marks = 2 * 8 * self.engines.len();
        shadows + self.touched.len() + marks + size_of_val(&self.engines[..])
    }

    /// Lets the policies see what the volume has measured of its devices: what a copy saves depends on it.
    pub fn measured_by(&mut self, loads: &Loads) {
        for shadow in &mut self.engines {
            shadow.measured_by(loads);
        }
    }
    /// Plays one access on every setting. Accesses to extents that are not in this sample are ignored.
    pub fn play(&mut self, touch: &Touch) {
        let Some((group, row)) = self.sampler.place(touch.extent) else {
            return;
        };
        if touch.extent >= self.shape.extents {
            return;
        }
        self.now = self.now.max(touch.now);
        self.sampled += 1;
        let bit = 1 << group;
        let bits = &mut self.touched[row as usize];
        self.touched_count += u64::from(*bits & bit == 0);
        *bits |= bit;
        let joint = self.sampler.joint_row(touch.extent, row);
        let rows = [row, joint].map(|row| (row, self.sampler.request(touch, row)));
        for setting in self.engines.chunks_exact_mut(EACH) {
            for (at, (row, request)) in [group, GROUPS].into_iter().zip(rows) {
                let extent = ExtentId(row);
                setting[at as usize].access(self.now, extent, touch.write, touch.class, request);
            }
        }
    }

    /// Whether a mark is due: see [`Shadows::mark`].
    pub fn is_mark_due(&self) -> bool {
        let last = &self.marks[1];
        let new = self.sampled - last.sampled;
        new >= TOUCHES_LEAST.max(last.sampled)
            || (new >= TOUCHES_LEAST && self.now.since(last.at) >= DAY)
    }
    /// Makes a mark. `seen`: number of accesses of the volume so far, sampled or not.
    pub fn mark(&mut self, seen: u64) {
        self.marks.swap(0, 1);
        self.marks[1] = self.mark_now(seen);
    }
    fn mark_now(&self, seen: u64) -> Mark {
        let misses = self.engines.iter().map(|s| {
            let c = s.counters();
            c.accesses - c.hits
        });
        Mark {
            at: self.now,
            sampled: self.sampled,
            seen,
            misses: misses.collect(),
        }
    }
    /// The beginning of what is counted, and the number of sampled accesses since.
    pub fn window(&self) -> (Nanos, u64) {
        let from = &self.marks[0];
        (from.at, self.sampled - from.sampled)
    }
    /// The estimate for each setting over what is counted. `seen`: as in [`Shadows::mark`].
    pub fn estimates(&self, seen: u64) -> Vec<Estimate> {
        let (from, now) = (&self.marks[0], self.mark_now(seen));
        let accesses = now.seen.saturating_sub(from.seen) as f64;
        let expected = accesses * self.sampler.rate() / f64::from(GROUPS);
        let new: Vec<u64> = (now.misses.iter().zip(&from.misses))
            .map(|(now, then)| now - then)
            .collect();
        let (settings, _) = new.as_chunks::<EACH>();
        let halvings = self.sampler.halvings();
        let of =
            |[groups @ .., whole]: &[u64; EACH]| Estimate::of(groups, *whole, expected, halvings);
        settings.iter().map(of).collect()
    }
    /// Whether the flash of a setting still has free slots.
    pub fn is_filling(&self, setting: usize) -> bool {
        let whole = self.engines.get(setting * EACH + EACH - 1);
        whole.is_some_and(|s| s.space().free(TierId(0)) > 0)
    }
}

/// The settings, and the largest sample that [`BYTES_MOST`] allows. `unit_bytes`: what the policy keeps for each extent besides.
fn fitting(shape: Shape, policy: &str, unit_bytes: u32, least: u32) -> (Vec<Setting>, Sampler) {
    let all = settings(shape, policy);
    let row_bytes = ROW_BYTES + u64::from(unit_bytes);
    let bound = |shift: u32| {
        let sampler = Sampler::new(shape.extent_shift, shift);
        let rows = u64::from(sampler.rows(shape.extents));
        let one = |s: &Setting| {
            let slots = u64::from(s.slots >> sampler.stratum_shift());
            let groups = 2 * u64::from(GROUPS);
            EACH as u64 * ENGINE_BYTES + groups * (row_bytes * rows + SLOT_BYTES * slots)
        };
        all.iter().map(one).sum::<u64>()
    };
    let mut shift = least.max(STRATUM_LEAST);
    while shift < STRATUM_MOST && bound(shift) > BYTES_MOST {
        shift += 1;
    }
    let sampler = Sampler::new(shape.extent_shift, shift);
    (all, sampler)
}

fn settings(shape: Shape, policy: &str) -> Vec<Setting> {
    let fast = u64::from(shape.fast);
    let extents = u64::from(shape.extents);
    let mut sizes = if shape.fast == 0 {
        [10, 8, 6, 4, 2].map(|n| extents >> n).to_vec()
    } else {
        let times = [1, 2, 4, 8].map(|n| fast * n);
        [fast / 4, fast / 2].into_iter().chain(times).collect()
    };
    // More flash than disk helps no more. Today's size stays, whatever it is.
    sizes.retain(|&s| s <= extents || s == fast);
    sizes.dedup();
    let of = |policy: &str, slots: u64| Setting {
        policy: policy.to_owned(),
        slots: slots as u32,
    };
    let mut all: Vec<Setting> = sizes.into_iter().map(|s| of(policy, s)).collect();
    if shape.fast > 0 {
        let others = CANDIDATES.into_iter().filter(|c| *c != policy);
        all.extend(others.map(|c| of(c, fast)));
    }
    all
}

/// The geometry of the shadow of so many groups.
fn miniature(
    shape: Shape,
    sampler: Sampler,
    slots: u32,
    groups: u32,
) -> Result<Geometry, &'static str> {
    let rows = sampler.rows(shape.extents) * groups;
    let half = 1u64 << (sampler.stratum_shift() - 1);
    let slots = (u64::from(slots) * u64::from(groups) + half) >> sampler.stratum_shift();
    let slots = slots as u32;
    let member = |tier, slots| Member {
        tier: TierId(tier),
        first_slot: 0,
        slots,
        data_offset: 0,
        stash: Stash::default(),
    };
    let members = vec![member(0, slots.max(1)), member(1, rows)];
    Geometry::new(shape.extent_shift, shape.block_shift, rows, members)?
        .of_kind(Uses::Copies.volume())
}
