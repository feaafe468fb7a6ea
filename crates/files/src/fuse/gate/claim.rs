//! Space for what this program itself does with files, beside those that the kernel writes.

use super::Gate;
use crate::live::Live;
use crate::ops::data::growth;
use crate::tree::Tier;
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// Space that a call of this program may need, see [`Gate::claim`].
pub(in crate::fuse) struct Claim<'a> {
    gate: &'a Gate,
    tier: Tier,
    bytes: u64,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.gate.state().at(self.tier).claimed -= self.bytes;
    }
}

impl Gate {
    /// Before a change of a file through this program, for which its tier may need space for so many bytes from an offset on. If the kernel
    /// writes files on that tier, the space is counted until the result is dropped, and a file that cannot move waits for it.
    ///
    /// # Errors
    /// There is less space than that, and no file can move.
    pub(in crate::fuse) fn claim(
        &self,
        live: &Live,
        offset: u64,
        bytes: u64,
    ) -> Result<Option<Claim<'_>>, Errno> {
        let (tier, bytes) = {
            let held = live.hold();
            let Ok(home) = held.backing() else {
                return Ok(None);
            };
            if self.store.kernel_writes(home.tier).handles() == 0 {
                return Ok(None);
            }
            (home.tier, growth(&home.fd, offset, bytes))
        };
        let mut state = self.state();
        let moves = !live.had_passthrough.load(Ordering::SeqCst);
        while bytes > 0 && state.on(tier).next().is_some() {
            // Writes that wait already come first.
            let ahead: u64 = state.at(tier).waiting.iter().map(|w| w.bytes).sum();
            let fits = self.fits(&state, tier, None, bytes.saturating_add(ahead));
            let mut full = bytes > self.room(&state, tier).1;
            if !fits && !moves && !full {
                drop(state);
                full = !self.make_room(tier);
                state = self.state();
            }
            if full && !moves && self.room(&state, tier).0 < bytes {
                return Err(Errno::NOSPC);
            }
            if fits || moves || full {
                state.at(tier).claimed += bytes;
                self.ask_if_short(&mut state, tier);
                return Ok(Some(Claim {
                    gate: self,
                    tier,
                    bytes,
                }));
            }
        }
        Ok(None)
    }
}
