//! The pump as a source of the engine's thread.

use std::os::fd::{AsFd, AsRawFd, RawFd};

use super::pump::{Pump, Received};
use crate::server::Handle;
use crate::world::{Source, Watch};

/// Requests taken in one call, so that completions are not kept waiting.
const BATCH: u32 = 64;
/// While requests come one by one, look behind every so manieth whether another waits.
const LOOK_EVERY: u32 = 16;

pub(super) struct PumpSource {
    pump: Pump,
    handle: Handle,
    /// The last look behind a request found another.
    crowded: bool,
    /// Requests since that look.
    lone: u32,
}

impl PumpSource {
    pub(super) fn new(pump: Pump, handle: Handle) -> PumpSource {
        PumpSource {
            pump,
            handle,
            crowded: false,
            lone: 0,
        }
    }
}

impl Source for PumpSource {
    fn fd(&self) -> RawFd {
        self.pump.as_fd().as_raw_fd()
    }

    fn receive(&mut self) -> Watch {
        let mut taken = 0;
        while taken < BATCH {
            // The pump waits for memory if there is none, and this thread is the one that gives it back.
            if !self.handle.has_memory(Pump::LARGEST) {
                return Watch::Busy;
            }
            match self.pump.receive() {
                Ok(Received::Request) => taken += 1,
                Ok(Received::Nothing) => {
                    (self.crowded, self.lone) = (taken > 1, 0);
                    return Watch::Empty;
                }
                Ok(Received::Ended) => return Watch::Ended,
                Err(_) => {
                    self.pump.end();
                    return Watch::Ended;
                }
            }
            // A lone request is the rule at queue depth 1: do not ask in vain whether there is another. If there is,
            // watching the descriptor tells at once.
            self.lone += 1;
            if !self.crowded && self.lone < LOOK_EVERY {
                return Watch::Empty;
            }
        }
        self.crowded = true;
        Watch::Busy
    }
}
