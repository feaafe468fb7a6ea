//! The times for which a server waits for a peer.

use std::time::Duration;

/// Time limits for peers. There is no limit for a client that is idle between requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLimits {
    /// The whole time from the connection to the choice of an export.
    pub handshake: Duration,
    /// The time for the next bytes of a WRITE's payload, and for room in the socket for replies.
    pub transmission: Duration,
}

impl Default for TimeLimits {
    /// 30 s, 60 s.
    fn default() -> TimeLimits {
        TimeLimits {
            handshake: Duration::from_secs(30),
            transmission: Duration::from_secs(60),
        }
    }
}
