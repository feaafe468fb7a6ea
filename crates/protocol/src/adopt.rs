//! Adoption and release of a disk that holds data: docs/on-disk-format.md, section 1 (disks of a cache volume), 7.20 and 7.21.
//!
//! ```text
//!  adoption:  head ─► stash ─► mark *releasing* ─► second superblock ─► head from 4096 on ─► flash ─► superblocks ─► mark *covered*
//!  release:   flash erased ─► mark *releasing* ─► is the stash whole? ─► head from 4096 on ─► first block ─► second superblock ─► the rest
//! ```
//! The head of the disk is two places: its first block, and the bytes from 4096 on. Each step is durable before the next one begins. Power
//! may fail in the middle of one: then each place that it writes has its old block, the new one, or a torn one. (A mark has two blocks that
//! are written alternately, so there the old one or the new one.) Between two commands, the medium may damage the stash of a disk that is
//! being released, and somebody may make a file system on the disk of a volume.

use stateright::{Model, Property};

rules! {
    AdoptBeforeMark,
    CoverBeforeSuperblock,
    TrustStash,
    MendOverFileSystem,
}

/// The model.
#[derive(Clone, Debug)]
pub struct Adoption {
    /// Number of adoptions, and number of writes while the disk belongs to a volume.
    pub adoptions: u8,
    /// See there.
    pub writes: u8,
    /// The rule that is taken out.
    pub without: Option<Rule>,
}

/// What is at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Block {
    /// The user's data, as of this write.
    User(u8),
    /// A superblock of the volume. An adoption writes the second one twice, with the same bytes: so the second time tears nothing.
    Superblock,
    FileSystem,
    Zeros,
    Torn,
    Damaged,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Mark {
    None,
    Covered,
    /// With the checksum of the stash, for which its contents stand here.
    Releasing([Block; 2]),
}

/// The places of the disk.
const FIRST: usize = 0;
const REST: usize = 1;
const STASH: usize = 2;
const SECOND: usize = 4;

/// The disk and its flash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Disk {
    places: [Block; 5],
    mark: Mark,
    /// Whether the flash has metadata and a superblock.
    flash: bool,
}

/// What a command finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Plain,
    Volume,
    /// It cannot be opened, and its release goes on.
    Releasing,
    /// A volume whose first block holds a file system, which is refused.
    FileSystem,
    /// It can neither be opened nor released.
    Stuck,
}

impl Disk {
    fn stash(&self) -> [Block; 2] {
        [self.places[STASH], self.places[STASH + 1]]
    }

    fn found(&self) -> Found {
        let [first, second] = [self.places[FIRST], self.places[SECOND]];
        let is_member = [first, second].contains(&Block::Superblock);
        match (self.mark, first) {
            _ if !is_member => Found::Plain,
            (Mark::Releasing(_), _) if second == Block::Superblock => Found::Releasing,
            (Mark::Covered, Block::FileSystem) => Found::FileSystem,
            (Mark::Covered, Block::Superblock | Block::Torn) => Found::Volume,
            _ => Found::Stuck,
        }
    }
}

/// A step that is durable when it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    Write(usize, Block),
    WriteBoth([(usize, Block); 2]),
    Mark(Mark),
    Flash(bool),
}

/// A state of the disk, and of the program.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    disk: Disk,
    /// The steps of the command in progress.
    todo: Vec<Step>,
    serves: bool,
    /// The user's data that must be there.
    data: [u8; 2],
    adoptions: u8,
    writes: u8,
    /// What has happened to the disk between commands.
    damaged: bool,
    formatted: bool,
    released: bool,
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// `adopt`.
    Adopt,
    /// The volume is opened.
    Open,
    /// A user of the volume writes to its second place.
    Write,
    /// The volume is closed.
    Close,
    /// `release`, of a volume that is open.
    Release,
    /// `release` goes on that was interrupted.
    GoOn,
    /// The next step of the command ends.
    Step,
    /// Power fails. What the step in progress writes has what was there before (0), the new block (1), or a torn one (2).
    PowerFails([u8; 2]),
    /// The medium damages the stash.
    Damage,
    /// Somebody makes a file system on the disk.
    MakeFileSystem,
}

