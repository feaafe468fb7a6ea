//! Shows a volume's requests to a recording and to the shadows, without delaying them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use isotherm_classify::ClassMap;
use isotherm_live::port::{Completion, IoRequest, Layer, Port};

use crate::entry::{Entry, EntryOp};
use crate::what_if::Shadowing;

/// Maximum number of requests that wait for the recording client, about 2 MB. If it falls further behind, requests are lost and counted.
const QUEUE: usize = 65_536;

/// A port whose requests can be recorded, which costs one load per request while there is no recording, and that shadows see
/// (`what_if.rs`).
pub struct Tap {
    inner: Arc<dyn Port>,
    classes: Arc<ClassMap>,
    listening: Arc<Listening>,
    shadows: OnceLock<Arc<Shadowing>>,
}

#[derive(Default)]
struct Listening {
    on: AtomicBool,
    session: Mutex<Option<Session>>,
    lost: AtomicU64,
}

#[derive(Clone)]
struct Session {
    begun: Instant,
    queue: SyncSender<Entry>,
}

impl Listening {
    fn session(&self) -> std::sync::MutexGuard<'_, Option<Session>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn send(&self, session: &Session, entry: Entry) {
        match session.queue.try_send(entry) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => {
                self.lost.fetch_add(1, Ordering::Relaxed);
            }
            Err(TrySendError::Disconnected(_)) => {
                // The client has left. A later client has its own queue, so at worst this clears the flag once too often.
                self.on.store(false, Ordering::Relaxed);
            }
        }
    }
}

impl Tap {
    /// Wraps a port. If a request carries no class, `classes` is asked.
    pub fn new(inner: Arc<dyn Port>, classes: Arc<ClassMap>) -> Tap {
        Tap {
            inner,
            classes,
            listening: Arc::default(),
            shadows: OnceLock::new(),
        }
    }

    /// Shows every request to these shadows from now on. Only the first call has an effect.
    pub fn watch(&self, shadows: Arc<Shadowing>) {
        let _ = self.shadows.set(shadows);
    }

    /// The shadows that see the requests.
    pub fn shadowing(&self) -> Option<&Arc<Shadowing>> {
        self.shadows.get()
    }

    /// Begins a recording, which ends when the receiver is dropped.
    ///
    /// # Errors
    /// There is already a recording.
    pub fn listen(&self) -> Result<Receiver<Entry>, String> {
        let mut session = self.listening.session();
        // A client that has left is detected by sending to it.
        if let Some(s) = session.as_ref() {
            let lost = self.listening.lost.load(Ordering::Relaxed);
            let probe = Entry {
                time_ns: 0,
                latency_ns: 0,
                offset: lost,
                len: 0,
                op: EntryOp::Lost,
                class: 0,
                fua: false,
            };
            if !matches!(s.queue.try_send(probe), Err(TrySendError::Disconnected(_))) {
                return Err(
                    "the volume is being recorded already: stop the other recording first".into(),
                );
            }
        }
        let (queue, receiver) = sync_channel(QUEUE);
        *session = Some(Session {
            begun: Instant::now(),
            queue,
        });
        self.listening.lost.store(0, Ordering::Relaxed);
        self.listening.on.store(true, Ordering::Relaxed);
        Ok(receiver)
    }

    /// Ends the recording, if there is one: its receiver ends after the entries that were sent.
    pub fn end(&self) {
        self.listening.on.store(false, Ordering::Relaxed);
        let session = self.listening.session().take();
        if let Some(s) = session {
            let lost = self.lost();
            let last = Entry {
                time_ns: 0,
                latency_ns: 0,
                offset: lost,
                len: 0,
                op: EntryOp::Lost,
                class: 0,
                fua: false,
            };
            // If the queue is full, this entry is lost, too. The recorder then sees fewer losses than there were.
            let _ = s.queue.try_send(last);
        }
    }

