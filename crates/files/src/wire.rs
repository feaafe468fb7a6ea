//! The bytes of what is stored on the fastest tier: little-endian words, and texts with their length.

/// Adds a text with its length.
pub(crate) fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Bytes that are decoded from the first on. Each function returns `None` if there are too few.
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    /// The next `n` bytes.
    pub(crate) fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }
    /// A word of 32 bits.
    pub(crate) fn half(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }
    /// A word of 64 bits.
    pub(crate) fn word(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }
    /// A text with its length.
    pub(crate) fn blob(&mut self) -> Option<&'a [u8]> {
        let n = self.half()?;
        self.take(n as usize)
    }
}
