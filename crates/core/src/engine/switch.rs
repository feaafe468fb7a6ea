//! Another policy for a running volume: who may take over, and the change itself. What it leaves behind: `background/drain.rs`.

use super::Engine;
use super::background::{Drain, SwitchError, fits};
use crate::policy::{Policy, Uses, View};
use crate::units::Nanos;
use alloc::boxed::Box;

impl Engine {
    /// May a policy with these needs take over?
    ///
    /// # Errors
    /// The volume's shape does not allow it, or it is not in a state to.
    pub fn may_switch(&self, uses: Uses) -> Result<(), SwitchError> {
        if !self.ground.may_move() {
            return Err(SwitchError::Closed);
        }
        fits(&self.ground.space.geo, self.relocation.copies_fit(), uses)
    }

    /// Let another policy take over; what it has no use for is given up in the background: see [`Engine::draining`].
    /// The caller makes the choice durable (it is kept in the superblock and the description).
    ///
    /// # Errors
    /// See [`Engine::may_switch`].
    pub fn set_policy(
        &mut self,
        now: Nanos,
        mut policy: Box<dyn Policy>,
    ) -> Result<(), SwitchError> {
        self.may_switch(policy.uses())?;
        // Nobody is left who would hear how they end.
        let g = &mut self.ground;
        g.wanted.clear();
        self.relocation.disown();
        if policy.name() != g.policy.name() {
            g.space.map.forget_stats();
        }
        let moves = self.relocation.active();
        policy.attach(&mut View::new(&mut g.space, now, moves, false, u32::MAX));
        g.background.serve(&*policy, &g.space);
        g.policy = policy;
        g.policy_due = true;
        Ok(())
    }

    /// What is being given up, and how much of it is left.
    pub fn draining(&self) -> Drain {
        self.ground.background.draining(&self.ground.space)
    }
}
