//! Begins and ends the use of files.

use super::{Backing, Live, Look, Need, OpenFiles, State};
use crate::catalogue::NodeId;
use crate::copies::{Copies, OpenCopy};
use crate::mutants::{Mutant, broken};
use crate::names::Names;
use crate::sync::{lock, write_lock};
use crate::tiers::{Kind, Tiers};
use crate::tree::{Facts, Tier};
use rustix::io::Errno;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The values whose locks come with or after that of a file in use.
#[derive(Clone, Copy)]
pub(crate) struct Below<'a> {
    pub(crate) names: &'a Names,
    pub(crate) copies: &'a Copies,
    pub(crate) tiers: &'a Tiers,
}

/// A file that is open at its home, its copy, and its attributes.
type AtHome = (Backing, Option<Arc<OpenCopy>>, Facts);

/// The result of an attempt to open a file in use.
enum Opened {
    /// It was open.
    Before,
    /// It is open now, with these attributes.
    Now(Facts),
    /// It is not at its path: it may be renamed at this moment.
    Again,
}

impl OpenFiles {
    /// The current attributes of a node.
    pub(crate) fn facts(&self, names: &Names, tiers: &Tiers, node: NodeId) -> Result<Facts, Errno> {
        let (known, is_file) = {
            let cat = names.cat();
            let n = cat.get(node).ok_or(Errno::NOENT)?;
            (n.facts, n.is_file())
        };
        if is_file && let Some(live) = self.get(node) {
            let now = match live.look() {
                Look::Held(held) => match held.backing() {
                    Ok(backing) => self.facts_at(names, tiers, &live, backing)?,
                    Err(_) => known,
                },
                Look::Frozen(facts) => facts,
                // The known attributes are right.
                Look::Opening => known,
            };
            return Ok(Facts {
                nlink: known.nlink,
                ..now
            });
        }
        Ok(known)
    }
    /// The attributes of a file in use. If the server of its tier does not answer, they are those that the kernel knows.
    fn facts_at(
        &self,
        names: &Names,
        tiers: &Tiers,
        live: &Live,
        backing: &Backing,
    ) -> Result<Facts, Errno> {
        if tiers.would_wait(backing.tier) {
            // Times can be older than the last write, so the kernel must not keep what it gets now.
            self.tell_kernel(names.shown_number(live.node));
            return live.cached_facts_of(backing);
        }
        let local = tiers.root(backing.tier).local;
        let _wait = (!local).then(|| tiers.waits_for(backing.tier, live.node, Kind::Attributes));
        live.facts_of(backing)
    }
    /// Begins to use a file and opens it unless it is open as needed. Ends with [`OpenFiles::release`]. Returns also the attributes if this call
    /// opened it.
    pub(crate) fn live_for(
        &self,
        below: Below<'_>,
        node: NodeId,
        need: Need,
    ) -> Result<(Arc<Live>, Option<Facts>), Errno> {
        let live = self.begin_use(below.names, node).ok_or(Errno::NOENT)?;
        match self.open_for(below, &live, need) {
            Ok(now) => Ok((live, now)),
            Err(e) => {
                self.release(below, &live);
                Err(e)
            }
        }
    }
    /// The file in use, with one more user; `None` if there is no such node.
    fn begin_use(&self, names: &Names, node: NodeId) -> Option<Arc<Live>> {
        if let Some(live) = self.lock().get(&node) {
            live.users.fetch_add(1, Ordering::SeqCst);
            return Some(Arc::clone(live));
        }
        // The node must exist as long as it is in the table. The catalogue may be locked by a thread that waits for the table, so the table
        // is not locked here.
        if !names.cat_mut().hold(node) {
            return None;
        }
        let mut all = self.lock();
        let (live, held) = match all.entry(node) {
            Entry::Occupied(there) => (Arc::clone(there.get()), true),
            Entry::Vacant(free) => (Arc::clone(free.insert(Arc::new(Live::new(node)))), false),
        };
        live.users.fetch_add(1, Ordering::SeqCst);
        drop(all);
        if held {
            names.cat_mut().let_go(node);
        }
        Some(live)
    }
    /// Opens a file in use, unless it is already open as needed. Returns the attributes if this call opened it.
    fn open_for(&self, below: Below<'_>, live: &Live, need: Need) -> Result<Option<Facts>, Errno> {
        for last in [false, false, true] {
            if live.hold().0.is_open(need) {
                return Ok(None);
            }
            // A rename may happen while the file is opened. In the last attempt, the file is claimed to prevent that. This comes before the
            // lock of the descriptor.
            let claim = || {
                below
                    .names
                    .claim_anyway(|cat, all| all.node(cat, live.node))
            };
            let _claim = last.then(claim);
            match self.open_once(below, live, need, last)? {
                Opened::Before => return Ok(None),
                Opened::Now(facts) => return Ok(Some(facts)),
                Opened::Again => {}
            }
        }
        Err(Errno::STALE)
    }
    /// Opens a file in use at its home if only its copy is open.
    pub(crate) fn open_home(&self, below: Below<'_>, live: &Live) -> Result<(), Errno> {
        self.open_for(below, live, Need::Home).map(|_| ())
    }
    /// As [`Store::open_home`], for a file in use whose name is about to be removed by the caller, who has claimed the file.
    pub(crate) fn open_home_before_removal(&self, below: Below<'_>, node: NodeId) {
        if let Some(live) = self.get(node)
            && live.hold().backing().is_err()
            && !broken(Mutant::ForgetSleeper)
        {
            // If it cannot be opened, its users can still read the copy.
            let _ = self.open_once(below, &live, Need::Home, true);
        }
    }
    /// One attempt to open a file in use; with `last`, the file is claimed.
    fn open_once(
        &self,
        below: Below<'_>,
        live: &Live,
        need: Need,
        last: bool,
    ) -> Result<Opened, Errno> {
        let mut state = write_lock(&live.state);
        if state.is_open(need) {
            return Ok(Opened::Before);
        }
        if need == Need::Data
            && let Some((copy, known)) = open_alone(below, live.node, false)
        {
            state.copy = Some(copy);
            return Ok(Opened::Now(known));
        }
        let asleep = state.copy.is_some();
        let known = asleep.then(|| below.names.cat().get(live.node).map(|n| n.facts));
        let (home, copy, facts) = match open_backing(self, below, live.node, last) {
            Ok(Some(opened)) => opened,
            Ok(None) => return Ok(Opened::Again),
            // Its disk does not answer: read the copy.
            Err(Errno::IO) if need == Need::Data => {
                let (copy, known) = open_alone(below, live.node, true).ok_or(Errno::IO)?;
                state.copy = Some(copy);
                return Ok(Opened::Now(known));
            }
            Err(e) => return Err(e),
        };
        keep_shown_ctime(below.names, live, &facts);
        if let Some(Some(known)) = known {
            self.compare_on_open(below, live.node, &known, facts);
        }
        // Before anybody can change the file.
        live.opened.store(true, Ordering::SeqCst);
        let ranges = &below.copies.ranges;
        *state = State {
            ranged: ranges.opened(below.tiers, live.node, home.tier, &facts),
            home: Some(home),
            copy,
        };
        Ok(Opened::Now(live.with_shown_ctime(facts)))
    }
    /// Begins to use a file that was just created and is already open. Another thread that saw its name (the mover, another user) may have
    /// opened it first. Then all share that descriptor, because only that one follows the file when it moves.
    pub(crate) fn live_new(&self, names: &Names, node: NodeId, backing: Backing) -> Arc<Live> {
        let live = self.begin_use(names, node).unwrap_or_else(|| {
            // It was removed already.
            let live = Live::new(node);
            live.users.store(1, Ordering::SeqCst);
            Arc::new(live)
        });
        let mut state = write_lock(&live.state);
        if state.home.is_none() {
            live.opened.store(true, Ordering::SeqCst);
            state.home = Some(backing);
        }
        drop(state);
        live
    }
    /// Ends a use of a file. After the last use its attributes go to the catalogue.
    ///
    /// They are read while the file is still in use and the table is not locked: a tier that does not answer stops only the threads that
    /// use its own files.
    pub(crate) fn release(&self, below: Below<'_>, live: &Arc<Live>) {
        while !self.end_use(below.names, live) {
            tell_catalogue(below, live);
        }
    }
    /// Ends a use of a file, unless it is the last one and the catalogue does not have its attributes yet. Returns whether it ended.
    fn end_use(&self, names: &Names, live: &Arc<Live>) -> bool {
        let mut all = self.lock();
        let last = live.users.load(Ordering::SeqCst) == 1;
        // What was changed before this line is among the attributes that are read next.
        if last && live.used.swap(false, Ordering::SeqCst) {
            return false;
        }
        live.users.fetch_sub(1, Ordering::SeqCst);
        if last && all.get(&live.node).is_some_and(|l| Arc::ptr_eq(l, live)) {
            all.remove(&live.node);
            drop(all);
            names.cat_mut().let_go(live.node);
        }
        true
    }
    /// What the catalogue has as this node is another file now, which others have put there. The kernel forgets the former one.
    pub(crate) fn now_another(
        &self,
        names: &Names,
        tiers: &Tiers,
        (node, tier, path): (NodeId, Tier, &[u8]),
        now: Facts,
    ) {
        let former = names.shown_number(node);
        names.now_another(tiers, node, tier, path, now);
        self.tell_kernel(former);
        self.tell_kernel_of_data(former);
    }
    /// Called when the file at home is opened after only its copy was open: if the file was changed directly on its tier, this is reported,
    /// and the new attributes are stored.
    fn compare_on_open(&self, below: Below<'_>, node: NodeId, known: &Facts, now: Facts) {
        let Below { names, tiers, .. } = below;
        if known.version() == now.version() {
            return;
        }
        let path = names.cat().shown_path(node);
        tiers.say(&format!(
            "{path}: changed underneath while its copy was read; what is there now is shown"
        ));
        names.seen(tiers, node, now);
        self.tell_kernel_of_data(names.shown_number(node));
    }
}

