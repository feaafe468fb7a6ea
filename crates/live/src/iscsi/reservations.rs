//! Persistent reservations (SPC-4, 5.13, 6.15 and 6.16): the registered initiators, the holder of the disk, and the permitted commands. No
//! I/O.
//!
//! A *nexus* is an initiator's port together with the only port of the target. Registrations belong to a nexus and survive its session;
//! with `APTPL` they survive the server as well ([`super::reservation_file`]). Legacy RESERVE and RELEASE are not supported.

use super::sense::Sense;

/// Maximum number of registrations; a further one is refused with INSUFFICIENT REGISTRATION RESOURCES.
pub const MAX_REGISTRANTS: usize = 256;
/// Size of the parameters of PERSISTENT RESERVE OUT in bytes.
pub const PARAMETERS: usize = 24;

/// Types of reservations (SPC-4, table 67), by meaning.
const EXCLUSIVE_ACCESS: [u8; 3] = [3, 6, 8];
const REGISTRANTS_ONLY: [u8; 2] = [5, 6];
const ALL_REGISTRANTS: [u8; 2] = [7, 8];
const TYPES: [u8; 6] = [1, 3, 5, 6, 7, 8];

/// An initiator's port: its name, and the part of the session identifier that the initiator chose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Nexus {
    /// `iqn.…`
    pub initiator: String,
    /// See RFC 7143, 11.12.5.
    pub isid: [u8; 6],
}

impl Nexus {
    /// The name of the port (RFC 7143, 4.4.1).
    pub fn port(&self) -> String {
        format!("{},i,0x{}", self.initiator, self.digits())
    }

    /// The identifier as twelve hexadecimal digits.
    pub fn digits(&self) -> String {
        let mut eight = [0; 8];
        eight[2..].copy_from_slice(&self.isid);
        format!("{:012x}", u64::from_be_bytes(eight))
    }
}

/// The effect of a command on the disk that matters for reservations (SPC-4, table 66; SBC-3, table 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Always permitted.
    Asks,
    /// Refused to others only by exclusive access.
    Reads,
    /// Refused to others by every reservation.
    Changes,
}

/// The class of a command.
pub fn use_of(cdb: &[u8; 16]) -> Use {
    match cdb[0] {
        // These are always permitted. Commands that change reservations have rules of their own.
        0x00 | 0x03 | 0x12 | 0x25 | 0xa0 | 0x5e | 0x5f => Use::Asks,
        0x9e if cdb[1] & 0x1f == 0x10 => Use::Asks,
        // START.
        0x1b if cdb[4] & 0xf1 == 1 => Use::Asks,
        0x08 | 0x28 | 0x88 | 0xa8 | 0x2f | 0x8f | 0xaf | 0x9e | 0x1a | 0x5a => Use::Reads,
        _ => Use::Changes,
    }
}

/// A reservation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// 1 write exclusive, 3 exclusive access; 5 and 6 the same for registrants only, 7 and 8 for all registrants.
    pub kind: u8,
    /// The nexus that made the reservation. With the types for all registrants, every registrant holds it.
    pub by: Nexus,
}

impl Held {
    fn is(&self, kinds: &[u8]) -> bool {
        kinds.contains(&self.kind)
    }
}

/// The state of all registrations and reservations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reservations {
    /// Increases with every change of registrations; it begins at 0 when the server starts.
    pub generation: u32,
    /// The registered nexuses with their keys.
    pub registrants: Vec<(Nexus, u64)>,
    /// See [`Held`].
    pub held: Option<Held>,
    /// The last REGISTER requested persistence over a restart of the server.
    pub aptpl: bool,
    /// Unit attentions that are pending for initiators; each is reported with the initiator's next command.
    pub attentions: Vec<(Nexus, Sense)>,
}

/// The reason why PERSISTENT RESERVE OUT fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Status RESERVATION CONFLICT.
    Conflict,
    /// Check condition.
    Sense(Sense),
}

