//! The replacement of a member of a served volume.

use super::Planned;
use crate::copying::stale::Stale;
use crate::copying::transfer::{Places, Source};
use crate::copying::{Copied, Progress, State, Unreadable, Wait};
use crate::error::Error;
use crate::media::FileMedia;
use crate::server::Session;
use crate::volume::replace::Replacement;
use crate::volume::{Replaced, in_words};
use isotherm_core::store::{self, Successor};
use isotherm_core::{MemberId, World};
use std::sync::Arc;

impl Session {
    /// The place of the member that would be replaced, and its successor.
    pub(super) fn plan_of(&self, replacement: &Replacement) -> Result<(usize, Successor), Error> {
        let volume = (&self.superblock, self.engine.space());
        replacement.plan(&self.config, self.world.devices(), volume)
    }

    /// Plans a replacement. If the member must be copied, every write to it is noted from now on.
    pub(super) fn plan_replacement(
        &mut self,
        mut replacement: Box<Replacement>,
    ) -> Result<Planned, Error> {
        let (place, successor) = self.plan_of(&replacement)?;
        let devices = Arc::clone(self.world.devices());
        let mut state = None;
        if let (true, Some(device)) = (successor.holds_data, &devices[place]) {
            let places = Arc::new(Places::of(&self.superblock, &successor)?);
            let source = Source::of(device)?;
            let geo = places.old();
            let stale = Arc::new(Stale::all(geo.members[place], geo.extent_shift));
            let shared = State::new(Progress {
                member: place,
                old: device.path.clone(),
                new: replacement.new.clone(),
                total_bytes: 0,
                copied_bytes: 0,
                left_bytes: 0,
                pass: 0,
                left: None,
                wait: Wait::None,
            });
            self.world.watch_writes(place, Some(Arc::clone(&stale)));
            self.handle.set_copying(&shared);
            state = Some(shared);
            replacement.copied = Some(Copied {
                successor,
                places,
                source,
                stale,
                unreadable: Unreadable::default(),
                bytes: 0,
                limit: 0,
                superblock: self.superblock.clone(),
                notes: Vec::new(),
            });
        }
        Ok(Planned {
            replacement,
            state,
            devices,
        })
    }

    /// Replaces a member of the volume whose engine is closed.
    pub(super) fn replace_closed(
        &mut self,
        replacement: &mut Replacement,
    ) -> Result<Replaced, Error> {
        self.mark_clean()?;
        let opened = self.open_store(self.world.now())?.opened;
        // The sessions of the replacement keep nothing, and a kill during them loses no answer.
        self.world.forget_kept();
        let devices = self.world.devices_mut()?;
        let replaced = replacement.carry_out(&self.config, devices, opened, &mut |_, _| ())?;
        replaced.describe(&mut self.config);
        let places = 0..devices.len();
        let missing: Vec<MemberId> = places
            .filter(|&i| devices[i].is_none())
            .map(|i| MemberId(i as u8))
            .collect();
        // The new device has no stamp yet.
        let primary = self.superblock.primary_without(&missing);
        if primary.is_some_and(|m| usize::from(m.0) == replaced.place) {
            self.world.stamp_on(replaced.place)?;
        }
        self.handle.is_back(replaced.place);
        Ok(replaced)
    }

    /// Marks the volume clean whose engine is closed, so that its clean copies count when it is opened again.
    pub(super) fn mark_clean(&mut self) -> Result<(), Error> {
        let (now, devices) = (self.world.now(), Arc::clone(self.world.devices()));
        let mut media = FileMedia::watched(&devices, &self.handle.vitals);
        let marked = store::mark_clean(&mut media, &self.superblock, &self.engine.closing(), now);
        marked.map_err(|e| in_words(&self.config, &media, e.into()))
    }
}
