//! The mover against trees that lose power after any call: what no sync covered is kept, lost or torn, directory by directory. After
//! recovery, itself cut off anywhere, every file is whole at one place with all of its names, and nothing hidden is left. The same with
//! each safety rule taken out must fail.

use isotherm_files::intent::recover;
use isotherm_files::mover::{Answer, Call, Move, Outcome, Step, carry_out};
use isotherm_files::mutants::{Mutant, choose};
use isotherm_files::tree::{At, Facts, INTENTS, Id, TEMPS, Tier, Time, Tree, above, join, parent};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};

const POWER: Errno = Errno::from_raw_os_error(121);

#[derive(Clone, Debug, Default, PartialEq)]
struct Bytes {
    data: Vec<u8>,
    attributes: u8,
}

#[derive(Clone, Debug, Default)]
struct Inode {
    now: Bytes,
    synced: Option<Bytes>,
    ctime: i64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Entry {
    Dir,
    File(u64),
}

/// A change of entries that is not durable yet: all of it or nothing.
#[derive(Clone, Debug)]
struct Change(Vec<(Vec<u8>, Option<Entry>)>);

#[derive(Clone, Default)]
struct Disk {
    inodes: BTreeMap<u64, Inode>,
    now: BTreeMap<Vec<u8>, Entry>,
    durable: BTreeMap<Vec<u8>, Entry>,
    pending: Vec<Change>,
}

#[derive(Clone)]
struct World {
    disks: Vec<Disk>,
    clock: i64,
    /// Calls left before something happens, and whether that is an error instead of the end.
    left: Option<u32>,
    error: bool,
    dead: bool,
    seed: u64,
}

fn shares(a: &Change, b: &Change) -> bool {
    a.0.iter().any(|x| b.0.iter().any(|y| x.0 == y.0))
}

impl Disk {
    fn apply(durable: &mut BTreeMap<Vec<u8>, Entry>, change: &Change) {
        for (path, entry) in &change.0 {
            match entry {
                Some(e) => durable.insert(path.clone(), *e),
                None => durable.remove(path),
            };
        }
    }
    fn change(&mut self, change: Change) {
        Disk::apply(&mut self.now, &change);
        self.pending.push(change);
    }
    /// Make those durable that `wanted` says, and the earlier ones of the same names.
    fn commit(&mut self, mut wanted: Vec<bool>) {
        for i in (0..wanted.len()).rev() {
            for j in 0..i {
                wanted[j] |= wanted[i] && shares(&self.pending[i], &self.pending[j]);
            }
        }
        let pending = std::mem::take(&mut self.pending);
        for (change, yes) in pending.into_iter().zip(wanted) {
            if yes {
                Disk::apply(&mut self.durable, &change);
            } else {
                self.pending.push(change);
            }
        }
    }
    fn lose_power(&mut self, mode: u64, mut draw: impl FnMut() -> u64) {
        let keep = self
            .pending
            .iter()
            .map(|_| mode == 1 || (mode > 1 && draw().is_multiple_of(2)));
        let keep = keep.collect();
        self.commit(keep);
        self.pending.clear();
        // What is in a directory that is not there is lost with it.
        let all = self.durable.clone();
        let there = |p: &[u8]| above(p).all(|d| d == b"." || all.get(d) == Some(&Entry::Dir));
        self.durable.retain(|p, _| there(p));
        self.now = self.durable.clone();
        for inode in self.inodes.values_mut() {
            if inode.synced.as_ref() == Some(&inode.now) {
                continue;
            }
            let torn = Bytes {
                data: inode.now.data[..inode.now.data.len() / 2].to_vec(),
                attributes: 0,
            };
            inode.now = match (mode, &inode.synced) {
                (1, _) => inode.now.clone(),
                (0, Some(s)) => s.clone(),
                (0, None) => Bytes::default(),
                (_, s) => match (draw() % 3, s) {
                    (0, _) => inode.now.clone(),
                    (1, Some(s)) => s.clone(),
                    (_, Some(s)) if draw().is_multiple_of(2) => s.clone(),
                    _ => torn,
                },
            };
            inode.synced = Some(inode.now.clone());
        }
    }
    fn file(&self, path: &[u8]) -> Option<u64> {
        match self.now.get(path) {
            Some(Entry::File(n)) => Some(*n),
            _ => None,
        }
    }
    /// The lowest number that no name has, durable or not: numbers are used again at once.
    fn number(&self) -> u64 {
        let used: BTreeSet<u64> = self
            .now
            .values()
            .chain(self.durable.values())
            .chain(
                self.pending
                    .iter()
                    .flat_map(|c| c.0.iter().filter_map(|x| x.1.as_ref())),
            )
            .filter_map(|e| match e {
                Entry::File(n) => Some(*n),
                Entry::Dir => None,
            })
            .collect();
        (1..10_000).find(|n| !used.contains(n)).unwrap_or(0)
    }
}

impl World {
    fn new() -> World {
        let mut w = World {
            disks: vec![Disk::default(); 2],
            clock: 0,
            left: None,
            error: false,
            dead: false,
            seed: 1,
        };
        for d in &mut w.disks {
            for dir in [".isotherm", ".isotherm/tmp", ".isotherm/intents"] {
                d.durable.insert(dir.into(), Entry::Dir);
            }
            d.now = d.durable.clone();
        }
        w
    }
    fn draw(&mut self) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed
    }
    fn power_comes_back(&mut self, mode: u64) {
        for t in 0..2 {
            let mut seed = self.draw() | 1;
            self.disks[t].lose_power(mode, || {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                seed
            });
        }
        (self.dead, self.left, self.error) = (false, None, false);
    }
    fn call(&mut self) -> Result<(), Errno> {
        self.clock += 1;
        if self.dead {
            return Err(POWER);
        }
        if let Some(left) = &mut self.left {
            if *left == 0 {
                self.left = None;
                self.dead = !self.error;
                return Err(if self.error { Errno::IO } else { POWER });
            }
            *left -= 1;
        }
        Ok(())
    }
    fn disk(&mut self, t: Tier) -> &mut Disk {
        &mut self.disks[usize::from(t)]
    }
    fn make_dirs(&mut self, t: Tier, path: &[u8]) {
        let mut dirs: Vec<Vec<u8>> = above(path)
            .filter(|d| *d != b".")
            .map(<[u8]>::to_vec)
            .collect();
        dirs.reverse();
        for d in dirs {
            if !self.disk(t).now.contains_key(&d) {
                self.disk(t).change(Change(vec![(d, Some(Entry::Dir))]));
            }
        }
    }
    /// A user's file, durable.
    fn user_file(&mut self, t: Tier, path: &[u8], data: &[u8]) {
        self.make_dirs(t, path);
        let n = self.disk(t).number();
        let bytes = Bytes {
            data: data.to_vec(),
            attributes: 7,
        };
        let ctime = self.clock;
        let inode = Inode {
            now: bytes.clone(),
            synced: Some(bytes),
            ctime,
        };
        self.disk(t).inodes.insert(n, inode);
        self.disk(t)
            .change(Change(vec![(path.to_vec(), Some(Entry::File(n)))]));
        self.user_syncs_dirs(t, path);
    }
    fn user_syncs_dirs(&mut self, t: Tier, path: &[u8]) {
        let dirs: Vec<Vec<u8>> = above(path).map(<[u8]>::to_vec).collect();
        for d in dirs {
            self.sync_entries(t, &d);
        }
    }
    fn user_writes(&mut self, t: Tier, path: &[u8], data: &[u8]) {
        let clock = self.clock;
        let d = self.disk(t);
        if let Some(n) = d.file(path)
            && let Some(i) = d.inodes.get_mut(&n)
        {
            i.now.data = data.to_vec();
            i.synced = Some(i.now.clone());
            // Within a tick of the clock: the change time does not tell.
            let _ = clock;
        }
    }
    fn sync_entries(&mut self, t: Tier, dir: &[u8]) {
        let d = self.disk(t);
        let wanted = d
            .pending
            .iter()
            .map(|c| c.0.iter().any(|x| parent(&x.0) == dir));
        let wanted = wanted.collect();
        d.commit(wanted);
    }
}

