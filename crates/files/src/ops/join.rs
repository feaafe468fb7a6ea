//! A directory joins the slowest tier while the tree is mounted (`files disk add`).
//!
//! It is read first, which stops nobody. Then, while no change is in progress, its names are compared with those of the tree, and what it
//! holds is shown. A crash before the fast tier lists it leaves a directory that the next mount takes, or not, as it is named. After that,
//! each mount must name it.

use crate::access::Access;
use crate::catalogue::{Catalogue, Kind, NodeId, ROOT};
use crate::disk::Root;
use crate::identity;
use crate::layout::DISKS_MAX;
use crate::mutants::{Mutant, broken};
use crate::names::{Key, Names, Stage, Wanted};
use crate::settings::{Refused, refuse};
use crate::store::Store;
use crate::sync::lock;
use crate::tiers::Joining;
use crate::tree::{INTENTS, Tier};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum time for which a join waits for changes in progress.
const CHANGES_END: Duration = Duration::from_secs(5);

/// A name that others may have cached as absent, in its directory.
type NewName = (NodeId, Vec<u8>);

impl Store {
    /// The thread that moves files is to let a directory join: [`Store::join_ordered`].
    ///
    /// # Errors
    /// A message in words: the path does not begin at the root, or another directory joins.
    pub fn order_join(&self, path: &str) -> Result<(), Refused> {
        let path = PathBuf::from(path);
        if !path.is_absolute() {
            return refuse(format!("{}: give the whole path", path.display()));
        }
        let mut joining = lock(&self.tiers.joining);
        if let Some(other) = joining.as_ref().filter(|j| j.refused.is_none()) {
            return refuse(format!(
                "{}: cannot join: {} is joining: wait for that",
                path.display(),
                other.path.display()
            ));
        }
        *joining = Some(Joining {
            path,
            refused: None,
        });
        Ok(())
    }
    /// Lets the directory join that was ordered, if one was.
    pub fn join_ordered(&self) {
        let Some(path) = self.joins_now() else {
            return;
        };
        let refused = self.join(&path).err().map(|e| e.0);
        if let Some(why) = &refused {
            self.say(why);
        }
        let joining = refused.map(|why| Joining {
            path,
            refused: Some(why),
        });
        *lock(&self.tiers.joining) = joining;
    }
    /// The directory that is joining, if one is.
    pub(crate) fn joins_now(&self) -> Option<PathBuf> {
        let joining = lock(&self.tiers.joining);
        let joining = joining.as_ref().filter(|j| j.refused.is_none());
        joining.map(|j| j.path.clone())
    }
    /// A directory becomes the last disk of the slowest tier, with what it holds. Durable when this returns. Returns its number.
    ///
    /// # Errors
    /// A message in words: it cannot be a disk of this tree, or has a name that another disk has. Nothing is changed then.
    pub fn join(&self, path: &Path) -> Result<Tier, Refused> {
        let shown = path.display();
        self.may_grow(path)?;
        let opened = crate::tiers::open_further(path, &self.roots)?;
        let disks = 0..self.roots.len() as Tier;
        let ids: Vec<_> = disks.map(|d| self.tiers.id_of(d)).collect();
        let joins = identity::may_join(&self.roots, &ids, &opened.root)?;
        if opened.root.list(INTENTS).is_ok_and(|all| !all.is_empty()) {
            return refuse(format!(
                "{shown}: has changes that a crash left half done: mount it once with the tiers that it had"
            ));
        }
        let stopped = || self.placement.is_stopped();
        let there = crate::scan::read_new(&opened.root, &stopped)?;
        let everything = |_: &Catalogue, all: &mut Wanted| all.alone(Key::Path(ROOT));
        let all = (self.names).claim_within(Stage::First, CHANGES_END, everything);
        let all = all.ok_or_else(|| {
            Refused(format!(
                "{shown}: cannot join while changes of names wait for a disk: try again when `files status` shows none that waits"
            ))
        })?;
        self.must_not_clash(&there, &opened.root)?;
        identity::join(&self.roots, &joins, &opened.root, self.layout().tiers())?;
        opened.root.taken();
        let number = self.roots.len() as Tier;
        self.names.lasting().knows(number, &joins.id);
        let disk = (self.tiers.join(opened, joins.id))
            .map_err(|root| Refused(format!("{}: is one disk too many", root.path.display())))?;
        let (unlike, new) = self.show_disk(&there, disk);
        self.make_all_alike(&unlike);
        drop(all);
        let numbered = |(dir, name)| (self.names.shown_number(dir), name);
        let new = new.into_iter().map(numbered).collect();
        self.open.tell_kernel_of_names(new);
        if let Err(e) = self.names.save_of(&self.tiers, disk) {
            Names::say_unsaved(&self.tiers, e);
        }
        if let Err(e) = self.placement.grow(&self.tiers, &self.cat()) {
            self.say(&format!(
                "{shown}: the policy does not use its space until the next mount: {e}"
            ));
        }
        self.say_what_lacks(disk);
        Ok(disk)
    }
    /// Whether a further disk can join these at all.
    fn may_grow(&self, path: &Path) -> Result<(), Refused> {
        let shown = path.display();
        if self.is_stuck() {
            return refuse(format!(
                "{shown}: cannot join while a change is half done: mount again first (`files status` says why)"
            ));
        }
        if self.roots.len() >= DISKS_MAX {
            return refuse(format!(
                "{shown}: cannot join: there are {DISKS_MAX} directories already, the most that there can be"
            ));
        }
        if let Some(absent) = self.roots.iter().find(|r| r.absent) {
            return refuse(format!(
                "{shown}: cannot join while {} is missing: mount with all disks first",
                absent.path.display()
            ));
        }
        Ok(())
    }
    /// Refuses a disk of which a name is another file's in the tree.
    fn must_not_clash(&self, there: &Catalogue, root: &Root) -> Result<(), Refused> {
        let cat = self.cat();
        let clash = |(kind, path): (Kind, Vec<u8>)| {
            let known = cat.find(&path).and_then(|n| cat.get(n))?;
            let both = [known.kind, kind] == [Kind::Dir; 2];
            let shown = String::from_utf8_lossy(&path);
            let (on, and) = (self.tier_name(known.tier), root.path.display());
            (!both).then(|| format!("{shown} (on {on} and {and})"))
        };
        let all = there.all().filter(|n| n.0 != ROOT);
        let paths = all.flat_map(|(id, n)| there.paths(id).into_iter().map(move |p| (n.kind, p)));
        let clashes: Vec<String> = paths.filter_map(clash).collect();
        if clashes.is_empty() || broken(Mutant::JoinClashes) {
            return Ok(());
        }
        Err(crate::scan::clash(clashes))
    }
    /// The tree shows what a disk holds. Returns the directories that are not alike on all disks, and the names that are new in directories
    /// that were there before.
    fn show_disk(&self, there: &Catalogue, disk: Tier) -> (Vec<NodeId>, Vec<NewName>) {
        let numbers = self.numbers_of(there, disk);
        let mut cat = self.cat_mut();
        cat.now_on(ROOT, disk);
        let (mut unlike, mut new) = (Vec::new(), Vec::new());
        let mut known: HashMap<NodeId, NodeId> = HashMap::new();
        let mut todo = vec![(ROOT, ROOT, true)];
        while let Some((from, dir, was_there)) = todo.pop() {
            let list = there.list(from);
            for name in (0..).map_while(|at| list.get(at)) {
                let Some((id, n)) = there
                    .child(from, name)
                    .and_then(|id| Some((id, there.get(id)?)))
                else {
                    continue;
                };
                if let Some(node) = cat.child(dir, name) {
                    // A directory of other disks, too.
                    cat.now_on(node, disk);
                    let access = Access::of(&n.facts, there.xattrs(id));
                    let known = Access::known(&cat, node).filter(|known| *known != access);
                    if let Some(known) = known {
                        known.strictest(&access).enter(&mut cat, node);
                        unlike.push(node);
                    }
                    todo.push((id, node, true));
                    continue;
                }
                if was_there {
                    new.push((dir, name.to_vec()));
                }
                if let Some(node) = known.get(&id) {
                    cat.link(*node, dir, name);
                    cat.name_found(*node);
                    continue;
                }
                let body = n.body(1 << disk);
                let Some(node) = cat.add(dir, name, disk, n.facts, body) else {
                    continue;
                };
                cat.set_xattrs(node, there.xattrs(id).to_vec());
                cat.set_lasting(node, numbers.get(&id).copied().unwrap_or(0));
                known.insert(id, node);
                if n.kind == Kind::Dir {
                    todo.push((id, node, false));
                } else if n.is_file() {
                    self.count_bytes(disk, 0, n.facts.blocks);
                }
            }
        }
        (unlike, new)
    }
    /// The inode numbers of what a disk holds and the tree does not have yet, by its nodes there. A directory that the tree has keeps its number.
    fn numbers_of(&self, there: &Catalogue, disk: Tier) -> HashMap<NodeId, u64> {
        let (mut new, mut further) = (Vec::new(), Vec::new());
        {
            let cat = self.cat();
            for (id, n) in there.all().filter(|n| n.0 != ROOT) {
                let Some(path) = there.path(id) else { continue };
                let known = cat.find(&path).map(|known| cat.lasting(known));
                let found = (disk, n.facts.id, there.lasting(id), n.kind == Kind::Dir);
                match known {
                    Some(number) => further.push((disk, n.facts.id, number, true)),
                    None => new.push((id, found)),
                }
            }
        }
        let (nodes, found): (Vec<NodeId>, Vec<_>) = new.into_iter().unzip();
        let numbers = self.names.number_new(&self.tiers, found, further, disk);
        nodes.into_iter().zip(numbers).collect()
    }
}
