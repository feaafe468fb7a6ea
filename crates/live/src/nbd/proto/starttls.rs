//! The handshake before TLS on a server that requires TLS: every option but STARTTLS is refused.

pub(in crate::nbd) use super::handshake::greeting;
use super::wire::{IHAVEOPT, OPTION_REPLY_MAGIC, Reader, option, reply};

/// Bytes of an option before its data.
pub const OPTION_BYTES: usize = 16;
/// Longest option data that is read and discarded.
const DATA_MAX: u32 = 64 << 10;

/// The state after an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// More options follow.
    Options,
    /// The TLS handshake follows.
    Tls,
    /// The connection ends.
    Close,
}

/// The length of the data after the option that begins with these bytes; `None` if it is no option, or one whose data is not awaited.
pub fn data_bytes(head: &[u8; OPTION_BYTES]) -> Option<u32> {
    let mut reader = Reader(head);
    let (magic, code, len) = (reader.u64()?, reader.u32()?, reader.u32()?);
    // EXPORT_NAME has no error reply.
    (magic == IHAVEOPT && code != option::EXPORT_NAME && len <= DATA_MAX).then_some(len)
}

/// The reply, and the next state.
pub fn answer(head: &[u8; OPTION_BYTES]) -> ([u8; 20], Next) {
    let mut reader = Reader(&head[8..]);
    let code = reader.u32().unwrap_or_default();
    let len = reader.u32().unwrap_or_default();
    let (kind, next) = match code {
        option::STARTTLS if len == 0 => (reply::ACK, Next::Tls),
        option::STARTTLS => (reply::ERR_INVALID, Next::Options),
        option::ABORT => (reply::ACK, Next::Close),
        _ => (reply::ERR_TLS_REQD, Next::Options),
    };
    let mut bytes = [0; 20];
    bytes[..8].copy_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    bytes[8..12].copy_from_slice(&code.to_be_bytes());
    bytes[12..16].copy_from_slice(&kind.to_be_bytes());
    (bytes, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(code: u32, len: u32) -> [u8; OPTION_BYTES] {
        let mut b = [0; OPTION_BYTES];
        b[..8].copy_from_slice(&IHAVEOPT.to_be_bytes());
        b[8..12].copy_from_slice(&code.to_be_bytes());
        b[12..].copy_from_slice(&len.to_be_bytes());
        b
    }

    #[test]
    fn only_starttls_is_let_through() {
        for code in 0..32 {
            let want = match code {
                option::STARTTLS => (reply::ACK, Next::Tls),
                option::ABORT => (reply::ACK, Next::Close),
                _ => (reply::ERR_TLS_REQD, Next::Options),
            };
            let (bytes, next) = answer(&head(code, 0));
            assert_eq!(
                (bytes[12..16].to_vec(), next),
                (want.0.to_be_bytes().to_vec(), want.1)
            );
            assert_eq!(
                data_bytes(&head(code, 9)).is_none(),
                code == option::EXPORT_NAME
            );
        }
        assert_eq!(answer(&head(option::STARTTLS, 1)).1, Next::Options);
        assert_eq!(data_bytes(&head(option::LIST, DATA_MAX + 1)), None);
        assert_eq!(data_bytes(&[0; OPTION_BYTES]), None);
    }
}
