//! The event loop: waits for events, passes them to the engine, and carries out its effects.
//!
//! ```text
//!   ┌─► what is next? ─► World::wait ─► due? tick ─► each event: submit, complete, close ──┐
//!   │                                    └── World::carry_out, in order ──┘                │
//!   └──────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//! Live, lab and hostile worlds differ in their [`World`], and in their decisions between two turns: the next requests, a power loss, the
//! end of the trace. Everything is generic, so no virtual calls are needed for a request.
//!
//! Invariant: effects are carried out in the order in which the engine returned them, and before the next event.

use crate::engine::Engine;
use crate::io::{BufRef, DeviceOp, Effect, Event, IoError, OpId, Request, World};
use crate::units::Nanos;
use alloc::vec::Vec;

/// The receiver of events: the engine, or a recorder that passes the events on to it.
pub trait Host {
    /// The engine, for inspection.
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

/// The step after a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Another turn. If there is a time, the engine must be ticked then.
    Wait(Option<Nanos>),
    /// The loop ends.
    Stop,
}

/// The memory of the loop: lists that are empty between turns.
#[derive(Debug, Default)]
pub struct Loop {
    events: Vec<Event>,
    effects: Vec<Effect>,
}

impl Loop {
    /// A loop whose lists have memory for a busy volume.
    pub fn new() -> Loop {
        Loop {
            events: Vec::with_capacity(1024),
            effects: Vec::with_capacity(1024),
        }
    }

    /// Repeats turns. `between` is called before each turn. The loop ends when it returns [`Next::Stop`] or an error. It may call the
    /// engine itself.
    ///
    /// # Errors
    /// Those of `between`.
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

    /// Waits until something happens, at most until `limit`, and handles it. The engine is ticked at `wake`.
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
            // The CPU's cache misses for the map rows of these requests then overlap. On a large map these misses are most of the cost of a
            // request.
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

    /// Passes an event to the engine, and carries out its effects.
    #[inline]
    pub fn tell<H: Host, W: World>(&mut self, host: &mut H, world: &mut W, event: Event) {
        let now = world.now();
        self.call(host, world, |host, out| match event {
            Event::Arrived(r) => host.submit(now, r, out),
            Event::Finished { id, result } => host.complete(now, id, result, out),
            Event::Closed => host.close(now, out),
        });
    }

    /// Calls the engine, and carries out its effects.
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
                Effect::Keep { seq } => host.engine().kept_block(*seq),
                _ => &[],
            };
            world.carry_out(&effect, meta);
        }
    }
}
