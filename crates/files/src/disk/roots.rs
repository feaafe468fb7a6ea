//! The directories of all disks, by number. One that joins later gets the next number; none goes while they are mounted.

use super::root::Root;
use crate::layout::DISKS_MAX;
use crate::tree::Tier;
use std::ops::Index;
use std::sync::{Arc, OnceLock};

/// See the module. A clone is the same list.
#[derive(Clone, Default)]
pub struct Roots {
    first: Arc<Vec<Root>>,
    joined: Arc<[OnceLock<Root>; DISKS_MAX]>,
}

impl Roots {
    /// The number of disks.
    pub fn len(&self) -> usize {
        let joined = self.joined.iter().take_while(|slot| slot.get().is_some());
        self.first.len() + joined.count()
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The disk of that number.
    pub fn get(&self, number: usize) -> Option<&Root> {
        match number.checked_sub(self.first.len()) {
            None => self.first.get(number),
            Some(later) => self.joined.get(later)?.get(),
        }
    }
    /// All disks, by number.
    pub fn iter(&self) -> impl Iterator<Item = &Root> {
        let joined = self.joined.iter().map_while(OnceLock::get);
        self.first.iter().chain(joined)
    }
    /// All disks, by number.
    pub(crate) fn all(&self) -> Vec<&Root> {
        self.iter().collect()
    }
    /// Adds a disk, and returns its number. One caller at a time.
    ///
    /// # Errors
    /// There are [`DISKS_MAX`] already: the disk is returned.
    pub(crate) fn join(&self, root: Root) -> Result<Tier, Box<Root>> {
        let number = self.len();
        if number >= DISKS_MAX {
            return Err(Box::new(root));
        }
        let slot = &self.joined[number - self.first.len()];
        slot.set(root).map_err(Box::new)?;
        Ok(number as Tier)
    }
    /// The disks of the mount, for a test that changes one of them.
    #[cfg(test)]
    pub(crate) fn first_mut(&mut self) -> &mut [Root] {
        Arc::get_mut(&mut self.first).expect("nobody else uses them")
    }
}

impl Index<usize> for Roots {
    type Output = Root;
    fn index(&self, number: usize) -> &Root {
        match self.get(number) {
            Some(root) => root,
            None => &self.first[number],
        }
    }
}

impl From<Arc<Vec<Root>>> for Roots {
    fn from(first: Arc<Vec<Root>>) -> Roots {
        Roots {
            first,
            ..Roots::default()
        }
    }
}

impl From<Vec<Root>> for Roots {
    fn from(first: Vec<Root>) -> Roots {
        Roots::from(Arc::new(first))
    }
}
