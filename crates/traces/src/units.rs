//! The units of addresses and sizes, from the numbers themselves: which request follows which, and what divides all of them.
//!
//! A request that begins where an earlier one ended shows how many units of addresses a unit of sizes has. Multiples of a sector show
//! bytes, and multiples of eight sectors, because file systems have blocks of 4 KiB. Where neither says anything, the units are assumed.

use std::collections::VecDeque;

use crate::field::SECTOR;

/// Bytes of a page or block where numbers count those.
pub(crate) const PAGE: u64 = 4096;
/// The ends of this many earlier requests are compared, because streams of requests interleave.
const BEFORE: usize = 8;
/// Fewer requests, or requests that follow one another, are chance.
const FOLLOW: usize = 3;

/// The address and the size of a request, in unknown units, and its device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) device: u64,
    pub(crate) at: u64,
    pub(crate) size: u64,
}

/// Bytes of a unit of addresses and of a unit of sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Units {
    pub(crate) at: u64,
    pub(crate) size: u64,
}

impl Units {
    /// Both in sectors: what is assumed where nothing shows the units.
    pub(crate) const SECTORS: Units = Units {
        at: SECTOR,
        size: SECTOR,
    };
    /// Both in bytes.
    pub(crate) const BYTES: Units = Units { at: 1, size: 1 };
    /// Addresses in sectors and sizes in pages.
    pub(crate) const PAGES: Units = Units {
        at: SECTOR,
        size: PAGE,
    };
}

/// The name of a unit in sentences.
pub(crate) fn name(unit: u64) -> &'static str {
    match unit {
        1 => "bytes",
        SECTOR => "sectors of 512 B",
        _ => "blocks of 4 KiB",
    }
}

/// The units of `rows`, and what shows them; `None` if nothing does. `size` is the unit of sizes where it is known.
pub(crate) fn weigh(rows: &[Row], size: Option<u64>) -> Option<(Units, String)> {
    let rows: Vec<Row> = rows.iter().copied().filter(|r| r.size > 0).collect();
    if rows.is_empty() {
        return None;
    }
    let every = |of: u64, n: fn(&Row) -> u64| rows.iter().all(|r| n(r).is_multiple_of(of));
    let (at_512, size_512) = (every(SECTOR, |r| r.at), every(SECTOR, |r| r.size));
    let known = |units: &Units| size.is_none_or(|size| size == units.size);
    if at_512 && size_512 && known(&Units::BYTES) {
        let why = "every address and size is a multiple of 512";
        return Some((Units::BYTES, why.to_owned()));
    }
    // Pairs with equal units are one candidate: what follows what does not tell them apart.
    let pairs = [(1, 1), (1, 8), (8, 1), (SECTOR, 1), (PAGE, 1)];
    let counts = pairs.map(|(at, size)| follows(&rows, at, size));
    let best = (0..pairs.len()).max_by_key(|&i| (counts[i], pairs.len() - i))?;
    let rival = (0..pairs.len()).filter(|&i| i != best).map(|i| counts[i]);
    let shown = counts[best] >= FOLLOW && counts[best] >= 4 * rival.max().unwrap_or(0);
    let units = match pairs[best] {
        (1, 8) => Units::PAGES,
        (8, 1) => Units {
            at: PAGE,
            size: SECTOR,
        },
        (at, 1) if at > 1 => Units { at, size: 1 },
        // An address and a size in bytes that are no multiples of a sector are not those of a block device.
        _ if size == Some(1) => Units::BYTES,
        _ => Units::SECTORS,
    };
    // Equal units are sectors if most sizes are blocks of a file system, and may be any else.
    let blocks = rows.iter().filter(|r| r.size.is_multiple_of(8)).count();
    let open = units == Units::SECTORS && 2 * blocks < rows.len();
    if shown && known(&units) {
        let why = format!(
            "{} of {} requests begin where an earlier one ended only so",
            counts[best],
            rows.len()
        );
        return (!open).then_some((units, why));
    }
    let some = rows.len() >= FOLLOW;
    let found = some.then(|| by_divisor(&rows, size, size_512)).flatten();
    found.filter(|(units, _)| known(units))
}