    /// Requests lost since the recording began.
    pub fn lost(&self) -> u64 {
        self.listening.lost.load(Ordering::Relaxed)
    }
}

impl Layer for Tap {
    fn below(&self) -> &dyn Port {
        &*self.inner
    }

    fn submit(&self, request: IoRequest, done: Completion) {
        if let Some(shadows) = self.shadows.get() {
            shadows.saw(&request, &self.classes);
        }
        let session = if self.listening.on.load(Ordering::Relaxed) {
            self.listening.session().clone()
        } else {
            None
        };
        let Some(session) = session else {
            return self.inner.submit(request, done);
        };
        let IoRequest {
            op,
            offset,
            len,
            fua,
            class,
            ..
        } = request;
        let known = if class == 0 && len > 0 {
            self.classes.of(offset, len).mark.class()
        } else {
            class & 63
        };
        let arrived = Instant::now();
        let listening = Arc::clone(&self.listening);
        let timed = Completion::new(move |result, buf| {
            let entry = Entry {
                time_ns: arrived.duration_since(session.begun).as_nanos() as u64,
                latency_ns: arrived.elapsed().as_nanos() as u64,
                offset,
                len,
                op: EntryOp::of(op),
                class: known,
                fua,
            };
            // The reply goes first, so that the recording does not add to the latency that it measures.
            done.call(result, buf);
            listening.send(&session, entry);
        });
        self.inner.submit(request, timed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::RequestOp;
    use isotherm_live::port::Buffer;

    /// Completes at once.
    struct Instantly;

    impl Port for Instantly {
        fn volume_bytes(&self) -> u64 {
            1 << 20
        }
        fn block_bytes(&self) -> u32 {
            512
        }
        fn read_only(&self) -> bool {
            false
        }
        fn buffer(&self, offset: u64, len: u32) -> Buffer {
            Buffer::new(offset, len, 512)
        }
        fn submit(&self, request: IoRequest, done: Completion) {
            done.call(Ok(()), request.buffer);
        }
        fn block_status(&self, _: u64, len: u32, _: usize) -> Vec<(u32, bool)> {
            vec![(len, true)]
        }
    }

    fn write(tap: &Tap, offset: u64) {
        let request = IoRequest::new(RequestOp::Write, offset, 512)
            .with_fua(true)
            .in_class(7);
        Port::submit(tap, request, Completion::new(|_, _| {}));
    }

    #[test]
    fn requests_are_recorded_only_during_a_recording() {
        let tap = Tap::new(Arc::new(Instantly), Arc::new(ClassMap::new(1 << 20)));
        write(&tap, 0);
        let heard = tap.listen().expect("the first");
        assert!(tap.listen().is_err());
        write(&tap, 512);
        write(&tap, 1024);
        let entries: Vec<Entry> = heard.try_iter().filter(|e| e.op != EntryOp::Lost).collect();
        assert_eq!(
            entries
                .iter()
                .map(|e| (e.offset, e.len, e.class, e.fua))
                .collect::<Vec<_>>(),
            [(512, 512, 7, true), (1024, 512, 7, true)]
        );
        drop(heard);
        write(&tap, 0);
        assert!(
            tap.listen().is_ok(),
            "a recorder that left does not keep the place"
        );
    }

    #[test]
    fn a_full_queue_loses_and_counts_but_never_blocks() {
        let tap = Tap::new(Arc::new(Instantly), Arc::new(ClassMap::new(1 << 20)));
        let heard = tap.listen().expect("the first");
        for i in 0..QUEUE as u64 + 10 {
            write(&tap, i * 512);
        }
        assert_eq!(tap.lost(), 10);
        assert_eq!(heard.try_iter().count(), QUEUE);
        tap.end();
        let last = heard.recv().expect("the count of what was lost");
        assert_eq!((last.op, last.offset), (EntryOp::Lost, 10));
        assert!(heard.recv().is_err());
    }
}
