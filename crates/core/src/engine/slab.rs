//! Stores objects under numbers. Numbers are reused, and the memory does not shrink.

use alloc::vec::Vec;

/// See the module.
#[derive(Clone, Debug)]
pub struct Slab<T> {
    items: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    /// A slab with room for `n` objects before it has to grow.
    pub fn new(n: usize) -> Slab<T> {
        Slab {
            items: Vec::with_capacity(n),
            free: Vec::with_capacity(n),
        }
    }
    /// Stores an object; returns its number.
    pub fn insert(&mut self, t: T) -> u32 {
        if let Some(i) = self.free.pop() {
            self.items[i as usize] = Some(t);
            i
        } else {
            self.items.push(Some(t));
            self.items.len() as u32 - 1
        }
    }
    /// Removes an object. The number must be in use.
    pub fn remove(&mut self, i: u32) -> T {
        let t = self.items[i as usize].take().expect("number not in use");
        self.free.push(i);
        t
    }
    /// Removes all objects, and calls `each` for every one of them, in the order of their numbers.
    pub fn drain(&mut self, each: impl FnMut(T)) {
        self.free.clear();
        self.items.drain(..).flatten().for_each(each);
    }
    /// An object, if the number is in use.
    pub fn get(&self, i: u32) -> Option<&T> {
        self.items.get(i as usize).and_then(Option::as_ref)
    }
    /// An object. The number must be in use.
    pub fn at(&mut self, i: u32) -> &mut T {
        self.items[i as usize].as_mut().expect("number not in use")
    }
    /// Number of objects.
    pub fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }
    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