impl Adoption {
    fn lacks(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    fn adopt(&self, disk: &Disk) -> Vec<Step> {
        let [first, rest] = [disk.places[FIRST], disk.places[REST]];
        let releasing = Step::Mark(Mark::Releasing([first, rest]));
        let mut steps = vec![
            Step::WriteBoth([(STASH, first), (STASH + 1, rest)]),
            releasing,
            Step::Write(SECOND, Block::Superblock),
            Step::Write(REST, Block::Zeros),
            Step::Flash(true),
            Step::Write(FIRST, Block::Superblock),
            Step::Write(SECOND, Block::Superblock),
            Step::Mark(Mark::Covered),
        ];
        if self.lacks(Rule::AdoptBeforeMark) {
            steps[1..4].rotate_left(1);
        }
        if self.lacks(Rule::CoverBeforeSuperblock) {
            steps[4..].rotate_right(1);
        }
        steps
    }

    /// The steps of opening: a first block that is no superblock is written anew from the second one, but not over a file system.
    fn open(disk: &Disk) -> Vec<Step> {
        let [first, second] = [disk.places[FIRST], disk.places[SECOND]];
        let mend = (first != Block::Superblock).then_some(Step::Write(FIRST, second));
        mend.into_iter().collect()
    }

    /// The steps of a release from the moment on at which the disk states it; none if the stash is damaged.
    fn uncover(&self, disk: &Disk) -> Vec<Step> {
        let stash = disk.stash();
        if disk.mark != Mark::Releasing(stash) && !self.lacks(Rule::TrustStash) {
            return Vec::new();
        }
        vec![
            Step::Write(REST, stash[1]),
            Step::Write(FIRST, stash[0]),
            Step::Write(SECOND, Block::Zeros),
            Step::WriteBoth([(STASH, Block::Zeros), (STASH + 1, Block::Zeros)]),
            Step::Mark(Mark::None),
        ]
    }
}

impl State {
    fn is_idle(&self) -> bool {
        self.todo.is_empty() && !self.serves
    }

    /// Carries out a step; `outcome` as in [`Action::PowerFails`].
    fn carry_out(&mut self, step: Step, outcome: [u8; 2]) {
        let mut put = |(place, block): (usize, Block), how: u8| match how {
            0 => {}
            _ if self.disk.places[place] == block => {}
            1 => self.disk.places[place] = block,
            _ => self.disk.places[place] = Block::Torn,
        };
        match step {
            Step::Write(place, block) => put((place, block), outcome[0]),
            Step::WriteBoth(both) => both
                .into_iter()
                .zip(outcome)
                .for_each(|(b, how)| put(b, how)),
            Step::Mark(mark) if outcome[0] == 1 => self.disk.mark = mark,
            Step::Flash(there) if outcome[0] == 1 => self.disk.flash = there,
            Step::Mark(_) | Step::Flash(_) => {}
        }
    }

    /// Whether the user's data is there, wherever it is.
    fn is_whole(&self) -> bool {
        let disk = &self.disk;
        let data = self.data.map(Block::User);
        match disk.found() {
            Found::Plain => [disk.places[FIRST], disk.places[REST]] == data,
            Found::Volume | Found::FileSystem => disk.stash() == data,
            Found::Releasing => disk.stash() == data || self.damaged,
            Found::Stuck => false,
        }
    }
}

impl Model for Adoption {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let [data, other] = [Block::User(0), Block::Zeros];
        vec![State {
            disk: Disk {
                places: [data, data, other, other, other],
                mark: Mark::None,
                flash: false,
            },
            todo: Vec::new(),
            serves: false,
            data: [0; 2],
            adoptions: 0,
            writes: 0,
            damaged: false,
            formatted: false,
            released: false,
        }]
    }