/// The copy of a file if it may be read without opening the file at home, with the attributes that the catalogue has of the file.
fn open_alone(below: Below<'_>, node: NodeId, dead: bool) -> Option<(Arc<OpenCopy>, Facts)> {
    below.copies.held(node)?;
    let known = below.names.known(node).ok()?;
    let home = (known.tier, &known.path[..], &known.facts);
    let copy = below.copies.open_alone(below.tiers, node, home, dead)?;
    Some((copy, known.facts))
}

/// Reads the attributes of a file that was used and stores them, and drops its copy if somebody changed the file at home directly.
fn tell_catalogue(below: Below<'_>, live: &Live) {
    let held = live.hold();
    // If only the copy was open, the file at home was not accessed, and there is nothing to compare.
    let Ok(home) = held.backing() else { return };
    let copy = held.copy();
    // The attributes are compared with those at the last change of the copy, so there must be no change in between.
    let _turn = (copy.is_some() || held.is_ranged()).then(|| lock(&live.update));
    let facts = below
        .names
        .learn(below.tiers, live.node, || live.facts_of(home))
        .ok();
    if let Some(copy) = copy {
        below
            .copies
            .closed(below.tiers, live.node, copy, facts.as_ref());
    }
    if held.is_ranged() {
        below.copies.ranges.closed(live.node, facts.as_ref());
    }
}

