//! What a policy in Python sees: the engine's view, lent for one call, and the access.

use std::ptr::NonNull;
use std::sync::Mutex;

use isotherm_core::policy::{Access as CoreAccess, View as CoreView};
use isotherm_core::volume::Position;
use isotherm_core::{ExtentId, Nanos, TierId};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;

use crate::failed;

/// The engine's view while a call lasts.
struct Lent(NonNull<CoreView<'static>>);

// SAFETY: a view is plain data (`CoreView` is Send by itself); the pointer is only followed under the lock of `View`, while
// the engine, which owns what it points to, waits in `lend`.
unsafe impl Send for Lent {}

/// The volume: everything readable, and two numbers for each extent writable. Valid during the call that it is given to.
#[pyclass(frozen, module = "isotherm")]
pub struct View {
    lent: Mutex<Option<Lent>>,
}

impl View {
    pub fn none() -> View {
        View {
            lent: Mutex::new(None),
        }
    }

    /// `view` is what Python sees until `call` returns.
    pub fn lend<T>(&self, view: &mut CoreView<'_>, call: impl FnOnce() -> T) -> T {
        /// Takes the view back even if `call` panics.
        struct Back<'a>(&'a View);
        impl Drop for Back<'_> {
            fn drop(&mut self) {
                self.0.set(None);
            }
        }
        // The lifetime is erased here and kept by `Back`: nobody can follow the pointer after this function.
        self.set(Some(Lent(NonNull::from(view).cast())));
        let _back = Back(self);
        call()
    }

    fn set(&self, lent: Option<Lent>) {
        match self.lent.lock() {
            Ok(mut l) => *l = lent,
            // Nothing inside `with` leaves a half-made value.
            Err(e) => *e.into_inner() = lent,
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut CoreView<'_>) -> PyResult<T>) -> PyResult<T> {
        let mut lent = match self.lent.lock() {
            Ok(l) => l,
            Err(e) => e.into_inner(),
        };
        match &mut *lent {
            // SAFETY: `lend` put the pointer there from a `&mut` that outlives the loan, and takes it out before that ends;
            // the engine does not touch the view meanwhile, and the lock keeps other threads out.
            Some(Lent(p)) => f(unsafe { p.as_mut() }),
            None => Err(failed(
                "view: it is valid only during the call that it was given to; keep what you read, not the view",
            )),
        }
    }
}

fn inside(what: &str, n: u64, end: u64) -> PyResult<()> {
    if n < end {
        return Ok(());
    }
    Err(PyIndexError::new_err(format!(
        "{what} {n} does not exist: there are {end}"
    )))
}

fn extent(v: &CoreView<'_>, e: u32) -> PyResult<ExtentId> {
    inside("extent", u64::from(e), u64::from(v.units()))?;
    Ok(ExtentId(e))
}

fn tier(v: &CoreView<'_>, t: u8) -> PyResult<TierId> {
    inside("tier", u64::from(t), u64::from(v.tiers()))?;
    Ok(TierId(t))
}

/// Python identifies a position by its index in a table and calls the index a slot.
fn slot(v: &CoreView<'_>, s: u32) -> PyResult<Position> {
    inside("slot", u64::from(s), u64::from(slots(v)))?;
    Ok(v.position(s))
}

/// Slots of all tiers.
pub fn slots(v: &CoreView<'_>) -> u32 {
    v.positions(v.slowest()).end
}