    fn actions(&self, s: &State, actions: &mut Vec<Action>) {
        if let Some(step) = s.todo.first() {
            actions.push(Action::Step);
            let outcomes = |n: usize| match step {
                Step::WriteBoth(_) => 0..3,
                Step::Write(..) if n == 0 => 0..3,
                Step::Mark(_) | Step::Flash(_) if n == 0 => 0..2,
                _ => 0..1,
            };
            let all = outcomes(0).flat_map(|a| outcomes(1).map(move |b| [a, b]));
            actions.extend(all.map(Action::PowerFails));
        } else if s.serves {
            actions.extend([Action::Release, Action::Close]);
            actions.extend((s.writes < self.writes).then_some(Action::Write));
            actions.push(Action::PowerFails([0, 0]));
        } else {
            match s.disk.found() {
                Found::Plain if s.adoptions < self.adoptions => actions.push(Action::Adopt),
                Found::Volume => actions.extend([Action::Open, Action::MakeFileSystem]),
                Found::Releasing => {
                    actions.push(Action::GoOn);
                    actions.extend((!s.damaged).then_some(Action::Damage));
                }
                Found::FileSystem if self.lacks(Rule::MendOverFileSystem) => {
                    actions.push(Action::Open);
                }
                _ => {}
            }
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut s = last.clone();
        match action {
            Action::Adopt => {
                s.adoptions += 1;
                s.todo = self.adopt(&s.disk);
            }
            Action::Open => {
                s.todo = Adoption::open(&s.disk);
                s.serves = true;
            }
            Action::Write => {
                // It is answered when it is durable.
                s.writes += 1;
                s.data[1] += 1;
                s.carry_out(Step::Write(STASH + 1, Block::User(s.data[1])), [1, 0]);
            }
            Action::Close => s.serves = false,
            Action::Release => {
                s.serves = false;
                let releasing = Mark::Releasing(s.disk.stash());
                s.todo = vec![Step::Flash(false), Step::Mark(releasing)];
                let stated = Disk {
                    mark: releasing,
                    ..s.disk
                };
                s.todo.extend(self.uncover(&stated));
            }
            Action::GoOn => s.todo = self.uncover(&s.disk),
            Action::Step => {
                let step = s.todo.remove(0);
                s.carry_out(step, [1, 1]);
                s.released |= s.todo.is_empty() && s.disk.mark == Mark::None;
            }
            Action::PowerFails(outcome) => {
                if let Some(&step) = s.todo.first() {
                    s.carry_out(step, outcome);
                }
                (s.todo, s.serves) = (Vec::new(), false);
            }
            Action::Damage => {
                s.disk.places[STASH] = Block::Damaged;
                s.damaged = true;
            }
            Action::MakeFileSystem => {
                s.disk.places[FIRST] = Block::FileSystem;
                s.formatted = true;
            }
        }
        Some(s)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "the disk is what it was, belongs to the volume, or can be given back",
                |_, s: &State| !s.is_idle() || s.is_whole(),
            ),
            Property::always("no file system is overwritten", |_, s: &State| {
                !s.formatted || s.disk.places[FIRST] == Block::FileSystem
            }),
            Property::sometimes(
                "a disk is released with what was written",
                |_, s: &State| s.released && s.is_idle() && s.disk.places[REST] == Block::User(1),
            ),
            Property::sometimes("a disk is adopted again", |_, s: &State| {
                s.adoptions == 2 && s.serves && s.writes > 0
            }),
            Property::sometimes(
                "an adoption was interrupted, and is given back",
                |_, s: &State| s.released && s.is_idle() && s.writes == 0 && s.adoptions == 1,
            ),
            Property::sometimes("a stash is damaged", |_, s: &State| s.damaged),
        ]
    }
}
