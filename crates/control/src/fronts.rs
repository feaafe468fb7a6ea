//! The front ends of a served volume that are at work: who uses them, and how they end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use isotherm_live::front_end::FrontEnd;
use serde_json::{Value, json};

/// Front ends of a volume.
pub struct Shown {
    /// What is wanted; once all have started, `all` says it better.
    wanted: Vec<String>,
    all: Vec<Box<dyn FrontEnd>>,
}

/// The same for whoever serves and whoever is asked.
#[derive(Clone)]
pub struct Fronts(Arc<Mutex<Shown>>);

impl Fronts {
    /// None yet, of these.
    pub fn new(wanted: Vec<String>) -> Fronts {
        let all = Vec::new();
        Fronts(Arc::new(Mutex::new(Shown { wanted, all })))
    }

    /// For one look or change.
    pub fn lock(&self) -> MutexGuard<'_, Shown> {
        // Lists of whole things.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No request comes after this. Who is still there gets errors.
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
    /// Ends them when it is dropped.
    pub fn ended_with(&self) -> Ended {
        Ended(self.clone())
    }
}

impl Shown {
    /// One more that has started.
    pub fn add(&mut self, front: Box<dyn FrontEnd>) {
        self.all.push(front);
    }

    /// Those that are connected stay; nobody else gets in.
    pub fn refuse_new(&mut self) {
        self.all.iter_mut().for_each(|f| f.refuse_new());
    }

    /// Who still uses the volume, in words; empty when nobody does.
    pub fn users(&mut self) -> Vec<String> {
        self.all.iter_mut().filter_map(|f| f.users()).collect()
    }

    /// Those whose users would not hear of it if the server was killed.
    pub fn outliving(&self) -> Vec<String> {
        let outliving = self.all.iter().filter(|f| f.outlives());
        outliving.flat_map(|f| f.names()).collect()
    }

    /// Takes away what can be without taking it from somebody.
    ///
    /// # Errors
    /// Who has it open; nothing more is taken away then.
    pub fn leave(&mut self) -> Result<(), String> {
        self.all.iter_mut().try_for_each(|f| f.leave())
    }

    /// Their names.
    pub fn names(&self) -> Vec<String> {
        let names: Vec<String> = self.all.iter().flat_map(|f| f.names()).collect();
        if names.len() < self.wanted.len() {
            return self.wanted.clone();
        }
        names
    }

    /// What each can, and its counts.
    pub fn figures(&self) -> Value {
        let one = |f: &dyn FrontEnd| {
            let can = f.can();
            let counts: serde_json::Map<String, Value> = (f.figures().into_iter())
                .map(|(name, n)| (name.to_owned(), json!(n)))
                .collect();
            json!({
                "names": f.names(), "counts": counts,
                "can": {
                    "fua": can.fua, "discard": can.discard, "write_zeroes": can.write_zeroes,
                    "classes": can.classes, "resize": can.resize,
                },
            })
        };
        self.all.iter().map(|f| one(f.as_ref())).collect()
    }
}
