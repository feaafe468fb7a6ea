//! Copies of files on the fastest tier: how they are made (`fetch.rs` has the steps), whole ones and heads.

use super::driver::Stopped;
use crate::catalogue::NodeId;
use crate::copies::Copied;
use crate::disk::{Disk, facts_of};
use crate::fetch::Fetch;
use crate::live::Live;
use crate::mover::{Answer, Call, Outcome, Step, Why, carry_out};
use crate::store::Store;
use crate::tiers::Kind;
use crate::tree::{Id, Tier, copy_at, wall};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// A file gets a head only if it was last changed at least this number of seconds ago.
const SETTLED: i64 = 60;

impl Store {
    /// Copies a file to the fastest tier. The outcome is `Done` also if it is there already.
    pub fn fetch(&self, node: NodeId) -> Outcome {
        self.exclusively(node, |live| self.drive_fetch(live, None))
    }
    /// The identity, tier, path and space of a file that can get a copy, or a head; else the outcome of the attempt.
    fn copyable(
        &self,
        node: NodeId,
        head: Option<u64>,
    ) -> Result<(Id, Tier, Vec<u8>, u64), Outcome> {
        let known = self.names.known(node);
        let known = known.map_err(|_| Outcome::Refused(Why::Gone))?;
        let (from, needs) = (known.tier, known.facts.needs());
        let done = match head {
            None => !self.copies.on || self.copies.has(node),
            Some(_) => self.copies.held(node).is_some(),
        };
        let needs = needs.min(head.unwrap_or(u64::MAX));
        if from == 0 || done {
            Err(Outcome::Done)
        } else if self.is_absent(from) {
            Err(Outcome::Refused(Why::Missing))
        } else if self.room(0).0 < needs {
            Err(Outcome::Refused(Why::Full))
        } else {
            Ok((known.facts.id, from, known.path, needs))
        }
    }
    /// Copies a file, or its first `head` bytes.
    fn drive_fetch(&self, live: &Arc<Live>, head: Option<u64>) -> Outcome {
        let node = live.node;
        let (id, from, path, needs) = match self.copyable(node, head) {
            Ok(found) => found,
            Err(outcome) => return outcome,
        };
        if head.is_none() {
            self.names.used_by(&self.tiers, node, 0);
        }
        let number = self.names.number();
        let mut disk = Disk::new(self.roots.clone());
        disk.copy_from(live.hold().fd().ok(), id);
        let mut fetch = Fetch::new(number, id, path, from).head(head.unwrap_or(u64::MAX));
        let mut stopped = Stopped::new(self, live, copy_at(number));
        let mut step = fetch.start();
        loop {
            let wait = self.waits_for(from, node, Kind::Move);
            let answer = match step {
                Step::Call(call) => {
                    stopped.note(&call);
                    if matches!(call, Call::Unlink(..)) {
                        stopped.thaw();
                    }
                    let answer = carry_out(&mut disk, &call);
                    stopped.count(&disk, &call, &answer);
                    answer
                }
                Step::Freeze => stopped.freeze(&disk),
                Step::Swap(_) => {
                    if let (Some(state), Some(fd)) = (&mut stopped.state, stopped.copy.take())
                        && let Some(home) = &state.state.home
                    {
                        let bytes = facts_of(&fd).map_or(needs, |f| f.blocks * 512);
                        // If they cannot be read, the default values will not match the file later, and the copy will be dropped.
                        let version = facts_of(&home.fd).map(|f| f.version());
                        let copied = Copied::new(number, bytes, version.unwrap_or_default(), head);
                        state.state.copy = Some(copied.opened(fd));
                        self.copies.made(node, copied, from);
                    }
                    Ok(Answer::Done)
                }
                Step::Thaw => Ok(Answer::Done),
                Step::End(outcome) => {
                    stopped.thaw();
                    // A head that a whole copy replaced.
                    self.copies.sweep(&self.tiers);
                    self.room_changed(0);
                    return outcome;
                }
            };
            drop(wait);
            step = fetch.next(answer);
        }
    }
    /// Makes the heads that were wanted a short time ago, until `until`.
    pub fn make_heads(&self, until: Instant) {
        for node in self.copies.heads.take_wanted() {
            if self.placement.is_stopped() || Instant::now() >= until {
                break;
            }
            let settled = {
                let cat = self.cat();
                let known = cat.get(node).filter(|n| n.is_file() && n.links() > 0);
                known.is_some_and(|n| {
                    let local = self.root(n.tier).local;
                    // A time in the future says nothing about the last change.
                    local && !(0..SETTLED).contains(&(wall() - n.facts.mtime.sec))
                })
            };
            if settled {
                self.fetch_head(node);
            }
        }
    }
    /// Copies the head of a file to the fastest tier. The outcome is `Done` also if the file is there or has a copy already.
    pub fn fetch_head(&self, node: NodeId) -> Outcome {
        let heads = &self.copies.heads;
        if heads.bytes == 0 {
            return Outcome::Done;
        }
        // Only other heads are dropped to make room for a head.
        let most = heads.most(self.room(0).1);
        if heads.bytes > most || self.is_full(0) {
            return Outcome::Refused(Why::Full);
        }
        while heads.used.load(Ordering::Relaxed) + heads.bytes > most {
            let Some(oldest) = self.copies.oldest(true) else {
                break;
            };
            self.drop_copy(oldest);
        }
        self.exclusively(node, |live| self.drive_fetch(live, Some(heads.bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A copy that is being made compares the file with its tier, which may not answer. The attributes are those of that moment.
    #[test]
    fn attributes_are_answered_while_a_copy_is_compared() {
        let dir = tempfile::tempdir().unwrap();
        let (store, node, live) = crate::store::with_a_file(dir.path());
        store.write(&live, 0, b"12345", false).unwrap();
        let disk = Disk::new(store.roots.clone());
        let (tell, hear) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let mut stopped = Stopped::new(&store, &live, copy_at(1));
            // There is no copy yet; the file is frozen all the same.
            assert!(stopped.freeze(&disk).is_err());
            let store = &store;
            scope.spawn(move || tell.send(store.facts(node).map(|f| f.size)).unwrap());
            let size = hear.recv_timeout(std::time::Duration::from_secs(30));
            stopped.thaw();
            assert_eq!(size, Ok(Ok(5)));
        });
        store.release(&live);
    }
}
