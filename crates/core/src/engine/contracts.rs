//! Relations that hold between the engine's counters at any moment between two events. The worlds of the tests check them in every run, so
//! that a mechanism which counts twice, or never gives back what it reserved, is noticed even if no byte is wrong.

use super::Engine;
use crate::store::BLOCK;
use crate::units::TierId;
use alloc::format;
use alloc::string::String;

impl Engine {
    /// Checks these relations.
    ///
    /// # Errors
    /// Names the relation that does not hold.
    pub fn contracts(&self) -> Result<(), String> {
        let g = &self.globals;
        let c = &g.counters;
        if c.ahead_met > c.ahead {
            return Err(format!(
                "{} rounds that began ahead were met by a FLUSH, of {}",
                c.ahead_met, c.ahead
            ));
        }
        let (reserved, owed) = (g.devices.wear.reserved(), self.relocation.owed());
        if reserved != owed {
            return Err(format!(
                "the wear budget reserves {reserved} bytes, moves in progress owe {owed}"
            ));
        }
        for t in 0..g.space.geo.tiers() {
            self.energy_adds_up(TierId(t))?;
        }
        self.metadata_is_bounded()
    }

    /// The sum of the energy by class, and of the volume's own work, is that of the members.
    fn energy_adds_up(&self, t: TierId) -> Result<(), String> {
        let c = &self.globals.counters;
        let of = usize::from(t.0);
        let work = c.classes.iter().filter_map(|c| c.work.as_ref());
        let by_class: u64 = work.map(|w| w[of].energy_nj).sum();
        let by_class = by_class + c.own_work[of].energy_nj;
        let members = self.globals.space.geo.members.iter().zip(&c.members);
        let tier = members.filter(|(m, _)| m.tier == t);
        let by_member: u64 = tier.map(|(_, c)| c.energy_nj).sum();
        if by_class == by_member {
            return Ok(());
        }
        Err(format!(
            "tier {}: {by_class} nJ by class, {by_member} nJ by member",
            t.0
        ))
    }

    /// A journal block holds a record, or the value of a counter; the metadata written is that of the rounds; a counter is raised once in
    /// [`super::Params::counter_every`].
    fn metadata_is_bounded(&self) -> Result<(), String> {
        let (g, d) = (&self.globals, &self.durability);
        let c = &g.counters;
        let (raises, most) = d.counter_raises(g.clock);
        if raises > most {
            return Err(format!("counters were raised {raises} times, not {most}"));
        }
        if c.journal_blocks > c.journal_records + raises + 1 {
            return Err(format!(
                "{} journal blocks for {} records and {raises} counters",
                c.journal_blocks, c.journal_records
            ));
        }
        let errors: u64 = c.members.iter().map(|m| m.errors).sum();
        let wrote: u64 = c.members.iter().map(|m| m.meta_bytes_written).sum();
        let blocks = 2 * (c.journal_blocks + c.kept + c.rounds * d.checkpoint_blocks()) + raises;
        if wrote > blocks * BLOCK as u64 && errors == 0 {
            return Err(format!(
                "{wrote} bytes of metadata in {} rounds and {} journal blocks",
                c.rounds, c.journal_blocks
            ));
        }
        Ok(())
    }
}
