//! The active front ends of a served volume: their users, and how they end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use isotherm_live::front_end::FrontEnd;

/// The front ends of a volume.
pub struct ActiveFronts {
    /// The requested front ends. Once all have started, `all` describes them better.
    wanted: Vec<String>,
    all: Vec<Box<dyn FrontEnd>>,
}

/// The front ends, shared by the server and the control socket.
#[derive(Clone)]
pub struct Fronts(Arc<Mutex<ActiveFronts>>);

impl Fronts {
    /// No front end has started yet; these are requested.
    pub fn new(wanted: Vec<String>) -> Fronts {
        let all = Vec::new();
        Fronts(Arc::new(Mutex::new(ActiveFronts { wanted, all })))
    }

    /// Locks the front ends for one query or change.
    pub fn lock(&self) -> MutexGuard<'_, ActiveFronts> {
        // A panic cannot leave the lists half changed, so a poisoned lock is still usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends all front ends. No request comes after this; clients that are still connected get errors.
    pub fn end(&self) {
        let all = std::mem::take(&mut self.lock().all);
        all.into_iter().for_each(FrontEnd::stop);
    }
}

/// See [`Fronts::ended_with`].
pub struct Ended(Fronts);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Fronts {
    /// Ends the front ends when the returned value is dropped.
    pub fn ended_with(&self) -> Ended {
        Ended(self.clone())
    }
}

impl ActiveFronts {
    /// Adds a front end that has started.
    pub fn add(&mut self, front: Box<dyn FrontEnd>) {
        self.all.push(front);
    }

    /// Refuses new clients; connected ones stay.
    pub fn refuse_new(&mut self) {
        self.all.iter_mut().for_each(|f| f.refuse_new());
    }

    /// The present users of the volume, in words; empty if there are none.
    pub fn users(&mut self) -> Vec<String> {
        self.all.iter_mut().filter_map(|f| f.users()).collect()
    }

    /// Users that would not notice if the server was killed.
    pub fn outliving(&self) -> Vec<String> {
        let outliving = self.all.iter().filter(|f| f.outlives());
        outliving.flat_map(|f| f.names()).collect()
    }

    /// Removes every front end that no client uses.
    ///
    /// # Errors
    /// The clients that use a front end; nothing more is removed then.
    pub fn leave(&mut self) -> Result<(), String> {
        self.all.iter_mut().try_for_each(|f| f.leave())
    }

    /// The volume has grown: shows its size to users. Returns a sentence for each front end.
    pub fn resized(&mut self) -> Vec<String> {
        self.all.iter_mut().map(|f| f.resized()).collect()
    }

    /// The names of the front ends.
    pub fn names(&self) -> Vec<String> {
        let names: Vec<String> = self.all.iter().flat_map(|f| f.names()).collect();
        if names.len() < self.wanted.len() {
            return self.wanted.clone();
        }
        names
    }

    /// The capabilities of each front end, and its counters.
    pub fn figures(&self) -> Vec<isotherm_answers::FrontEnd> {
        let one = |f: &dyn FrontEnd| {
            let can = f.capabilities();
            let counts = f.figures().into_iter();
            let abilities = [
                ("fua", can.fua),
                ("discard", can.discard),
                ("write_zeroes", can.write_zeroes),
                ("classes", can.classes),
                ("resize", can.resize),
            ];
            isotherm_answers::FrontEnd {
                names: f.names(),
                counts: counts.map(|(name, n)| (name.to_owned(), n)).collect(),
                can: abilities.map(|(name, can)| (name.to_owned(), can)).into(),
            }
        };
        self.all.iter().map(|f| one(f.as_ref())).collect()
    }
}
