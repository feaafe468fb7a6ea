//! Renames, replaces files with the new name, and moves over tiers.

use super::create::parent_of;
use crate::catalogue::{Catalogue, Kind, NodeId};
use crate::intent::Op;
use crate::names::{Creator, IfPresent};
use crate::store::Store;
use crate::tree::{At, Id, Tier, disks_in};
use rustix::fs::RenameFlags;
use rustix::io::Errno;

impl Store {
    /// Renames the file of the first directory and name to the second directory and name.
    ///
    /// # Errors
    /// As rename(2).
    pub fn rename(
        &self,
        (dir, name): (NodeId, &[u8]),
        (to, new_name): (NodeId, &[u8]),
        if_present: IfPresent,
    ) -> Result<(), Errno> {
        self.rename_leaving((dir, name), (to, new_name), if_present, None)
    }
    /// As [`Store::rename`]; `whiteout`: the old name becomes that of a whiteout of this user at the same time (`RENAME_WHITEOUT`). Nothing is
    /// exchanged then.
    ///
    /// # Errors
    /// As rename(2).
    pub fn rename_leaving(
        &self,
        (dir, name): (NodeId, &[u8]),
        (to, new_name): (NodeId, &[u8]),
        if_present: IfPresent,
        whiteout: Option<Creator>,
    ) -> Result<(), Errno> {
        let _claim = self.names.claim(|cat, all| {
            all.name_and_node(cat, dir, name);
            all.name_and_node(cat, to, new_name);
        })?;
        let exchange = if_present == IfPresent::Exchange;
        let plan = plan(&self.cat(), (dir, name), (to, new_name), if_present)?;
        let Some(plan) = plan else { return Ok(()) };
        let first = plan.on.trailing_zeros() as Tier;
        for tier in disks_in(plan.on | plan.over_on) {
            self.require_present(tier, &plan.from)?;
        }
        for tier in disks_in(plan.on) {
            self.ensure_dir(to, tier)?;
        }
        if exchange {
            for tier in disks_in(plan.over_on) {
                self.ensure_dir(dir, tier)?;
            }
        }
        self.check_expected(&plan)?;
        let replaced = plan.over.filter(|_| !exchange);
        let removed = plan.over_on & !plan.on;
        if let Some(over) = replaced.filter(|_| plan.is_dir) {
            self.rmdir_below(over, &plan.to, removed)?;
        }
        if let Some(over) = replaced {
            self.open.open_home_before_removal(self.below(), over);
        }
        let whiteout = whiteout.map(|by| self.make_whiteout(first, by));
        let whiteout = whiteout.transpose()?;
        let done = if plan.simple() && whiteout.is_none() {
            self.rename_once(first, &plan)
                .map_err(|e| self.device_error(first, &plan.from, e))
        } else {
            self.ops(&plan).and_then(|mut ops| {
                ops.extend(whiteout.as_ref().map(|w| w.step(&plan.from)));
                self.names.together(&self.tiers, &ops)
            })
        };
        if let Err(e) = done {
            if let Some(whiteout) = &whiteout {
                self.drop_whiteout(whiteout);
            }
            if let Some(over) = replaced.filter(|_| plan.is_dir) {
                self.dir_stays(over, removed);
            }
            return Err(e);
        }
        self.enter_rename((dir, name), (to, new_name), exchange)?;
        if let Some(whiteout) = &whiteout {
            self.enter_whiteout(whiteout, dir, name);
        }
        if plan.is_dir {
            self.say_what_stays(&plan.from, &plan.to);
        }
        self.refresh(plan.node);
        if let Some(over) = plan.over {
            self.refresh(over);
        }
        for d in [dir, to] {
            self.names.dir_changed(&self.tiers, d, first);
        }
        Ok(())
    }
    /// Enters a rename that was made into the catalogue.
    fn enter_rename(
        &self,
        (dir, name): (NodeId, &[u8]),
        (to, new_name): (NodeId, &[u8]),
        exchange: bool,
    ) -> Result<(), Errno> {
        let mut cat = self.cat_mut();
        if exchange {
            let (Some(a), Some(b)) = (cat.unlink(dir, name), cat.unlink(to, new_name)) else {
                return Err(Errno::IO);
            };
            cat.link(a, to, new_name);
            cat.link(b, dir, name);
        } else if let Some(over) = cat.rename(dir, name, to, new_name) {
            self.deleted(&mut cat, over);
        }
        Ok(())
    }
    /// Checks, as far as possible, that the renamed file and the replaced file are those of the catalogue. A file that somebody has put
    /// directly on a tier must not be replaced unnoticed.
    fn check_expected(&self, plan: &Plan) -> Result<(), Errno> {
        for (node, path, on) in [
            (Some(plan.node), &plan.from, plan.on),
            (plan.over, &plan.to, plan.over_on),
        ] {
            let Some(node) = node else { continue };
            if let Ok(known) = self.names.known(node)
                && known.kind != Kind::Dir
                && on & (1 << known.tier) != 0
            {
                self.check_unreplaced(node, known.tier, path, known.facts.id)?;
            }
        }
        // A name that is new on a tier must be free there.
        let back = u16::from(plan.exchange) * (plan.over_on & !plan.on);
        for (path, tiers) in [(&plan.to, plan.on & !plan.over_on), (&plan.from, back)] {
            for tier in disks_in(tiers) {
                let there = self.root(tier).stat(path);
                let there = there.map_err(|e| self.device_error(tier, path, e))?;
                if there.is_some() {
                    self.say(&format!(
                        "{}: made underneath on {}; nothing was renamed to it",
                        String::from_utf8_lossy(path),
                        self.tier_name(tier)
                    ));
                    return Err(Errno::EXIST);
                }
            }
        }
        Ok(())
    }
    fn rename_once(&self, tier: Tier, plan: &Plan) -> Result<(), Errno> {
        let (root, from, to) = (self.root(tier), &plan.from, &plan.to);
        self.copies.evicting(&self.tiers, tier, || match plan.over {
            None => root.rename_new(from, to),
            Some(_) if plan.exchange => root.rename(from, to, RenameFlags::EXCHANGE),
            Some(_) => root.rename(from, to, RenameFlags::empty()),
        })
    }
    fn ops(&self, plan: &Plan) -> Result<Vec<Op>, Errno> {
        let id = |tier: Tier, path: &[u8]| {
            let f = self.root(tier).stat(path)?;
            Ok::<Option<Id>, Errno>(f.map(|f| f.id))
        };
        let mut ops = Vec::new();
        let both = if plan.exchange {
            plan.on & plan.over_on
        } else {
            0
        };
        for tier in disks_in(plan.on) {
            let from = At::new(tier, &plan.from[..]);
            let Some(x) = id(tier, &plan.from)? else {
                continue;
            };
            ops.push(if both & (1 << tier) != 0 {
                Op::Exchange(x, from, plan.to.clone())
            } else {
                Op::Rename(x, from, plan.to.clone())
            });
        }
        for tier in disks_in(plan.over_on & !plan.on) {
            let at = At::new(tier, &plan.to[..]);
            let Some(x) = id(tier, &plan.to)? else {
                continue;
            };
            if plan.exchange {
                ops.push(Op::Rename(x, at, plan.from.clone()));
            } else if !plan.is_dir {
                ops.push(Op::Unlink(x, at));
            }
        }
        Ok(ops)
    }
}

