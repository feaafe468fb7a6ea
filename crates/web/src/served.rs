//! What all requests share: the volumes, the access rules, and the limits.

use std::sync::Arc;

use serde::Deserialize;
use tokio::sync::Semaphore;

use crate::Settings;
use crate::follow::All;

/// Most questions at a time. A volume that hangs blocks its questions, and each of them occupies a thread.
const QUESTIONS_MAX: usize = 6;
/// Most event streams at a time.
const STREAMS_MAX: usize = 32;

/// What is served, and the access rules.
#[derive(Clone)]
pub(crate) struct Served {
    pub all: Arc<All>,
    pub settings: Arc<Settings>,
    pub questions: Arc<Semaphore>,
    pub streams: Arc<Semaphore>,
}

impl Served {
    pub(crate) fn new(all: Arc<All>, settings: Settings) -> Served {
        Served {
            all,
            settings: Arc::new(settings),
            questions: Arc::new(Semaphore::new(QUESTIONS_MAX)),
            streams: Arc::new(Semaphore::new(STREAMS_MAX)),
        }
    }
}

/// The volume of a request.
#[derive(Deserialize)]
pub(crate) struct Which {
    pub volume: String,
}
