//! Change of the policy of a running volume: the check whether a policy may take over, and the change itself. `background/drain.rs` handles
//! the data that the old policy leaves behind.

use super::Engine;
use super::background::{Drain, SwitchError, fits};
use crate::mutants::Mutant;
use crate::policy::{Policy, View};
use crate::units::Nanos;
use alloc::boxed::Box;

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
}
