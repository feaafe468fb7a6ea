//! Runs of extents whose record is nothing but their home, which checkpoints write in a shorter form.

use super::{ExtentMap, UNMAPPED};
use crate::units::ExtentId;

impl ExtentMap {
    /// The number of extents from `e` on (at most `most`) that have a home, every block valid, and no copy.
    pub fn plain_run(&self, e: ExtentId, most: u32) -> u32 {
        let to = self.rows.len().min(e.0 as usize + most as usize);
        let Some(rows) = self.rows.get(e.0 as usize..to) else {
            return 0;
        };
        // Checkpoints read the whole map this way. While no extent has a copy or a mark, the rows alone decide, so that the loop
        // reads memory in order and has one test per row.
        let end = if self.copied == 0 && self.partial.count == 0 {
            rows.iter().position(|r| r.place == UNMAPPED)
        } else {
            rows.iter().zip(e.0..).position(|(r, x)| {
                r.place == UNMAPPED
                    || self.behind(r.place).is_some()
                    || self.partial.get(ExtentId(x))
            })
        };
        end.unwrap_or(rows.len()) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{Slot, TierId};
    use crate::volume::{Geometry, Member};
    use alloc::vec;

    /// The definition, asked of one extent after the other.
    fn defined(m: &ExtentMap, e: u32, most: u32) -> u32 {
        let plain = |x: &u32| {
            let x = ExtentId(*x);
            m.home(x).is_some() && m.copy(x).is_none() && !m.is_partial(x)
        };
        let to = m.extents().min(e + most);
        (e..to).take_while(plain).count() as u32
    }

    fn agrees(m: &ExtentMap) {
        for e in 0..=m.extents() {
            for most in [0, 1, 3, 100] {
                let run = m.plain_run(ExtentId(e), most);
                assert_eq!(run, defined(m, e, most), "from {e}, at most {most}");
            }
        }
    }

    #[test]
    fn a_run_ends_at_what_is_unmapped_partial_or_copied() {
        let member = |t, slots| Member {
            tier: TierId(t),
            first_slot: 0,
            slots,
            data_offset: 0,
        };
        let geo = Geometry::new(16, 12, 30, vec![member(0, 8), member(1, 40)]);
        let mut m = ExtentMap::new(&geo.expect("geometry"));
        agrees(&m);
        for e in 0..25 {
            m.map(ExtentId(e), Slot(10 + e), false);
        }
        agrees(&m);
        assert_eq!(m.plain_run(ExtentId(0), 100), 25);
        m.invalidate(ExtentId(20), 1, 2);
        agrees(&m);
        m.add_copy(ExtentId(11), Slot(3));
        agrees(&m);
        assert_eq!(m.plain_run(ExtentId(0), 100), 11);
        m.validate(ExtentId(20), 1, 2);
        agrees(&m);
        m.drop_copy(ExtentId(11));
        m.unmap(ExtentId(7));
        agrees(&m);
        assert_eq!(m.plain_run(ExtentId(0), 100), 7);
    }
}
