//! Requests: reads, writes, discards, from their arrival to their reply.

pub(in crate::engine) mod classes;
pub(in crate::engine) mod data;
pub(in crate::engine) mod discard;
pub(in crate::engine) mod edges;
pub(in crate::engine) mod gate;
pub(in crate::engine) mod replicas;
