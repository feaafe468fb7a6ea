//! What the kernel itself writes (`--passthrough`), for decisions and for `status`.

use isotherm_answers::files::KernelWrites as Figures;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The files of one tier that the kernel itself may write.
#[derive(Debug, Default)]
pub(crate) struct KernelWrites {
    handles: AtomicU32,
    asks: AtomicBool,
    asking: AtomicBool,
    waiting: AtomicU32,
}

impl KernelWrites {
    /// One more handle with which the kernel may write.
    pub(crate) fn opened(&self) {
        self.handles.fetch_add(1, Ordering::SeqCst);
    }
    /// One handle less.
    pub(crate) fn closed(&self) {
        self.handles.fetch_sub(1, Ordering::SeqCst);
    }
    /// Number of handles with which the kernel may write.
    pub(crate) fn handles(&self) -> u32 {
        self.handles.load(Ordering::SeqCst)
    }
    /// Whether the kernel can be told to ask before it writes there.
    pub(crate) fn set_asks(&self, asks: bool) {
        self.asks.store(asks, Ordering::Relaxed);
    }
    /// Whether it asks now, because space is short.
    pub(crate) fn set_asking(&self, asking: bool) {
        self.asking.store(asking, Ordering::Relaxed);
    }
    /// Number of writes that wait for space.
    pub(crate) fn set_waiting(&self, waiting: usize) {
        let waiting = u32::try_from(waiting).unwrap_or(u32::MAX);
        self.waiting.store(waiting, Ordering::Relaxed);
    }
    /// The figures, for `status`.
    pub(crate) fn figures(&self) -> Figures {
        let (asks, asking) = (&self.asks, &self.asking);
        let asks = asks.load(Ordering::Relaxed);
        Figures {
            handles: self.handles(),
            asks,
            asking: asks && asking.load(Ordering::Relaxed),
            waiting: self.waiting.load(Ordering::Relaxed),
        }
    }
}
