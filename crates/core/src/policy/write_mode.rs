//! The write mode of a cache, a parameter of every caching preset: `write-mode=NAME`.
//!
//! | name | write that hits | write that misses | read that misses |
//! |---|---|---|---|
//! | write-back | to the copy | as the preset: a copy, if it makes one | as the preset |
//! | write-through-update | to both | to the home, no copy | as the preset |
//! | write-through-all | to both | to the home, and a copy as for a read | as the preset |
//! | write-around | to the home; the copy is given up | to the home, no copy | as the preset |
//! | write-only | to the copy | as the preset | no copy |
//! | read-only | as write-around, and the preset does not see writes at all | as write-around | as the preset |
//! | pass-through | to the home; the copy is given up | to the home | no copy |
//!
//! (Loris II-B names the write-through and write-around modes; the others are those of the kernel's caches and Open CAS.) Without the
//! parameter a preset writes as published. Under modes that leave nothing dirty the preset sees writes as reads: its dirty lists stay
//! empty; and what is dirty when such a mode takes over a volume is written home in the background ([`Policy::keeps_dirty`]). Presets
//! that fill their cache at intervals go on doing so.

use super::{Access, Action, Outcome, ParamError, Place, Policy, Refusal, View, WriteTo, nearest};
use crate::volume::UnitId;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// Hits to the copy.
    WriteBack,
    /// Hits to both, misses to the home.
    WriteThroughUpdate,
    /// Hits to both, misses to both.
    WriteThroughAll,
    /// All to the home; the copy is evicted.
    WriteAround,
    /// Only writes make copies.
    WriteOnly,
    /// Only reads make copies, and the preset does not see writes.
    ReadOnly,
    /// Nothing makes copies.
    PassThrough,
}

/// Names of the modes, in the order of the enum.
pub const WRITE_MODES: [&str; 7] = [
    "write-back",
    "write-through-update",
    "write-through-all",
    "write-around",
    "write-only",
    "read-only",
    "pass-through",
];

use WriteMode::{
    PassThrough, ReadOnly, WriteAround, WriteBack, WriteOnly, WriteThroughAll, WriteThroughUpdate,
};

impl WriteMode {
    /// By name.
    pub fn from_name(name: &str) -> Option<WriteMode> {
        let all = [
            WriteBack,
            WriteThroughUpdate,
            WriteThroughAll,
            WriteAround,
            WriteOnly,
            ReadOnly,
            PassThrough,
        ];
        WRITE_MODES.iter().position(|n| *n == name).map(|i| all[i])
    }
    /// By name.
    ///
    /// # Errors
    /// There is no mode of that name; holds the nearest one.
    pub fn parse(name: &str) -> Result<WriteMode, ParamError> {
        WriteMode::from_name(name)
            .ok_or_else(|| ParamError::Value(RANGE, nearest(name, WRITE_MODES.into_iter())))
    }
    /// Its name.
    pub fn name(self) -> &'static str {
        WRITE_MODES[self as usize]
    }
}

/// A caching preset under another write mode.
pub struct Moded {
    inner: Box<dyn Policy>,
    mode: WriteMode,
}

impl Moded {
    /// Wraps `inner`, whose writes follow `mode`.
    pub fn new(inner: Box<dyn Policy>, mode: WriteMode) -> Moded {
        Moded { inner, mode }
    }
    /// Passes an access to the preset, and removes the proposals that the mode forbids.
    fn pass_access(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        let before = wanted.len();
        self.inner.on_access(view, access, wanted);
        let unwanted: Vec<Action> = wanted.drain(before..).collect();
        for a in unwanted {
            let refused = Outcome::Refused(Refusal::Pointless);
            self.inner.on_settled(view, a, refused, wanted);
        }
    }
}

impl Policy for Moded {
    fn inner(&self) -> Option<&dyn Policy> {
        Some(&*self.inner)
    }
    fn inner_mut(&mut self) -> Option<&mut dyn Policy> {
        Some(&mut *self.inner)
    }
    fn name(&self) -> &'static str {
        self.inner.name()
    }
    fn keeps_dirty(&self) -> bool {
        matches!(self.mode, WriteBack | WriteOnly)
    }
    fn writes_back_on_demand(&self) -> bool {
        self.keeps_dirty() && self.inner.writes_back_on_demand()
    }
    fn attach(&mut self, view: &mut View<'_>) {
        self.inner.attach(view);
    }
    fn first_touch(&mut self, view: &mut View<'_>, extent: UnitId) -> Place {
        self.inner.first_touch(view, extent)
    }
    fn on_access(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        let as_read = Access {
            write: false,
            ..*access
        };
        let miss = access.copy.is_none();
        match (self.mode, access.write) {
            (PassThrough, _) | (ReadOnly, true) => {}
            (WriteOnly, false) if miss => self.pass_access(view, access, wanted),
            (WriteThroughUpdate | WriteAround, true) if miss => {
                self.pass_access(view, &as_read, wanted);
            }
            (WriteThroughUpdate | WriteThroughAll | WriteAround, true) => {
                self.inner.on_access(view, &as_read, wanted);
            }
            _ => self.inner.on_access(view, access, wanted),
        }
    }
    fn write_to(&mut self, view: &mut View<'_>, access: &Access) -> WriteTo {
        match self.mode {
            WriteThroughUpdate | WriteThroughAll => WriteTo::Both,
            WriteAround | ReadOnly | PassThrough => WriteTo::Home,
            // A preset that writes back decides itself (it may limit dirty data). For a preset that writes through, the mode decides.
            WriteBack | WriteOnly if self.inner.writes_through() => WriteTo::Copy,
            WriteBack | WriteOnly => self.inner.write_to(view, access),
        }
    }
    fn set(&mut self, key: &str, value: f64) -> Result<(), ParamError> {
        self.inner.set(key, value)
    }
    fn set_name(&mut self, key: &str, name: &str) -> Result<(), ParamError> {
        if key != "write-mode" {
            return self.inner.set_name(key, name);
        }
        self.mode = WriteMode::parse(name)?;
        Ok(())
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        self.inner.params()
    }
    fn names(&self) -> Vec<(&'static str, String)> {
        let mut v = self.inner.names();
        v.push(("write-mode", String::from(self.mode.name())));
        v
    }
    fn explain(&self, view: &View<'_>, extent: UnitId) -> String {
        self.inner.explain(view, extent)
    }
}

/// Description of the valid values of `write-mode`.
pub const RANGE: &str = "one of write-back, write-through-update, write-through-all, write-around, write-only, read-only, pass-through";