impl From<Sense> for Refusal {
    fn from(sense: Sense) -> Refusal {
        Refusal::Sense(sense)
    }
}

/// Parameters of PERSISTENT RESERVE OUT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Service action.
    pub action: u8,
    /// Scope in the upper four bits, type in the lower.
    pub scope_type: u8,
    /// RESERVATION KEY: the key of the caller.
    pub key: u64,
    /// SERVICE ACTION RESERVATION KEY: the new key, or the key of the nexuses to which the order applies.
    pub about: u64,
    /// See [`Reservations::aptpl`].
    pub aptpl: bool,
}

impl Order {
    /// Reads the parameters.
    ///
    /// # Errors
    /// The data does not have exactly [`PARAMETERS`] bytes, or requests an unsupported feature: other initiators' ports (SPEC_I_PT).
    pub fn parse(action: u8, scope_type: u8, data: &[u8]) -> Result<Order, Sense> {
        if data.len() != PARAMETERS {
            return Err(Sense::LENGTH);
        }
        // ALL_TG_PT (4) means all ports of the target; there is only one.
        if data[20] & 8 != 0 {
            return Err(Sense::PARAMETER);
        }
        Ok(Order {
            action,
            scope_type,
            key: super::pdu::u64_at(data, 0),
            about: super::pdu::u64_at(data, 8),
            aptpl: data[20] & 1 != 0,
        })
    }
}

impl Reservations {
    fn key_of(&self, who: &Nexus) -> Option<u64> {
        let found = self.registrants.iter().find(|r| r.0 == *who);
        found.map(|r| r.1)
    }

    fn holds(&self, who: &Nexus) -> bool {
        (self.held.as_ref()).is_some_and(|h| h.by == *who || h.is(&ALL_REGISTRANTS))
            && self.key_of(who).is_some()
    }

    /// Returns true if `who` may use the disk in this way now.
    pub fn allow(&self, who: &Nexus, what: Use) -> bool {
        let Some(held) = &self.held else { return true };
        let passes = match what {
            Use::Asks => true,
            Use::Reads => !held.is(&EXCLUSIVE_ACCESS),
            Use::Changes => false,
        };
        let shared = held.is(&REGISTRANTS_ONLY) && self.key_of(who).is_some();
        passes || shared || self.holds(who)
    }

    /// Returns a pending unit attention of `who`, and removes it.
    pub fn attention(&mut self, who: &Nexus) -> Option<Sense> {
        let at = self.attentions.iter().position(|a| a.0 == *who)?;
        Some(self.attentions.remove(at).1)
    }

    /// A session of `who` has ended; its pending unit attentions are dropped.
    pub fn left(&mut self, who: &Nexus) {
        self.attentions.retain(|a| a.0 != *who);
    }

    fn tell(&mut self, who: Nexus, what: Sense) {
        // Only the newest is kept, so the number for one initiator is bounded.
        self.attentions.retain(|a| a.0 != who);
        self.attentions.push((who, what));
    }

    /// Reports `what` to `who` once, after the unit attentions that are pending: the capacity says nothing about reservations.
    pub fn tell_also(&mut self, who: Nexus, what: Sense) {
        let news = (who, what);
        if !self.attentions.contains(&news) {
            self.attentions.push(news);
        }
    }

    fn tell_others(&mut self, but: &Nexus, what: Sense) {
        let others: Vec<Nexus> = self.registrants.iter().map(|r| r.0.clone()).collect();
        for other in others.into_iter().filter(|o| o != but) {
            self.tell(other, what);
        }
    }

