//! The members that are present: whether they belong together, and what they state about each other.

use super::agree::agree;
use super::counter::learn;
use super::error::OpenError;
use super::evidence::Evidence;
use super::heal;
use super::mark::{self, Mark};
use super::mutants::broken;
use super::recover::{From, Loaded, load};
use super::report::{Part, Repair, Report};
use super::session::Session;
use super::superblock::{State, Superblock};
use super::{Carrier, Layout, Media};
use crate::mutants::Mutant;
use crate::units::MemberId;
use alloc::vec::Vec;

/// What is done if dirty copies are lost with members that are absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The volume is not opened.
    Refused,
    /// Reads of what is lost fail until it is written again, in a cache volume whose lost data is known ([`crate::volume::lost`]). Otherwise the
    /// volume is not opened.
    Listed,
    /// The contents of the homes are the valid data from then on, also of what was lost and listed earlier.
    Accepted,
}

/// The mode of opening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// All members must be present; a new session of this epoch begins.
    ReadWrite {
        /// A random number, different from every one before.
        epoch: u64,
    },
    /// The same as `ReadWrite`, but members may be absent if no data is lost with them: neither homes nor dirty copies. The metadata of the
    /// remaining members must be sufficient to know this.
    Degraded {
        /// A random number, different from every one before.
        epoch: u64,
        /// What is done if dirty copies are lost.
        loss: Loss,
    },
    /// Nothing is written. Members may be absent as long as primary or mirror is present.
    ReadOnly,
}

impl Mode {
    /// The epoch of the session that begins, if one does.
    pub(super) fn epoch(self) -> Option<u64> {
        match self {
            Mode::ReadWrite { epoch } | Mode::Degraded { epoch, .. } => Some(epoch),
            Mode::ReadOnly => None,
        }
    }
}

/// The members that are present and belong together, before the map is read.
pub(super) struct Found {
    pub(super) sb: Superblock,
    pub(super) session: Session,
    /// The layout as created; `layout` is without the members that are absent.
    pub(super) created: Layout,
    pub(super) layout: Layout,
    pub(super) evidence: Evidence,
    pub(super) report: Report,
    pub(super) clean_somewhere: bool,
}

/// Checks the members, and what they state about each other.
pub(super) fn look<M: Media + ?Sized>(
    media: &mut M,
    found: &[Option<Superblock>],
    mode: Mode,
) -> Result<Found, OpenError> {
    let (sb, missing, session) = agree(media, found, matches!(mode, Mode::ReadWrite { .. }))?;
    if sb.is_read_only() && mode != Mode::ReadOnly {
        return Err(OpenError::ReadOnlyFeatures);
    }
    if let (Mode::ReadWrite { .. }, Some(&m)) = (mode, missing.first()) {
        return Err(OpenError::Missing(m));
    }
    let created = sb.layout();
    let layout = sb
        .layout_without(&missing)
        .ok_or(OpenError::Missing(created.primary.member))?;
    // Sizes of memory and loops depend on values in the superblock. The sizes of the devices show whether these values are possible.
    for (i, entry) in sb.members.iter().enumerate() {
        let member = MemberId(i as u8);
        let there = !missing.contains(&member);
        if let Some(bytes) = media.bytes(member).filter(|&b| there && b < entry.bytes) {
            return Err(OpenError::Short {
                member,
                bytes,
                needed: entry.bytes,
            });
        }
    }
    if mode.epoch().is_some() && !broken(media, Mutant::NoFlushBeforeRecovery) {
        // Data that recovery reads must not be lost by a later power failure. So the devices are flushed first.
        for m in (0..sb.members.len()).map(|i| MemberId(i as u8)) {
            if !missing.contains(&m) {
                media.flush(m)?;
            }
        }
    }
    let torn = torn_marks(media, &sb, &missing)?;
    let there = || {
        found
            .iter()
            .flatten()
            .filter(|s| s.generation == sb.generation)
    };
    let clean = there().filter(|s| s.state == State::Clean).count();
    let whole = layout.primary == created.primary || session.sole || session.closed.is_some();
    let evidence = Evidence::gather(media, &sb, found, &missing, session, whole);
    let mut report = Report {
        was_clean: clean + missing.len() == sb.members.len() && clean == there().count(),
        repairs: heal::superblocks(media, &sb, &missing),
        missing,
        ..Report::default()
    };
    report.repairs.extend(evidence.repairs());
    report.repairs.extend(torn);
    let f = Found {
        sb,
        session,
        created,
        layout,
        evidence,
        report,
        clean_somewhere: clean > 0,
    };
    f.no_rollback(media)?;
    Ok(f)
}

/// The damaged blocks of marks. A disk that is being released is refused.
fn torn_marks<M: Media + ?Sized>(
    media: &mut M,
    sb: &Superblock,
    missing: &[MemberId],
) -> Result<Vec<Repair>, OpenError> {
    let mut torn = Vec::new();
    for member in sb.disks().filter(|m| !missing.contains(m)) {
        let stated = mark::read(media, sb, member);
        let releasing = |k: &Mark| k.cover.is_releasing();
        if stated.newest.as_ref().is_some_and(releasing) {
            return Err(OpenError::Releasing(member));
        }
        if stated.damaged > 0 {
            torn.push(Repair {
                member,
                part: Part::Mark,
                blocks: stated.damaged.into(),
            });
        }
    }
    Ok(torn)
}

impl Found {
    fn no_rollback<M: Media + ?Sized>(&self, media: &M) -> Result<(), OpenError> {
        if broken(media, Mutant::HealRollback) {
            return Ok(());
        }
        self.evidence.no_rollback(&self.sb)
    }

    /// Loads the map from checkpoint and journal.
    pub(super) fn load<M: Media + ?Sized>(
        &mut self,
        media: &mut M,
        accept_loss: bool,
    ) -> Result<Loaded, OpenError> {
        let sources: Vec<Carrier> = self.layout.carriers().collect();
        let from = From {
            sb: &self.sb,
            layout: self.created,
            session: self.session,
            sources: &sources,
            flushed: self.evidence.flushed,
            whole: self.layout.primary == self.created.primary
                || self.session.sole
                || self.session.closed.is_some(),
            accept_loss,
        };
        let mut loaded = if self.layout.has_journal {
            load(media, &from, &mut self.report)?
        } else {
            let next = self.evidence.flushed + 1;
            Loaded::without_journal(&from, next, self.sb.time_base)?
        };
        let in_use = |id: u16| self.sb.members.iter().any(|m| m.id == id);
        for &(id, value) in loaded.counters.iter().filter(|k| in_use(k.0)) {
            learn(&mut self.evidence.known, id, value);
        }
        self.no_rollback(media)?;
        loaded.counters.clone_from(&self.evidence.known);
        Ok(loaded)
    }
}
