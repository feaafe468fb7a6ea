//! Who may use a directory that lies on several disks: its owner, mode and access lists should be the same on all.
//!
//! They differ if directories were filled before they became disks of one tree, or after a crash in the middle of a change. Nobody may get
//! more rights in the tree than each of the disks gives, so the strictest holds, and is stored on all disks.

use crate::catalogue::{Catalogue, NodeId};
use crate::disk::Xattrs;
use crate::tree::{Facts, TYPE};

/// The beginning of the names of the attributes with POSIX access lists.
pub(crate) const ACLS: &[u8] = b"system.posix_acl";

/// The other attributes, which a directory should also have alike on all disks. Each system sets its own labels.
pub(crate) fn others(xattrs: &[(Vec<u8>, Vec<u8>)]) -> Xattrs {
    let own = |x: &&(Vec<u8>, Vec<u8>)| !x.0.starts_with(ACLS) && x.0 != b"security.selinux";
    let mut all: Xattrs = xattrs.iter().filter(own).cloned().collect();
    all.sort();
    all
}

/// What decides who may use a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    uid: u32,
    gid: u32,
    /// Without the type.
    mode: u32,
    acls: Xattrs,
}

impl std::fmt::Display for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Access { uid, gid, mode, .. } = self;
        write!(f, "mode {mode:04o}, owner {uid}:{gid}")
    }
}

impl Access {
    /// As these attributes say.
    pub(crate) fn of(facts: &Facts, xattrs: &[(Vec<u8>, Vec<u8>)]) -> Access {
        let acls = xattrs.iter().filter(|x| x.0.starts_with(ACLS));
        let mut acls: Xattrs = acls.cloned().collect();
        acls.sort();
        Access {
            uid: facts.uid,
            gid: facts.gid,
            mode: facts.mode & !TYPE,
            acls,
        }
    }
    /// As the catalogue says.
    pub(crate) fn known(cat: &Catalogue, node: NodeId) -> Option<Access> {
        Some(Access::of(&cat.get(node)?.facts, cat.xattrs(node)))
    }
    /// Access that gives nobody more than both of these do. If the owners differ, root owns it, because an owner can change the mode; if the
    /// access lists differ, only the owner may use it.
    pub(crate) fn strictest(&self, other: &Access) -> Access {
        let (same_uid, same_gid) = (self.uid == other.uid, self.gid == other.gid);
        let same_acls = self.acls == other.acls && (self.acls.is_empty() || same_uid && same_gid);
        let both = self.mode & other.mode;
        let (owner, mut group, mut others) = (both >> 6 & 7, both >> 3 & 7, both & 7);
        if !same_gid {
            // Who is in the one group is one of the others on the other disk.
            (group, others) = (group & others, group & others);
        }
        if !same_uid {
            (group, others) = (group & owner, others & owner);
        }
        if !same_acls {
            (group, others) = (0, 0);
        }
        // The sticky bit takes rights away.
        let special = both & 0o6000 | (self.mode | other.mode) & 0o1000;
        let is_root = rustix::process::geteuid().is_root();
        Access {
            uid: if same_uid || !is_root { self.uid } else { 0 },
            gid: self.gid,
            mode: special | owner << 6 | group << 3 | others,
            acls: if same_acls {
                self.acls.clone()
            } else {
                Vec::new()
            },
        }
    }
    /// Enters it into the catalogue.
    pub(crate) fn enter(&self, cat: &mut Catalogue, node: NodeId) {
        cat.update(node, |f| {
            (f.uid, f.gid) = (self.uid, self.gid);
            f.mode = f.mode & TYPE | self.mode;
        });
        let others = cat.xattrs(node).iter().filter(|x| !x.0.starts_with(ACLS));
        let all = others.chain(&self.acls).cloned().collect();
        cat.set_xattrs(node, all);
    }
    /// Owner, group and mode.
    pub(crate) fn parts(&self) -> (u32, u32, u32) {
        (self.uid, self.gid, self.mode)
    }
    /// Whether there are no access lists.
    pub(crate) fn has_no_acls(&self) -> bool {
        self.acls.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(uid: u32, gid: u32, mode: u32, acl: &str) -> Access {
        let xattrs = [(b"system.posix_acl_access".to_vec(), acl.into())];
        let facts = Facts {
            uid,
            gid,
            mode: mode | crate::tree::DIR,
            ..Facts::default()
        };
        Access::of(&facts, if acl.is_empty() { &[] } else { &xattrs })
    }

    /// The rights (read, write, search) of a user in a directory without access lists.
    fn rights(a: &Access, (uid, gid): (u32, u32)) -> u32 {
        match () {
            () if uid == a.uid => a.mode >> 6 & 7,
            () if gid == a.gid => a.mode >> 3 & 7,
            () => a.mode & 7,
        }
    }

    /// Nobody but root gets a right that one of the two does not give; the order in which disks are read does not matter for that.
    #[test]
    fn nobody_gets_more_than_each_gives() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: needs root");
            return;
        }
        let modes = [0o700, 0o755, 0o070, 0o007, 0o570, 0o707, 0o777, 0o000];
        let owners = [(0, 0), (1, 0), (1, 7), (2, 7), (2, 8)];
        let mut all = Vec::new();
        for mode in modes {
            all.extend(owners.map(|(u, g)| access(u, g, mode, "")));
        }
        for (a, b) in all.iter().flat_map(|a| all.iter().map(move |b| (a, b))) {
            let both = a.strictest(b);
            for user in [
                (1, 0),
                (1, 7),
                (1, 8),
                (2, 7),
                (2, 8),
                (3, 7),
                (3, 8),
                (3, 9),
            ] {
                let most = rights(a, user) & rights(b, user);
                assert_eq!(rights(&both, user) & !most, 0, "{a}, {b}: {both}: {user:?}");
            }
            let owner = if a.uid == b.uid { a.uid } else { 0 };
            assert_eq!(both.uid, owner);
            assert_eq!(
                both.strictest(b),
                both,
                "it does not change at the next mount"
            );
        }
        let same = access(1, 7, 0o750, "");
        assert_eq!(same.strictest(&same), same);
        let shared = access(1, 7, 0o1777, "").strictest(&access(1, 7, 0o755, ""));
        assert_eq!(shared.mode, 0o1755);
        let listed = access(1, 7, 0o770, "a list").strictest(&access(1, 7, 0o770, "another"));
        assert_eq!((listed.mode, listed.has_no_acls()), (0o700, true));
    }
}
