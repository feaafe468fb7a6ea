//! The one loop: wait until something happens, tell the engine, carry out what it wants.
//!
//! ```text
//!   ┌─► what is next? ─► World::wait ─► time? tick ─► each event: submit, complete, close ─┐
//!   │                                    └── World::carry_out, in order ──┘                │
//!   └──────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//! Live, lab and hostile worlds differ in their [`World`] and in what they decide between two turns: who submits, when power
//! is lost, whether the trace has ended. Everything is generic: no call through a table on the way of a request.
//!
//! Never made false: effects are carried out in the order in which the engine wanted them, and before the next event.

use crate::engine::Engine;
use crate::io::{BufRef, DeviceOp, Effect, Event, IoError, OpId, Request, World};
use crate::units::Nanos;
use alloc::vec::Vec;

/// Who is told what happens: the engine, or somebody around it who writes down what it is told.
pub trait Host {
    /// The engine, to look at.
    fn engine(&self) -> &Engine;
    /// See [`Engine::submit`].
    fn submit(&mut self, now: Nanos, r: Request, out: &mut Vec<Effect>);
    /// See [`Engine::complete`].
    fn complete(
        &mut self,
        now: Nanos,
        id: OpId,
        result: Result<u32, IoError>,
        out: &mut Vec<Effect>,
    );
    /// See [`Engine::tick`].
    fn tick(&mut self, now: Nanos, out: &mut Vec<Effect>);
    /// See [`Engine::close`].
    fn close(&mut self, now: Nanos, out: &mut Vec<Effect>);
}

impl Host for Engine {
    fn engine(&self) -> &Engine {
        self
    }
    #[inline]
    fn submit(&mut self, now: Nanos, r: Request, out: &mut Vec<Effect>) {
        Engine::submit(self, now, r, out);
    }
    #[inline]
    fn complete(
        &mut self,
        now: Nanos,
        id: OpId,
        result: Result<u32, IoError>,
        out: &mut Vec<Effect>,
    ) {
        Engine::complete(self, now, id, result, out);
    }
    #[inline]
    fn tick(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        Engine::tick(self, now, out);
    }
    fn close(&mut self, now: Nanos, out: &mut Vec<Effect>) {
        Engine::close(self, now, out);
    }
}

/// What comes after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another one. The engine is to be ticked at that time, if at any.
    Wait(Option<Nanos>),
    /// Nothing.
    Stop,
}

/// The loop's own memory: lists that are empty between turns.
#[derive(Debug, Default)]
pub struct Loop {
    events: Vec<Event>,
    effects: Vec<Effect>,
}

impl Loop {
    /// With room for a busy volume.
    pub fn new() -> Loop {
        Loop {
            events: Vec::with_capacity(1024),
            effects: Vec::with_capacity(1024),
        }
    }

    /// Turns until `between`, which is asked before each, wants no more (or fails). It may tell the engine things of its own.
    ///
    /// # Errors
    /// As `between`.
    pub fn run<H: Host, W: World, E>(
        &mut self,
        host: &mut H,
        world: &mut W,
        mut between: impl FnMut(&mut Loop, &mut H, &mut W) -> Result<Next, E>,
    ) -> Result<(), E> {
        while let Next::Wait(wake) = between(self, host, world)? {
            self.turn(host, world, wake, None);
        }
        Ok(())
    }

    /// Wait until something happens, at most until `limit`, and do what follows from it. The engine is ticked once it is `wake`.
    #[inline]
    pub fn turn<H: Host, W: World>(
        &mut self,
        host: &mut H,
        world: &mut W,
        wake: Option<Nanos>,
        limit: Option<Nanos>,
    ) {
        let until = match (wake, limit) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let mut events = core::mem::take(&mut self.events);
        world.wait(until, &mut events);
        let now = world.now();
        if wake.is_some_and(|t| t <= now) {
            self.call(host, world, |host, out| host.tick(now, out));
        }
        if events.len() > 1 {
            // The misses of their rows of the map overlap: on a large map that is most of what a request costs.
            for event in &events {
                if let Event::Arrived(r) = event {
                    host.engine().expect(r.offset);
                }
            }
        }
        for event in events.drain(..) {
            self.tell(host, world, event);
        }
        self.events = events;
    }

    /// Tell the engine what happened, and carry out what it wants done.
    #[inline]
    pub fn tell<H: Host, W: World>(&mut self, host: &mut H, world: &mut W, event: Event) {
        let now = world.now();
        self.call(host, world, |host, out| match event {
            Event::Arrived(r) => host.submit(now, r, out),
            Event::Finished { id, result } => host.complete(now, id, result, out),
            Event::Closed => host.close(now, out),
        });
    }

    /// Call the engine, and carry out what it wants done.
    #[inline]
    pub fn call<H: Host, W: World>(
        &mut self,
        host: &mut H,
        world: &mut W,
        what: impl FnOnce(&mut H, &mut Vec<Effect>),
    ) {
        what(host, &mut self.effects);
        for effect in self.effects.drain(..) {
            let meta = match &effect {
                Effect::Start(
                    op @ DeviceOp {
                        buf: BufRef::Meta, ..
                    },
                ) => host.engine().meta(op),
                _ => &[],
            };
            world.carry_out(&effect, meta);
        }
    }
}