impl Tree for World {
    fn tiers(&self) -> Tier {
        2
    }
    fn stat(&mut self, at: &At) -> Result<Option<Facts>, Errno> {
        self.call()?;
        let d = self.disk(at.tier);
        Ok(match d.now.get(&at.path) {
            None if at.path == b"." => Some(Facts {
                mode: 0o040_755,
                ..Facts::default()
            }),
            None => None,
            Some(Entry::Dir) => Some(Facts {
                mode: 0o040_755,
                ..Facts::default()
            }),
            Some(Entry::File(n)) => {
                let i = &d.inodes[n];
                let names = d.now.values().filter(|e| **e == Entry::File(*n)).count();
                Some(Facts {
                    // No file system says here when a file was born.
                    id: Id { ino: *n, born: 0 },
                    mode: 0o100_644,
                    size: i.now.data.len() as u64,
                    nlink: names as u32,
                    ctime: Time {
                        sec: i.ctime,
                        nsec: 0,
                    },
                    ..Facts::default()
                })
            }
        })
    }
    fn create(&mut self, at: &At, _bytes: u64) -> Result<(), Errno> {
        self.call()?;
        let ctime = self.clock;
        let d = self.disk(at.tier);
        if d.now.contains_key(&at.path) {
            return Err(Errno::EXIST);
        }
        let n = d.number();
        d.inodes.insert(
            n,
            Inode {
                ctime,
                ..Inode::default()
            },
        );
        d.change(Change(vec![(at.path.clone(), Some(Entry::File(n)))]));
        Ok(())
    }
    fn copy(&mut self, from: &At, to: &At, offset: u64, _len: u64) -> Result<Option<u64>, Errno> {
        self.call()?;
        let d = self.disk(from.tier);
        let n = d.file(&from.path).ok_or(Errno::NOENT)?;
        let data = d.inodes[&n].now.data.clone();
        let d = self.disk(to.tier);
        let m = d.file(&to.path).ok_or(Errno::NOENT)?;
        let copy = d.inodes.get_mut(&m).ok_or(Errno::IO)?;
        // Two pieces, so that writes come in between.
        let (start, half) = (offset as usize, data.len() / 2);
        let end = if start == 0 { half } else { data.len() };
        copy.now.data.resize(data.len(), 0);
        copy.now.data[start..end].copy_from_slice(&data[start..end]);
        Ok((end < data.len()).then_some(end as u64))
    }
    fn copy_attributes(&mut self, from: &At, to: &At) -> Result<(), Errno> {
        self.call()?;
        let d = self.disk(from.tier);
        let n = d.file(&from.path).ok_or(Errno::NOENT)?;
        let attributes = d.inodes[&n].now.attributes;
        let d = self.disk(to.tier);
        let m = d.file(&to.path).ok_or(Errno::NOENT)?;
        d.inodes.get_mut(&m).ok_or(Errno::IO)?.now.attributes = attributes;
        Ok(())
    }
    fn write(&mut self, at: &At, bytes: &[u8]) -> Result<(), Errno> {
        self.create(at, 0)?;
        let d = self.disk(at.tier);
        let n = d.file(&at.path).ok_or(Errno::IO)?;
        d.inodes.get_mut(&n).ok_or(Errno::IO)?.now.data = bytes.to_vec();
        Ok(())
    }
    fn read(&mut self, at: &At) -> Result<Vec<u8>, Errno> {
        self.call()?;
        let d = self.disk(at.tier);
        let n = d.file(&at.path).ok_or(Errno::NOENT)?;
        Ok(d.inodes[&n].now.data.clone())
    }
    fn list(&mut self, at: &At) -> Result<Vec<Vec<u8>>, Errno> {
        self.call()?;
        let d = self.disk(at.tier);
        let all = d.now.keys().filter(|p| parent(p) == at.path);
        Ok(all.map(|p| p[at.path.len() + 1..].to_vec()).collect())
    }
    fn sync_file(&mut self, at: &At) -> Result<(), Errno> {
        self.call()?;
        let d = self.disk(at.tier);
        let n = d.file(&at.path).ok_or(Errno::NOENT)?;
        let i = d.inodes.get_mut(&n).ok_or(Errno::IO)?;
        i.synced = Some(i.now.clone());
        Ok(())
    }
    fn sync_dir(&mut self, at: &At) -> Result<(), Errno> {
        self.call()?;
        if at.path != b"." && self.disk(at.tier).now.get(&at.path) != Some(&Entry::Dir) {
            return Err(Errno::NOENT);
        }
        self.sync_entries(at.tier, &at.path);
        Ok(())
    }
    fn make_parents(&mut self, at: &At) -> Result<(), Errno> {
        self.call()?;
        self.make_dirs(at.tier, &at.path);
        Ok(())
    }
    fn rename(&mut self, from: &At, to: &[u8]) -> Result<(), Errno> {
        self.call()?;
        let d = self.disk(from.tier);
        let e = *d.now.get(&from.path).ok_or(Errno::NOENT)?;
        d.change(Change(vec![
            (from.path.clone(), None),
            (to.to_vec(), Some(e)),
        ]));
        Ok(())
    }
    fn exchange(&mut self, _a: &At, _b: &[u8]) -> Result<(), Errno> {
        Err(Errno::INVAL)
    }
    fn link(&mut self, from: &At, to: &[u8]) -> Result<(), Errno> {
        self.call()?;
        let d = self.disk(from.tier);
        let e = *d.now.get(&from.path).ok_or(Errno::NOENT)?;
        if d.now.contains_key(to) {
            return Err(Errno::EXIST);
        }
        d.change(Change(vec![(to.to_vec(), Some(e))]));
        Ok(())
    }
    fn unlink(&mut self, at: &At) -> Result<(), Errno> {
        self.call()?;
        let d = self.disk(at.tier);
        if d.file(&at.path).is_none() {
            return Err(Errno::NOENT);
        }
        d.change(Change(vec![(at.path.clone(), None)]));
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
struct Story {
    names: &'static [&'static str],
    from: Tier,
    /// A user writes during the first copy.
    writes: bool,
    /// Afterwards a user deletes the file and makes another of that name on the old tier.
    again: bool,
}

const STORIES: [Story; 6] = [
    Story {
        names: &["f"],
        from: 0,
        writes: false,
        again: false,
    },
    Story {
        names: &["a/b/f"],
        from: 0,
        writes: false,
        again: true,
    },
    Story {
        names: &["a/b/f"],
        from: 1,
        writes: true,
        again: true,
    },
    Story {
        names: &["a/f", "b/g", "h"],
        from: 0,
        writes: false,
        again: false,
    },
    Story {
        names: &["a/f", "a/g"],
        from: 1,
        writes: true,
        again: false,
    },
    Story {
        names: &["a/f"],
        from: 1,
        writes: false,
        again: true,
    },
];

struct Played {
    world: World,
    expected: Vec<u8>,
    outcome: Option<Outcome>,
}

/// Play it until the power goes.
#[expect(clippy::too_many_lines, reason = "one scenario")]
fn play(story: Story, left: Option<u32>, error: bool) -> Played {
    let mut w = World::new();
    let first = story.names[0].as_bytes();
    w.user_file(story.from, first, b"what it was at first");
    for name in &story.names[1..] {
        let name = name.as_bytes();
        w.make_dirs(story.from, name);
        let e = w.disk(story.from).now[first];
        w.disk(story.from)
            .change(Change(vec![(name.to_vec(), Some(e))]));
        w.user_syncs_dirs(story.from, name);
    }
    w.clock += 10;
    let mut expected = b"what it was at first".to_vec();
    let to = 1 - story.from;
    let names: Vec<Vec<u8>> = story.names.iter().map(|n| n.as_bytes().to_vec()).collect();
    let id = Id {
        ino: w.disk(story.from).file(first).unwrap(),
        born: 0,
    };
    (w.left, w.error) = (left, error);
    let mut m = Move::new(1, id, names.clone(), story.from, to);
    let (mut changes, mut seen, mut frozen, mut home) = (0, 0, false, story.from);
    let mut step = m.start();
    let outcome = loop {
        if w.dead {
            return Played {
                world: w,
                expected,
                outcome: None,
            };
        }
        let answer = match step {
            Step::Call(call) => {
                if matches!(call, Call::Create(..)) {
                    seen = changes;
                }
                let write = story.writes
                    && matches!(&call, Call::Copy(_, _, at) if *at > 0)
                    && changes == 0;
                if write {
                    assert!(!frozen);
                    w.user_writes(home, first, b"what they wrote since");
                    expected = b"what they wrote since".to_vec();
                    changes += 1;
                }
                carry_out(&mut w, &call)
            }
            Step::Freeze => {
                frozen = true;
                Ok(Answer::Frozen(names.clone(), changes != seen))
            }
            Step::Thaw => {
                frozen = false;
                Ok(Answer::Done)
            }
            Step::Swap(_) => {
                (frozen, home) = (false, to);
                // Writers go on at once, and sync what they wrote.
                w.user_writes(home, first, b"and after it had moved");
                expected = b"and after it had moved".to_vec();
                Ok(Answer::Done)
            }
            Step::End(outcome) => break outcome,
        };
        step = m.next(answer);
    };
    if !matches!(outcome, Outcome::Stuck(_)) && !w.dead {
        // Life goes on where the file is now.
        w.user_writes(home, first, b"later");
        expected = b"later".to_vec();
        if story.again && outcome == Outcome::Done {
            let n = w.disk(home).now[first];
            assert!(matches!(n, Entry::File(_)));
            w.disk(home).change(Change(vec![(first.to_vec(), None)]));
            w.user_syncs_dirs(home, first);
            w.user_file(story.from, first, b"another");
            expected = b"another".to_vec();
        }
    }
    Played {
        world: w,
        expected,
        outcome: Some(outcome),
    }
}

fn verify(w: &World, story: Story, expected: &[u8]) -> Result<(), String> {
    let mut inodes = BTreeSet::new();
    for name in story.names {
        let path = name.as_bytes();
        let at: Vec<usize> = (0..2)
            .filter(|t| w.disks[*t].file(path).is_some())
            .collect();
        let [t] = at[..] else {
            return Err(format!("{name} is on tiers {at:?}"));
        };
        let n = w.disks[t].file(path).unwrap();
        inodes.insert((t, n));
        let inode = &w.disks[t].inodes[&n];
        if inode.now.data != expected {
            let text = String::from_utf8_lossy(&inode.now.data);
            return Err(format!(
                "{name} holds {text:?} instead of {:?}",
                String::from_utf8_lossy(expected)
            ));
        }
        if inode.now.attributes != 7 {
            return Err(format!("{name} lost its attributes"));
        }
    }
    if inodes.len() != 1 {
        return Err("hard links were parted".into());
    }
    for d in &w.disks {
        if let Some(p) = d.now.keys().find(|p| [TEMPS, INTENTS].contains(&parent(p))) {
            return Err(format!("left over: {}", String::from_utf8_lossy(p)));
        }
    }
    Ok(())
}

/// Recovery, cut off after each of its calls, then whole.
fn recover_anyhow(played: &Played, story: Story, mode: u64) -> Result<(), String> {
    let mut w = played.world.clone();
    w.power_comes_back(mode);
    for cut in 0..200 {
        let mut again = w.clone();
        again.left = Some(cut);
        let whole = recover(&mut again).is_ok();
        let again_mode = if cut % 2 == 0 { mode } else { 1 - mode.min(1) };
        if !whole {
            again.power_comes_back(again_mode);
            recover(&mut again).map_err(|e| format!("recovery fails: {e}"))?;
        }
        again.power_comes_back(1);
        verify(&again, story, &played.expected)
            .map_err(|e| format!("recovery cut at {cut}: {e}"))?;
        if whole {
            return Ok(());
        }
    }
    Err("recovery does not end".into())
}

/// Power lost after each call, in all ways.
fn all_crashes() -> Result<u32, String> {
    let mut runs = 0;
    for story in STORIES {
        for left in 0..400 {
            let played = play(story, Some(left), false);
            for mode in 0..8 {
                let mut played = Played {
                    world: played.world.clone(),
                    expected: played.expected.clone(),
                    outcome: played.outcome,
                };
                played.world.seed = 0x9e37_79b9 + mode * 7919 + u64::from(left);
                recover_anyhow(&played, story, mode)
                    .map_err(|e| format!("{story:?}, crash at call {left}, way {mode}: {e}"))?;
                runs += 1;
            }
            if let Some(outcome) = played.outcome {
                if outcome != Outcome::Done {
                    return Err(format!("{story:?}: {outcome:?}"));
                }
                break;
            }
        }
    }
    Ok(runs)
}

#[test]
fn power_lost_after_every_call() {
    let runs = all_crashes().unwrap();
    assert!(runs > 500, "{runs}");
}

#[test]
fn an_error_at_every_call() {
    for story in STORIES {
        for left in 0..400 {
            let played = play(story, Some(left), true);
            for mode in 0..4 {
                let at = format!(
                    "{story:?}, error at call {left}, way {mode}, {:?}",
                    played.outcome
                );
                recover_anyhow(&played, story, mode)
                    .map_err(|e| format!("{at}: {e}"))
                    .unwrap();
            }
            if played.world.left.is_some() {
                break;
            }
        }
    }
}

#[test]
fn torn_and_void_intents_are_left_alone() {
    use isotherm_files::intent::{Op, encode};
    for cut in [0usize, 3, 30, 61] {
        let mut w = World::new();
        w.user_file(0, b"f", b"precious");
        let id = Id {
            ino: w.disk(0).file(b"f").unwrap(),
            born: 0,
        };
        let missing = Id { ino: 99, born: 0 };
        let ops = [
            Op::Rename(missing, At::new(1, join(TEMPS, b"m1")), b"f".to_vec()),
            Op::Unlink(id, At::new(0, "f")),
        ];
        let mut bytes = encode(&ops);
        if cut == 3 {
            // Of its length, but not what was written.
            bytes = encode(&ops[1..]);
            *bytes.last_mut().unwrap() ^= 1;
            w.write(&At::new(0, join(INTENTS, b"m0")), &bytes).unwrap();
            assert_eq!(recover(&mut w).unwrap().dropped, 1);
            assert_eq!(w.disk(0).file(b"f"), Some(id.ino), "spoilt");
        }
        let bytes = if cut == 0 {
            &bytes[..]
        } else {
            &bytes[..bytes.len() - cut]
        };
        w.write(&At::new(0, join(INTENTS, b"m1")), bytes).unwrap();
        assert_eq!(recover(&mut w).unwrap().dropped, 1);
        assert_eq!(w.disk(0).file(b"f"), Some(id.ino), "cut {cut}");
    }
}

#[test]
fn every_rule_is_needed() {
    use Mutant::*;
    let mut missed = Vec::new();
    for mutant in [
        SkipCopySync,
        SkipTempDirSync,
        SkipIntentSync,
        SkipIntent,
        TrustOldCopy,
        MoveOneName,
        ForgetTargetSync,
        SkipAncestors,
        ForgetAttributes,
        UnlinkFirst,
    ] {
        choose(Some(mutant));
        let caught = std::panic::catch_unwind(|| all_crashes().is_err()).unwrap_or(true);
        choose(None);
        if !caught {
            missed.push(mutant);
        }
    }
    for mutant in [TrustTornIntent, TrustVoidIntent] {
        choose(Some(mutant));
        let caught = std::panic::catch_unwind(torn_and_void_intents_are_left_alone).is_err();
        choose(None);
        if !caught {
            missed.push(mutant);
        }
    }
    assert!(missed.is_empty(), "not noticed: {missed:?}");
}
