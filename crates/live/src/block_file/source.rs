//! The pump as a source of the engine's thread.

use std::os::fd::{AsFd, AsRawFd, RawFd};

use super::pump::{Pump, Received};
use crate::server::Handle;
use crate::world::{Source, Watch};

/// Largest number of requests that one call takes, so that completions do not wait for long.
const BATCH: u32 = 64;
/// While requests come one by one, poll for another one only after every 16th.
const POLL_EVERY: u32 = 16;

pub(super) struct PumpSource {
    pump: Pump,
    handle: Handle,
    /// Whether the last poll after a request found another one.
    crowded: bool,
    /// Number of requests since that poll.
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
            // The pump waits for memory if there is none, and this thread is the one that returns memory.
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
            // At queue depth 1 there is usually no other request, so a poll after each one would be a waste. If there is one, the watched
            // descriptor reports it at once.
            self.lone += 1;
            if !self.crowded && self.lone < POLL_EVERY {
                return Watch::Empty;
            }
        }
        self.crowded = true;
        Watch::Busy
    }
}