/// The plan of a rename.
struct Plan {
    node: NodeId,
    over: Option<NodeId>,
    from: Vec<u8>,
    to: Vec<u8>,
    /// The tiers of the node that is renamed, one bit each.
    on: u16,
    /// The tiers of the node that has the new name, one bit each.
    over_on: u16,
    is_dir: bool,
    exchange: bool,
}

impl Plan {
    /// Whether one system call on one tier is enough.
    fn simple(&self) -> bool {
        let one = self.on.is_power_of_two();
        one && (self.over.is_none()
            || self.over_on & !self.on == 0
            || (self.is_dir && !self.exchange))
            && !(self.exchange && self.over_on != self.on)
    }
}

/// Checks a rename against the catalogue. `None`: nothing is to be done.
fn plan(
    cat: &Catalogue,
    (dir, name): (NodeId, &[u8]),
    (to, new_name): (NodeId, &[u8]),
    if_present: IfPresent,
) -> Result<Option<Plan>, Errno> {
    let exchange = if_present == IfPresent::Exchange;
    let from_place = parent_of(cat, dir, name)?;
    let to_place = parent_of(cat, to, new_name)?;
    let node = cat.child(dir, name).ok_or(Errno::NOENT)?;
    let over = cat.child(to, new_name);
    if if_present == IfPresent::Refuse && over.is_some() {
        return Err(Errno::EXIST);
    }
    if exchange && over.is_none() {
        return Err(Errno::NOENT);
    }
    if over == Some(node) {
        // Both are names of the same file, or the same name: nothing is to be done.
        return Ok(None);
    }
    let on = |id: NodeId| cat.get(id).map_or(0, |n| n.on());
    let is_dir = cat.get(node).is_some_and(|n| n.dir().is_some());
    if is_dir && cat.is_below(to, node) {
        return Err(Errno::INVAL);
    }
    if let Some(o) = over {
        let other = cat.get(o).and_then(|n| n.dir());
        if exchange {
            if other.is_some() && cat.is_below(dir, o) {
                return Err(Errno::INVAL);
            }
        } else {
            match other {
                Some(_) if !is_dir => return Err(Errno::ISDIR),
                None if is_dir => return Err(Errno::NOTDIR),
                Some(d) if !d.is_empty() => return Err(Errno::NOTEMPTY),
                _ => {}
            }
        }
    }
    Ok(Some(Plan {
        node,
        over,
        from: from_place.path,
        to: to_place.path,
        on: on(node),
        over_on: over.map_or(0, on),
        is_dir,
        exchange,
    }))
}
