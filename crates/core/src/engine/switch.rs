//! Change of the policy of a running volume: the check whether a policy may take over, and the change itself. `background/drain.rs` handles
//! the data that the old policy leaves behind. Also what a user may ask for: that dirty data goes home, and that data is copied to flash.

use super::Engine;
use super::background::{Drain, SwitchError, WARM_RANGES_MAX, WarmEnd, WarmError, Warmed, fits};
use crate::mutants::Mutant;
use crate::policy::{Policy, View};
use crate::units::Nanos;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::Range;

impl Engine {
    /// Whether a policy may take over.
    ///
    /// # Errors
    /// The volume's shape does not allow it, or the volume is not in the right state.
    pub fn may_switch(&self, policy: &dyn Policy) -> Result<(), SwitchError> {
        if !self.globals.may_move() {
            return Err(SwitchError::Closed);
        }
        fits(
            &self.globals.space.geo,
            self.relocation.copies_fit(),
            policy,
        )
    }

    /// Lets another policy take over. Data at places that the new policy does not use is moved away in the background: see
    /// [`Engine::draining`]. The caller makes the choice durable (in the superblock and the description).
    ///
    /// # Errors
    /// See [`Engine::may_switch`].
    pub fn set_policy(
        &mut self,
        now: Nanos,
        mut policy: Box<dyn Policy>,
    ) -> Result<(), SwitchError> {
        self.may_switch(&*policy)?;
        // The new policy does not know the proposals and moves of the old one, so it is not informed of their outcomes.
        let g = &mut self.globals;
        g.proposals.clear();
        self.relocation.detach_policy();
        if policy.name() != g.policy.name() {
            g.space.map.forget_stats();
        }
        let moves = self.relocation.active();
        g.space.keep_order(!policy.fixes_places());
        policy.attach(&mut View::new(&mut g.space, now, moves, false, u32::MAX));
        let asked = g.background.is_asked() && !g.broken(Mutant::SwitchForgetsAsked);
        g.background.serve(&*policy, &g.space);
        if asked {
            g.clean();
        }
        g.policy = policy;
        g.policy_due = true;
        Ok(())
    }

    /// Writes home what is dirty now, in the background: [`Engine::draining`] tells how much is left. Copies stay. What becomes dirty
    /// meanwhile is up to the policy. Another policy that takes over goes on with it.
    ///
    /// # Errors
    /// [`SwitchError::Closed`].
    pub fn clean(&mut self) -> Result<(), SwitchError> {
        if !self.globals.may_move() {
            return Err(SwitchError::Closed);
        }
        if self.globals.space.map.dirty() > 0 {
            self.globals.clean();
        }
        Ok(())
    }

    /// Whether what [`Engine::clean`] was asked for is not done yet. An engine that takes the place of this one is to be asked again.
    pub fn is_asked_clean(&self) -> bool {
        self.globals.background.is_asked()
    }

    /// The kind of data that is being moved away, and the amount that is left.
    pub fn draining(&self) -> Drain {
        self.globals.background.draining(&self.globals.space)
    }

    /// Copies ranges of extents to flash, in the order of addresses, in idle time, as long as there are free slots: [`Engine::warmed`] tells
    /// how far it is. The ranges are in order and do not overlap. Without ranges, what was asked for before ends.
    ///
    /// # Errors
    /// See [`WarmError`].
    pub fn warm(&mut self, now: Nanos, ranges: Vec<Range<u32>>) -> Result<(), WarmError> {
        let g = &mut self.globals;
        if ranges.is_empty() {
            g.background.end_warming(WarmEnd::Stopped);
            return Ok(());
        }
        if !g.may_move() {
            return Err(WarmError::Closed);
        }
        if !g.space.geo.is_cache() || !self.relocation.copies_fit() {
            return Err(WarmError::NoCopies);
        }
        let passes = |n: &(&str, _)| n.0 == "write-mode" && n.1 == "pass-through";
        if g.policy.names().iter().any(passes) {
            return Err(WarmError::PassThrough);
        }
        if g.devices.members.iter().any(|m| m.missing) {
            return Err(WarmError::Missing);
        }
        let extents = g.space.geo.extents;
        let in_order = ranges.windows(2).all(|w| w[0].end <= w[1].start);
        let sound = ranges.iter().all(|r| r.start < r.end && r.end <= extents);
        if !in_order || !sound || ranges.len() > WARM_RANGES_MAX {
            return Err(WarmError::Ranges);
        }
        if g.background.is_warming() {
            return Err(WarmError::AtWork);
        }
        g.background.begin_warming(now, ranges);
        Ok(())
    }

    /// How far the copying is that was asked for last; `None`: nobody has asked this engine.
    pub fn warmed(&self) -> Option<Warmed> {
        let g = &self.globals;
        let report = g.background.warmed()?;
        let over = (!g.may_move()).then_some(WarmEnd::Closed);
        let end = report.end.or(over);
        Some(Warmed { end, ..report })
    }
}
