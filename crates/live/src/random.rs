//! Random numbers of the system: identities and epochs, which no other volume may have.

use rustix::rand::GetRandomFlags;

use crate::{Error, ErrorKind};

/// N random bytes.
///
/// # Errors
/// The system has no random numbers yet.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut b = [0; N];
    // Requests of up to 256 bytes are never cut short once the pool is seeded.
    if rustix::rand::getrandom(&mut b, GetRandomFlags::empty()) != Ok(N) {
        return Err(Error::new(
            ErrorKind::System,
            "getrandom gave no random numbers: the system is not up yet",
        ));
    }
    Ok(b)
}