/// If only the change time is newer than in the catalogue, a move changed it: the change time from before the move is shown again.
fn keep_shown_ctime(names: &Names, live: &Live, now: &Facts) {
    let known = names.cat().get(live.node).map(|n| n.facts);
    if let Some(known) = known
        && known.version() == now.version()
        && known.ctime < now.ctime
    {
        live.show_ctime(now.ctime, known.ctime);
    }
}

/// Opens a file at its home. `None` if it is not there under its name: it may be renamed at this moment. With `last`, it is claimed.
fn open_backing(
    files: &OpenFiles,
    below: Below<'_>,
    node: NodeId,
    last: bool,
) -> Result<Option<AtHome>, Errno> {
    let known = below.names.known(node)?;
    let (path, tier, id) = (&known.path, known.tier, known.facts.id);
    below.tiers.require_present(tier, path)?;
    let root = below.tiers.root(tier);
    let wait = below.tiers.waits_for(tier, node, Kind::Open);
    let opened = root.open_data(path);
    drop(wait);
    // If the file lost this name meanwhile, another file may have got it, and even the same inode.
    if !last {
        let now = below.names.known(node)?;
        if (&now.path, now.tier, now.facts.id) != (path, tier, id) {
            return Ok(None);
        }
    }
    match opened {
        Ok((fd, writable, f)) if f.id == id => {
            // The client of NFS 3 opens files without its server.
            if root.local {
                below.tiers.device_answered(tier);
            }
            let copy = below.copies.open(below.tiers, node, &f);
            let backing = Backing { tier, fd, writable };
            return Ok(Some((backing, copy, f)));
        }
        Ok((fd, writable, f)) if last => {
            below.tiers.say(&format!(
                "{}: replaced underneath on {}; what is there now is shown",
                String::from_utf8_lossy(path),
                below.tiers.tier_name(tier)
            ));
            files.now_another(below.names, below.tiers, (node, tier, path), f);
            below.copies.forget(node);
            below.copies.ranges.forget(node);
            let backing = Backing { tier, fd, writable };
            return Ok(Some((backing, None, f)));
        }
        Err(e) if last => {
            // This is no error of the tier.
            if let Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::STALE = e {
                below.tiers.say(&format!(
                    "{}: taken away underneath on {}, or something else is there",
                    String::from_utf8_lossy(path),
                    below.tiers.tier_name(tier)
                ));
                return Err(Errno::STALE);
            }
            return Err(below.tiers.device_error(tier, path, e));
        }
        _ => {}
    }
    Ok(None)
}