    /// PERSISTENT RESERVE OUT of `who`. Returns the nexuses whose commands in progress must end before the answer (PREEMPT AND ABORT).
    ///
    /// # Errors
    /// The order is refused; nothing has changed.
    pub fn change(&mut self, who: &Nexus, order: &Order) -> Result<Vec<Nexus>, Refusal> {
        let is_registration = matches!(order.action, 0 | 6);
        if order.action > 6 {
            // REGISTER AND MOVE: there is only one target port, so there is no other nexus to move to.
            return Err(Sense::FIELD.into());
        }
        if !is_registration {
            let mine = self.key_of(who);
            if mine.is_none() || mine != Some(order.key) {
                return Err(Refusal::Conflict);
            }
            if matches!(order.action, 1 | 2 | 4 | 5) && !is_offered(order.scope_type) {
                return Err(Sense::FIELD.into());
            }
        }
        match order.action {
            0 | 6 => self.register(who, order)?,
            1 => self.reserve(who, order.scope_type)?,
            2 => self.release(who, order.scope_type)?,
            3 => self.clear(who),
            _ => {
                let gone = self.preempt(who, order)?;
                return Ok(if order.action == 5 { gone } else { Vec::new() });
            }
        }
        Ok(Vec::new())
    }

    fn register(&mut self, who: &Nexus, order: &Order) -> Result<(), Refusal> {
        let mine = self.key_of(who);
        if order.action == 0 && order.key != mine.unwrap_or(0) {
            return Err(Refusal::Conflict);
        }
        match (mine, order.about) {
            (None, 0) => return Ok(()),
            (Some(_), 0) => self.unregister(who),
            (Some(_), new) => {
                for r in self.registrants.iter_mut().filter(|r| r.0 == *who) {
                    r.1 = new;
                }
            }
            (None, _) if self.registrants.len() >= MAX_REGISTRANTS => {
                return Err(Sense(5, 0x55, 4).into());
            }
            (None, new) => self.registrants.push((who.clone(), new)),
        }
        self.aptpl = order.aptpl;
        self.generation = self.generation.wrapping_add(1);
        Ok(())
    }

    /// A reservation ends with its holder's registration, and one for all registrants with the last registration.
    fn unregister(&mut self, who: &Nexus) {
        self.registrants.retain(|r| r.0 != *who);
        let ends = |h: &Held| {
            if h.is(&ALL_REGISTRANTS) {
                self.registrants.is_empty()
            } else {
                h.by == *who
            }
        };
        if self.held.as_ref().is_some_and(ends)
            && let Some(held) = self.held.take()
            && held.is(&REGISTRANTS_ONLY)
        {
            self.tell_others(who, Sense::RELEASED);
        }
    }

    fn reserve(&mut self, who: &Nexus, scope_type: u8) -> Result<(), Refusal> {
        let kind = scope_type & 15;
        match &self.held {
            None => {
                self.held = Some(Held {
                    kind,
                    by: who.clone(),
                });
                Ok(())
            }
            Some(h) if self.holds(who) && h.kind == kind => Ok(()),
            Some(_) => Err(Refusal::Conflict),
        }
    }

    fn release(&mut self, who: &Nexus, scope_type: u8) -> Result<(), Refusal> {
        let Some(held) = self.held.clone().filter(|_| self.holds(who)) else {
            return Ok(());
        };
        if held.kind != scope_type & 15 {
            // Invalid release of persistent reservation.
            return Err(Sense(5, 0x26, 4).into());
        }
        self.held = None;
        if held.is(&REGISTRANTS_ONLY) || held.is(&ALL_REGISTRANTS) {
            self.tell_others(who, Sense::RELEASED);
        }
        Ok(())
    }

    fn clear(&mut self, who: &Nexus) {
        self.tell_others(who, Sense::PREEMPTED);
        self.held = None;
        self.registrants.clear();
        self.generation = self.generation.wrapping_add(1);
    }

