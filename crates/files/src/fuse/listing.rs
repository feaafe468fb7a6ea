//! The names of a directory by place, so that a listing can go on at a place later, with what the directory has then.
//!
//! The server of NFS lists a directory by pieces. For each piece it opens the directory anew and goes on at the place at which the last one
//! ended, also after a remount. So the place of a name depends on nothing but the name (and on names with the same hash): whatever else is
//! made, removed or replaced meanwhile, a name that stays is listed once. Places are below 2^31, because 32-bit programs get them.

use crate::catalogue;
use isotherm_core::crc32c::crc32c;

/// The entries `.` and `..`, which have the first two places.
const DOTS: [&[u8]; 2] = [b".", b".."];
/// Bits of a name's hash.
const HASH_BITS: u32 = 27;
/// Number of places for the names with the same hash. If there are more, they take those of the next hash.
const EACH: u64 = 16;

/// The names of a directory at one moment, in the order of their places.
pub(super) struct Listing {
    names: catalogue::Listing,
    /// The place of each name, and its index in `names`.
    places: Vec<(u64, u32)>,
}

/// The first of the places for names with the hash of this one.
fn first_place(name: &[u8]) -> u64 {
    u64::from(crc32c(name) >> (32 - HASH_BITS)) * EACH + DOTS.len() as u64
}

impl Listing {
    /// Takes the names in their order, which is that of names with the same hash.
    pub(super) fn new(names: catalogue::Listing) -> Listing {
        let mut places: Vec<(u64, u32)> = (0..)
            .map_while(|at| Some((first_place(names.get(at as usize)?), at)))
            .collect();
        places.sort_unstable();
        let mut free = 0;
        for (place, _) in &mut places {
            *place = (*place).max(free);
            free = *place + 1;
        }
        Listing { names, places }
    }
    /// The entries from a place on, `.` and `..` among them. Each comes with the place from which on those behind it are.
    pub(super) fn from(&self, place: u64) -> impl Iterator<Item = (u64, &[u8])> {
        let dots = (1..)
            .zip(DOTS)
            .skip(usize::try_from(place).unwrap_or(usize::MAX).min(2));
        let first = self.places.partition_point(|p| p.0 < place);
        let names = self.places[first..].iter();
        dots.chain(names.filter_map(|(p, at)| Some((p + 1, self.names.get(*at as usize)?))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::{Body, Catalogue, ROOT};
    use crate::tree::Facts;
    use std::collections::{BTreeMap, HashMap};

    /// A directory is listed by pieces, each from a listing of its own, while names come, go and are replaced, and the catalogue is made
    /// anew. Some names have the same hash.
    #[test]
    fn what_stays_is_listed_once_whatever_comes_and_goes() {
        let mut random = isotherm_core::random::SplitMix64::new(5);
        let (mut hashes, mut same) = (HashMap::new(), Vec::new());
        for n in 0u64.. {
            let name = format!("stays-{:x}", isotherm_core::random::mix(n));
            if let Some(other) = hashes.insert(first_place(name.as_bytes()), name.clone()) {
                same.extend([other, name]);
            }
            if same.len() >= 6 {
                break;
            }
        }
        let more = (0..600).map(|n| format!("stays-{n}"));
        let stays: Vec<String> = more.chain(same).collect();
        let fresh = || Catalogue::new(Facts::default(), 1);
        let add = |cat: &mut Catalogue, name: &str| {
            cat.unlink(ROOT, name.as_bytes());
            cat.add(ROOT, name.as_bytes(), 0, Facts::default(), Body::File);
        };
        let mut cat = fresh();
        for name in &stays {
            add(&mut cat, name);
        }
        let (mut place, mut seen, mut pieces) = (0, BTreeMap::<Vec<u8>, u32>::new(), 0);
        loop {
            let listing = Listing::new(cat.list(ROOT));
            let piece: Vec<_> = listing.from(place).take(3).collect();
            let Some(last) = piece.last() else { break };
            assert!(last.0 > place && last.0 < 1 << 31);
            place = last.0;
            pieces += 1;
            for (_, name) in piece {
                *seen.entry(name.to_vec()).or_default() += 1;
            }
            if pieces == 100 {
                // A remount: all nodes have other numbers.
                cat = fresh();
                for name in stays.iter().rev() {
                    add(&mut cat, name);
                }
            }
            for _ in 0..20 {
                let n = random.draw();
                add(&mut cat, &format!("comes-{}", n % 300));
                cat.unlink(ROOT, format!("comes-{}", random.draw() % 300).as_bytes());
                // Another file takes a name that stays.
                let name = stays[n as usize % stays.len()].as_bytes();
                add(&mut cat, "other");
                cat.rename(ROOT, b"other", ROOT, name);
            }
        }
        assert!(pieces > 200);
        for name in stays.iter().map(String::as_str).chain([".", ".."]) {
            assert_eq!(seen.get(name.as_bytes()), Some(&1), "{name}");
        }
    }
}