/// What the divisors of the numbers show if no request follows another.
fn by_divisor(rows: &[Row], size: Option<u64>, size_512: bool) -> Option<(Units, String)> {
    let eights = |n: fn(&Row) -> u64| rows.iter().filter(|r| n(r).is_multiple_of(8)).count();
    let (at_8, size_8) = (eights(|r| r.at), eights(|r| r.size));
    let all = rows.len();
    if size == Some(1) || size_512 {
        // Sizes in bytes. Addresses are no bytes, or they would be multiples of 512.
        let units = Units {
            at: SECTOR,
            size: 1,
        };
        let small = rows.iter().any(|r| !r.size.is_multiple_of(PAGE));
        let why = if small {
            "every size is a multiple of 512, some are none of 4 KiB, and addresses are none of 512"
        } else {
            "every size is a multiple of 512, and every address of 8, but not of 512"
        };
        return (size_512 && (small || at_8 == all)).then(|| (units, why.to_owned()));
    }
    let differ = rows.iter().any(|r| r.size != rows[0].size);
    if size_8 == all && (at_8 == all || differ) {
        let why = "every size is a multiple of 8";
        return Some((Units::SECTORS, why.to_owned()));
    }
    (at_8 == all && (all - size_8) * 2 > all).then(|| {
        let why = "every address is a multiple of 8 and sizes are not";
        (Units::PAGES, why.to_owned())
    })
}

/// How many requests begin where one of those just before them on the same device ended, if addresses have this unit and sizes that one.
fn follows(rows: &[Row], at: u64, size: u64) -> usize {
    let mut ends: VecDeque<(u64, u128)> = VecDeque::with_capacity(BEFORE + 1);
    let mut count = 0;
    for r in rows {
        let start = u128::from(r.at) * u128::from(at);
        count += usize::from(ends.contains(&(r.device, start)));
        if ends.len() == BEFORE {
            ends.pop_front();
        }
        ends.push_back((r.device, start + u128::from(r.size) * u128::from(size)));
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::random::SplitMix64;

    /// Requests of 4 to 64 KiB at 4 KiB, of which a third follow the one before, in these units.
    fn rows(units: Units, seed: u64, apart: bool) -> Vec<Row> {
        let mut r = SplitMix64::new(seed);
        let mut end = 0;
        (0..500)
            .map(|_| {
                let size = PAGE * (1 + r.below(16));
                let at = if !apart && r.below(3) == 0 {
                    end
                } else {
                    PAGE * (1 + 17 * r.below(1 << 20))
                };
                end = at + size;
                Row {
                    device: 0,
                    at: at / units.at,
                    size: size / units.size,
                }
            })
            .collect()
    }

    #[test]
    fn what_follows_what_shows_the_units() {
        let all = [1, SECTOR, PAGE];
        for (at, size) in all.into_iter().flat_map(|at| all.map(|size| (at, size))) {
            for seed in 0..20 {
                let units = Units { at, size };
                let found = weigh(&rows(units, seed, false), None).map(|f| f.0);
                // Numbers that count the same look alike in any unit: sectors are then taken for shown only by their multiples of 8. An
                // address in bytes beside a size in something else is none of the forms in circulation.
                match (at, size) {
                    (PAGE, PAGE) => assert_ne!(found, Some(Units::BYTES)),
                    (1, SECTOR | PAGE) => assert_ne!(found, Some(Units::BYTES), "{seed}"),
                    _ => assert_eq!(found, Some(units), "{seed}"),
                }
                let known = weigh(&rows(Units { at, size: 1 }, seed, false), Some(1));
                assert_eq!(known.map(|f| f.0.at), Some(at));
            }
        }
    }

    #[test]
    fn scattered_numbers_show_nothing() {
        for seed in 0..50 {
            let mut r = SplitMix64::new(seed);
            let odd: Vec<Row> = (0..300)
                .map(|_| Row {
                    device: 0,
                    at: r.below(1 << 30),
                    size: 1 + r.below(7),
                })
                .collect();
            assert_eq!(weigh(&odd, None), None, "{seed}");
            assert_eq!(weigh(&odd, Some(1)), None, "{seed}");
        }
    }
}