    /// Removes the registrations with the key, or the holder; the caller may take over the reservation.
    fn preempt(&mut self, who: &Nexus, order: &Order) -> Result<Vec<Nexus>, Refusal> {
        let everybody = self.held.as_ref().is_some_and(|h| h.is(&ALL_REGISTRANTS));
        let holder = (self.held.as_ref())
            .filter(|_| !everybody)
            .and_then(|h| self.key_of(&h.by));
        let takes = if everybody {
            order.about == 0
        } else {
            order.about != 0 && holder == Some(order.about)
        };
        if order.about == 0 && !takes {
            return Err(Sense::PARAMETER.into());
        }
        let goes = |r: &(Nexus, u64)| {
            let named = (order.about == 0 && everybody) || r.1 == order.about;
            // The caller stays registered if it takes over the reservation.
            named && !(takes && r.0 == *who)
        };
        let gone: Vec<Nexus> = self
            .registrants
            .iter()
            .filter(|r| goes(r))
            .map(|r| r.0.clone())
            .collect();
        if gone.is_empty() && !takes {
            return Err(Refusal::Conflict);
        }
        let before = self.held.clone();
        if takes {
            // The reservation passes from one nexus to the other, so no initiator gets the unit attention for a release.
            self.held = None;
        }
        for other in &gone {
            self.unregister(other);
        }
        if takes {
            let kind = order.scope_type & 15;
            let changed = before.is_some_and(|h| h.kind != kind && h.kind >= 5);
            self.held = Some(Held {
                kind,
                by: who.clone(),
            });
            if changed {
                self.tell_others(who, Sense::RELEASED);
            }
        }
        for other in gone.iter().filter(|o| *o != who) {
            self.tell(other.clone(), Sense::UNREGISTERED);
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(gone)
    }

    /// PERSISTENT RESERVE IN. `keeps`: the server can keep reservations over a restart.
    ///
    /// # Errors
    /// The service action does not exist.
    pub fn report(&self, action: u8, keeps: bool) -> Result<Vec<u8>, Sense> {
        let mut b = self.generation.to_be_bytes().to_vec();
        b.extend_from_slice(&[0; 4]);
        match action {
            0 => {
                for (_, key) in &self.registrants {
                    b.extend_from_slice(&key.to_be_bytes());
                }
            }
            1 => {
                if let Some(h) = &self.held {
                    let key = self.key_of(&h.by).filter(|_| !h.is(&ALL_REGISTRANTS));
                    b.extend_from_slice(&key.unwrap_or(0).to_be_bytes());
                    b.extend_from_slice(&[0, 0, 0, 0, 0, h.kind, 0, 0]);
                }
            }
            // Eight bytes: ALL_TG_PT is accepted (ATP_C), reservations can survive a loss of power (PTPL_C), and the supported types.
            2 => {
                let can = 4 | u8::from(keeps);
                let now = 0x80 | u8::from(self.aptpl);
                return Ok(vec![0, 8, can, now, 0xea, 0x01, 0, 0]);
            }
            3 => {
                for (nexus, key) in &self.registrants {
                    self.describe(nexus, *key, &mut b);
                }
            }
            _ => return Err(Sense::FIELD),
        }
        let len = b.len() as u32 - 8;
        b[4..8].copy_from_slice(&len.to_be_bytes());
        Ok(b)
    }

    /// One registration of READ FULL STATUS.
    fn describe(&self, nexus: &Nexus, key: u64, b: &mut Vec<u8>) {
        let holds = self.holds(nexus);
        let kind = self.held.as_ref().filter(|_| holds).map_or(0, |h| h.kind);
        let mut id = nexus.port().into_bytes();
        id.push(0);
        id.resize(id.len().next_multiple_of(4).max(20), 0);
        b.extend_from_slice(&key.to_be_bytes());
        b.extend_from_slice(&[0, 0, 0, 0, u8::from(holds), kind, 0, 0, 0, 0, 0, 1]);
        b.extend_from_slice(&(id.len() as u32 + 4).to_be_bytes());
        // Of iSCSI, with the session's name.
        b.extend_from_slice(&[0x45, 0]);
        b.extend_from_slice(&(id.len() as u16).to_be_bytes());
        b.extend_from_slice(&id);
    }
}

/// Returns true for the whole logical unit and a known type.
fn is_offered(scope_type: u8) -> bool {
    scope_type >> 4 == 0 && TYPES.contains(&(scope_type & 15))
}

#[cfg(test)]
#[path = "reservations_tests.rs"]
mod tests;
