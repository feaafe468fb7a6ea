//! Tests of the plain caches: a sequence computed by hand for each, and a comparison with a naive reference.

mod golden;
mod reference;

use crate::geometry::{Geometry, Member};
use crate::null::NullEngine;
use crate::policy::{Policy, build};
use crate::units::{Nanos, TierId};
use crate::volume::UnitId;
use alloc::boxed::Box;
use alloc::vec;

type Engine = NullEngine<Box<dyn Policy>>;

fn engine(name: &str, fast: u32, extents: u32) -> Engine {
    let m = |t, slots| Member {
        tier: TierId(t),
        first_slot: 0,
        slots,
        data_offset: 0,
        stash: crate::geometry::Stash::default(),
    };
    let geo = Geometry::new(12, 12, extents, vec![m(0, fast), m(1, extents)]).unwrap();
    NullEngine::new(geo, build(name, core::iter::empty()).unwrap())
}

fn access(e: &mut Engine, extent: u32, write: bool) -> bool {
    let at = u64::from(extent) << 12;
    e.access(Nanos(1), UnitId(extent), write, 0, (at, 4096))
}
