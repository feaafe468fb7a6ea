//! The policies of a scenario, which change while it runs, and the limits that apply to them.

use super::Rng;
use super::audit::audit;
use super::chaos::Chaos;
use super::run::Run;
use super::world::Hostile;
use isotherm_core::engine::{Drain, Params};
use isotherm_core::load::Cost;
use isotherm_core::policy::{self, Policy};
use isotherm_core::run::Loop;
use isotherm_core::{Engine, ExtentId, Nanos, World};

impl Run {
    pub(super) fn policy(&self, life: u32) -> Result<Box<dyn Policy>, String> {
        if let Some(name) = self.s.policy {
            let params = self.s.params.iter().copied();
            return policy::build(name, params).map_err(|e| format!("{e:?}"));
        }
        let seed = self.s.seed ^ (u64::from(life) << 32);
        if let Some(through) = self.s.cache {
            return Ok(Box::new(Chaos::cache(seed, through)));
        }
        Ok(Box::new(if self.s.copies {
            Chaos::copies(seed)
        } else {
            Chaos::new(seed)
        }))
    }

    /// Runs a policy that leaves no copy dirty (for every other seed), then one that keeps no copies, then one that keeps only copies.
    /// After each, the volume must be in the state that the policy allows.
    pub(super) fn settle_down(
        engine: &mut Engine,
        world: &mut Hostile,
        seed: u64,
    ) -> Result<(), String> {
        let mut run = Loop::new();
        for name in ["write-around", "linear", "lru"] {
            let policy = match name {
                "write-around" if seed.is_multiple_of(2) => continue,
                "write-around" => {
                    let mode = ("write-mode", policy::ParamValue::Name(name));
                    policy::build_with("lru", [mode].into_iter())
                }
                _ => policy::build(name, core::iter::empty()),
            };
            let policy = policy.map_err(|e| format!("{e:?}"))?;
            if engine.set_policy(world.now(), policy).is_err() {
                continue;
            }
            let mut patience = 20_000;
            while engine.draining() != Drain::None || engine.progress().0 > 0 {
                world.pass(Nanos::from_millis(1));
                let now = world.now();
                run.call(engine, world, |e, out| e.tick(now, out));
                run.turn(engine, world, engine.next_wake(), None);
                patience -= 1;
                if patience == 0 || engine.has_failed() {
                    return Err(format!("{:?} under {name} does not end", engine.draining()));
                }
            }
            audit(engine)?;
            let (space, slowest) = (engine.space(), engine.space().geo.slowest());
            let high = (0..space.geo.extents)
                .filter_map(|e| space.map.home(ExtentId(e)))
                .any(|s| space.geo.tier_of(s) != slowest);
            let left = match name {
                "linear" => space.map.copied() > 0,
                "lru" => high,
                _ => high || space.map.dirty() > 0,
            };
            if left {
                return Err(format!("{name} is left with what it has no use for"));
            }
        }
        Ok(())
    }

    pub(super) fn another_policy(&mut self) -> Result<Box<dyn Policy>, String> {
        // Every preset must work with the state that any other left behind.
        let all = policy::PRESETS;
        match all.get(self.rng.below(3 * all.len() as u64 / 2) as usize) {
            Some(p) => {
                let modes = policy::WRITE_MODES;
                let mode = (p.kind() == "caching")
                    .then(|| modes.get(self.rng.below(2 * modes.len() as u64) as usize))
                    .flatten();
                let mode = mode.map(|m| ("write-mode", policy::ParamValue::Name(m)));
                policy::build_with(p.name, mode.into_iter()).map_err(|e| format!("{e:?}"))
            }
            None => Ok(Box::new(Chaos::new(self.rng.draw()))),
        }
    }

    /// Random budgets and sleep settings, from a separate generator. Half of all lives have none.
    pub(super) fn budgets(&self, life: u32) -> Params {
        let mut rng = Rng::new(self.s.seed ^ u64::from(life) << 40 ^ 0x0b0d_6e75);
        let mut p = Params::default();
        if rng.one_in(4) {
            // At most one move per millisecond, and at least some per second.
            p.wear_bytes_per_day = Some(86_400 * 4096 * (1 + rng.below(1000)));
            p.wear_burst = Nanos::from_millis(1 + rng.below(1000));
        }
        if rng.one_in(3) {
            let members = self.sb.members.len();
            let asleep =
                |rng: &mut Rng| (!rng.one_in(4)).then(|| Nanos::from_micros(50 + rng.below(5000)));
            p.standby_after = (0..members).map(|_| asleep(&mut rng)).collect();
            p.sleep_hold = (!rng.one_in(4)).then(|| Nanos::from_millis(1 + rng.below(100)));
            p.sleep_hold_bytes = rng.one_in(2).then(|| 4096 * (1 + rng.below(8)));
        }
        if rng.one_in(6) {
            p.moves_max = Some(1 + rng.below(3) as u16);
        }
        p.flush_ahead = [0, 1, 1, 2][(self.s.seed % 4) as usize];
        p.flush_gather = [1, 0, 1, 2, 3][(self.s.seed % 5) as usize];
        p.kept_writes = rng.one_in(4);
        // What a restored block exposes has raised no counter: see `run.rs`.
        p.keeper = !self.s.rollback && !self.s.seed.is_multiple_of(3);
        // There is memory for few bitmaps or none, so slots are filled with zeros.
        if rng.one_in(4) {
            p.partial_max = Some(rng.below(6) as u32);
        }
        p.end_with_checkpoint = self.s.end_well > 0 || rng.one_in(2);
        if rng.one_in(2) {
            p.sleep_start_interval = rng
                .one_in(2)
                .then(|| Nanos::from_micros(1 + rng.below(20_000)));
            p.sleep_wait_share = rng.one_in(2).then(|| 1000 + rng.below(500_000) as u32);
        }
        // Members that always take about 5 and 7 W, so moves are refused now and then, or always.
        if rng.one_in(4) {
            let sheet = |idle_uw| Cost {
                idle_uw,
                read_nj: 20_000_000,
                write_nj: 30_000_000,
                byte_pj: 1000,
                ..Cost::SLOW
            };
            p.costs = vec![sheet(5_000_000), sheet(7_000_000), sheet(7_000_000)];
            p.power_limit_uw = Some(11_000_000 + rng.below(20_000_000));
        }
        p
    }
}
