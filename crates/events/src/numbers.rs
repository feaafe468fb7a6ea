//! Numbers and texts as bytes, and a cursor that reads them.

/// Appends a number in groups of seven bits, the low groups first.
pub(super) fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Appends a difference. Small differences of either sign are short.
pub(super) fn put_from(out: &mut Vec<u8>, from: u64, to: u64) {
    let d = to.wrapping_sub(from) as i64;
    put(out, (d << 1 ^ d >> 63) as u64);
}

pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// The reason why bytes are not valid events.
pub(super) type Bad = &'static str;

/// A slice that is read from the front.
pub(super) struct Cursor<'a> {
    left: &'a [u8],
}

impl<'a> Cursor<'a> {
    pub(super) fn new(left: &'a [u8]) -> Cursor<'a> {
        Cursor { left }
    }

    /// Number of bytes that were not read.
    pub(super) fn left(&self) -> usize {
        self.left.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    pub(super) fn take(&mut self, n: usize) -> Result<&'a [u8], Bad> {
        let (a, b) = self.left.split_at_checked(n).ok_or("it ends too early")?;
        self.left = b;
        Ok(a)
    }

    pub(super) fn byte(&mut self) -> Result<u8, Bad> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn number(&mut self) -> Result<u64, Bad> {
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let b = self.byte()?;
            let bits = u64::from(b & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            n |= bits << shift;
            if b < 0x80 {
                return Ok(n);
            }
        }
        Err("a number is too long")
    }

    pub(super) fn narrow<T: TryFrom<u64>>(&mut self) -> Result<T, Bad> {
        T::try_from(self.number()?).map_err(|_| "a number is too large")
    }

    /// A number that was written with [`put_from`].
    pub(super) fn from(&mut self, last: u64) -> Result<u64, Bad> {
        let z = self.number()?;
        let d = (z >> 1) as i64 ^ -((z & 1) as i64);
        Ok(last.wrapping_add(d as u64))
    }

    pub(super) fn fixed(&mut self) -> Result<u64, Bad> {
        Ok(self
            .take(8)?
            .iter()
            .rev()
            .fold(0, |n, x| n << 8 | u64::from(*x)))
    }

    pub(super) fn bytes(&mut self, max: usize) -> Result<&'a [u8], Bad> {
        let n: usize = self.narrow()?;
        if n > max {
            return Err("a text is too long");
        }
        self.take(n)
    }

    pub(super) fn text(&mut self, max: usize) -> Result<String, Bad> {
        let bytes = self.bytes(max)?;
        String::from_utf8(bytes.to_vec()).map_err(|_| "a text is not UTF-8")
    }
}