#[pymethods]
impl View {
    /// Engine time, nanoseconds.
    #[getter]
    fn now_ns(&self) -> PyResult<u64> {
        self.with(|v| Ok(v.now().0))
    }
    /// Extents of the volume; they are numbered from 0.
    #[getter]
    fn extents(&self) -> PyResult<u32> {
        self.with(|v| Ok(v.units()))
    }
    /// Bytes of an extent.
    #[getter]
    fn extent_bytes(&self) -> PyResult<u32> {
        self.with(|v| Ok(v.grain()))
    }
    /// Tiers; 0 is the fastest.
    #[getter]
    fn tiers(&self) -> PyResult<u8> {
        self.with(|v| Ok(v.tiers()))
    }
    /// Moves under way.
    #[getter]
    fn moves(&self) -> PyResult<u32> {
        self.with(|v| Ok(v.moves()))
    }
    /// Slots of `tier`, as the range of their numbers.
    fn slots(&self, py: Python<'_>, tier: u8) -> PyResult<Py<PyAny>> {
        let r = self.with(|v| Ok(v.positions(self::tier(v, tier)?)))?;
        let range = py
            .import("builtins")?
            .call_method1("range", (r.start, r.end))?;
        Ok(range.unbind())
    }
    /// Slots of `tier` that can be handed out now.
    fn free(&self, tier: u8) -> PyResult<u32> {
        self.with(|v| Ok(v.free(self::tier(v, tier)?)))
    }
    /// Slots of `tier` that are on their way to be free.
    fn freeing(&self, tier: u8) -> PyResult<u32> {
        self.with(|v| Ok(v.freeing(self::tier(v, tier)?)))
    }
    /// Slot of an extent's home; None before the first touch.
    fn home(&self, extent: u32) -> PyResult<Option<u32>> {
        self.with(|v| Ok(v.home(self::extent(v, extent)?).map(Position::index)))
    }
    /// Slot of an extent's copy.
    fn copy(&self, extent: u32) -> PyResult<Option<u32>> {
        self.with(|v| Ok(v.copy(self::extent(v, extent)?).map(Position::index)))
    }
    /// Tier that serves an extent: its copy's, else its home's.
    fn tier(&self, extent: u32) -> PyResult<Option<u8>> {
        self.with(|v| {
            let e = self::extent(v, extent)?;
            Ok(v.copy(e).or(v.home(e)).map(|s| v.tier_of(s).0))
        })
    }
    /// Tier of a slot.
    fn tier_of(&self, slot: u32) -> PyResult<u8> {
        self.with(|v| Ok(v.tier_of(self::slot(v, slot)?).0))
    }
    /// Extent in a slot of a tier other than the slowest.
    fn owner(&self, slot: u32) -> PyResult<Option<u32>> {
        self.with(|v| Ok(v.owner(self::slot(v, slot)?).map(|e| e.0)))
    }
    /// Does the copy hold data that the home does not?
    fn is_dirty(&self, extent: u32) -> PyResult<bool> {
        self.with(|v| Ok(v.is_dirty(self::extent(v, extent)?)))
    }
    /// Is something (a move, a waiting request) going on with this extent?
    fn is_held(&self, extent: u32) -> PyResult<bool> {
        self.with(|v| Ok(v.is_held(self::extent(v, extent)?)))
    }
    /// Requests in flight on an extent.
    fn in_flight(&self, extent: u32) -> PyResult<u32> {
        self.with(|v| Ok(v.in_flight(self::extent(v, extent)?)))
    }
    /// Time that the policy last noted for an extent, nanoseconds rounded to microseconds.
    fn last_ns(&self, extent: u32) -> PyResult<u64> {
        self.with(|v| Ok(v.last(self::extent(v, extent)?).0))
    }
    /// Note a time for an extent.
    fn set_last_ns(&self, extent: u32, time_ns: u64) -> PyResult<()> {
        self.with(|v| {
            let e = self::extent(v, extent)?;
            v.set_last(e, Nanos(time_ns));
            Ok(())
        })
    }
    /// The policy's 16 bits for an extent.
    fn stat(&self, extent: u32) -> PyResult<u16> {
        self.with(|v| Ok(v.stat(self::extent(v, extent)?)))
    }
    /// Set the policy's 16 bits.
    fn set_stat(&self, extent: u32, value: u16) -> PyResult<()> {
        self.with(|v| {
            let e = self::extent(v, extent)?;
            v.set_stat(e, value);
            Ok(())
        })
    }
}

/// One extent-sized touch of a request.
#[pyclass(frozen, get_all, module = "isotherm")]
#[derive(Debug)]
pub struct Access {
    /// When, nanoseconds of engine time.
    now_ns: u64,
    /// Which extent.
    extent: u32,
    /// Slot of its home before anything that this access triggers; None at the first touch.
    home: Option<u32>,
    /// Slot of its copy before anything that this access triggers.
    copy: Option<u32>,
    /// Tier that served it before: the copy's, else the home's.
    tier: Option<u8>,
    /// Write (or read).
    write: bool,
    /// Kind of data, 0 to 63 (`class` is taken in Python).
    data_class: u8,
    /// Bytes of the whole request.
    request_bytes: u32,
    /// First byte of the whole request on the volume.
    request_offset: u64,
    /// This is the request's first extent.
    first: bool,
}

impl Access {
    pub fn new(view: &CoreView<'_>, a: &CoreAccess) -> Access {
        Access {
            now_ns: a.now.0,
            extent: a.extent.0,
            home: a.home.map(Position::index),
            copy: a.copy.map(Position::index),
            tier: a.served().map(|s| view.tier_of(s).0),
            write: a.write,
            data_class: a.class,
            request_bytes: a.request_bytes,
            request_offset: a.request_offset,
            first: a.first,
        }
    }
}

#[pymethods]
impl Access {
    fn __repr__(&self) -> String {
        format!("{self:?}")
    }
}
