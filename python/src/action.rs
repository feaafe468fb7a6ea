//! What a policy in Python wants, and the engine's own form of it.

use isotherm_core::policy as core;
use isotherm_core::{ExtentId, TierId};
use pyo3::prelude::*;

use crate::failed;

/// What a policy wants: made by `Action.move` and the like.
#[pyclass(frozen, eq, hash, module = "isotherm", from_py_object)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Action {
    kind: Kind,
    /// Which extent.
    #[pyo3(get)]
    extent: u32,
    /// Which tier, where one is meant.
    #[pyo3(get)]
    to: Option<u8>,
    /// First byte and number of bytes, where a part is meant.
    #[pyo3(get)]
    part: Option<(u32, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Move,
    Fetch,
    FetchPart,
    Allocate,
    Clean,
    Evict,
}

impl Action {
    fn new(kind: Kind, extent: u32, to: Option<u8>) -> Action {
        Action {
            kind,
            extent,
            to,
            part: None,
        }
    }
    pub(crate) fn of(action: core::Action) -> Action {
        match action {
            core::Action::Move { extent, to } => Action::new(Kind::Move, extent.0, Some(to.0)),
            core::Action::Fetch { extent, to } => Action::new(Kind::Fetch, extent.0, Some(to.0)),
            core::Action::FetchPart {
                extent,
                to,
                from,
                bytes,
            } => Action::fetch_part(extent.0, to.0, from, bytes),
            core::Action::Allocate { extent, to } => {
                Action::new(Kind::Allocate, extent.0, Some(to.0))
            }
            core::Action::Clean { extent } => Action::new(Kind::Clean, extent.0, None),
            core::Action::Evict { extent } => Action::new(Kind::Evict, extent.0, None),
        }
    }
    /// For an engine with so many extents and tiers.
    pub(crate) fn core(self, extents: u32, tiers: u8) -> PyResult<core::Action> {
        if self.extent >= extents {
            return Err(failed(format!(
                "{}: extent {} does not exist: there are {extents}",
                self.__repr__(),
                self.extent
            )));
        }
        let extent = ExtentId(self.extent);
        let to = TierId(self.to.unwrap_or(0));
        if to.0 >= tiers {
            return Err(failed(format!(
                "{}: tier {} does not exist: there are {tiers}",
                self.__repr__(),
                to.0
            )));
        }
        Ok(match self.kind {
            Kind::Move => core::Action::Move { extent, to },
            Kind::Fetch => core::Action::Fetch { extent, to },
            Kind::FetchPart => {
                let (from, bytes) = self.part.unwrap_or_default();
                core::Action::FetchPart {
                    extent,
                    to,
                    from,
                    bytes,
                }
            }
            Kind::Allocate => core::Action::Allocate { extent, to },
            Kind::Clean => core::Action::Clean { extent },
            Kind::Evict => core::Action::Evict { extent },
        })
    }
}

#[pymethods]
impl Action {
    /// Move the home of an extent to another tier.
    #[staticmethod]
    #[pyo3(name = "move")]
    fn move_(extent: u32, to: u8) -> Action {
        Action::new(Kind::Move, extent, Some(to))
    }
    /// Give the extent a copy on a faster tier, filled from its home.
    #[staticmethod]
    fn fetch(extent: u32, to: u8) -> Action {
        Action::new(Kind::Fetch, extent, Some(to))
    }
    /// Fetch `length` bytes from byte `start` of the extent, rounded outwards to blocks, into its copy on a faster tier.
    #[staticmethod]
    fn fetch_part(extent: u32, to: u8, start: u32, length: u32) -> Action {
        Action {
            part: Some((start, length)),
            ..Action::new(Kind::FetchPart, extent, Some(to))
        }
    }
    /// Give the extent an empty copy on a faster tier, for the write that is being served.
    #[staticmethod]
    fn allocate(extent: u32, to: u8) -> Action {
        Action::new(Kind::Allocate, extent, Some(to))
    }
    /// Write what the copy holds dirty to the home; the copy stays.
    #[staticmethod]
    fn clean(extent: u32) -> Action {
        Action::new(Kind::Clean, extent, None)
    }
    /// Give up the copy; what it holds dirty is written home first.
    #[staticmethod]
    fn evict(extent: u32) -> Action {
        Action::new(Kind::Evict, extent, None)
    }
    /// `move`, `fetch`, `fetch_part`, `allocate`, `clean` or `evict`.
    #[getter]
    fn kind(&self) -> &'static str {
        match self.kind {
            Kind::Move => "move",
            Kind::Fetch => "fetch",
            Kind::FetchPart => "fetch_part",
            Kind::Allocate => "allocate",
            Kind::Clean => "clean",
            Kind::Evict => "evict",
        }
    }
    fn __repr__(&self) -> String {
        match (self.to, self.part) {
            (Some(t), Some((start, length))) => format!(
                "Action.{}({}, {t}, {start}, {length})",
                self.kind(),
                self.extent
            ),
            (Some(t), None) => format!("Action.{}({}, {t})", self.kind(), self.extent),
            (None, _) => format!("Action.{}({})", self.kind(), self.extent),
        }
    }
}
