//! Members without data, for benches of the engine.

use isotherm_core::MemberId;
use isotherm_core::store::{Media, MediaError};
use std::collections::HashMap;

/// A sparse image for metadata.
#[derive(Default)]
pub struct Ram(HashMap<(u8, u64), Vec<u8>>);

impl Media for Ram {
    fn read(&mut self, m: MemberId, offset: u64, buf: &mut [u8]) -> Result<(), MediaError> {
        for (i, b) in buf.chunks_mut(4096).enumerate() {
            match self.0.get(&(m.0, offset + i as u64 * 4096)) {
                Some(d) => b.copy_from_slice(d),
                None => b.fill(0),
            }
        }
        Ok(())
    }
    fn write(&mut self, m: MemberId, offset: u64, buf: &[u8]) -> Result<(), MediaError> {
        for (i, b) in buf.chunks(4096).enumerate() {
            if b.iter().any(|x| *x != 0) {
                self.0.insert((m.0, offset + i as u64 * 4096), b.to_vec());
            }
        }
        Ok(())
    }
    fn flush(&mut self, _m: MemberId) -> Result<(), MediaError> {
        Ok(())
    }
}
