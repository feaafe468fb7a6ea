//! Numbered places for what is in flight; numbers are reused, memory is not given back.

use alloc::vec::Vec;

/// See the module.
#[derive(Clone, Debug)]
pub struct Slab<T> {
    items: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    /// Room for `n` before it has to grow.
    pub fn new(n: usize) -> Slab<T> {
        Slab {
            items: Vec::with_capacity(n),
            free: Vec::with_capacity(n),
        }
    }
    /// Store; returns the number.
    pub fn insert(&mut self, t: T) -> u32 {
        if let Some(i) = self.free.pop() {
            self.items[i as usize] = Some(t);
            i
        } else {
            self.items.push(Some(t));
            self.items.len() as u32 - 1
        }
    }
    /// Take out. A number that is not in use is a caller's bug.
    pub fn remove(&mut self, i: u32) -> T {
        let t = self.items[i as usize].take().expect("number not in use");
        self.free.push(i);
        t
    }
    /// Look up, if in use.
    pub fn get(&self, i: u32) -> Option<&T> {
        self.items.get(i as usize).and_then(Option::as_ref)
    }
    /// Look up; a number that is not in use is a caller's bug.
    pub fn at(&mut self, i: u32) -> &mut T {
        self.items[i as usize].as_mut().expect("number not in use")
    }
    /// In use.
    pub fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }
    /// Is none in use?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
