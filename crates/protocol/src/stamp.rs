//! The activity stamp: docs/on-disk-format.md, section 2 (activity stamp), and docs/serving.md (two servers).
//!
//! ```text
//!  opening:  claim ─► not closed cleanly? wait ─► still our claim? ─► serve
//!  serving:  every interval with work: read ─► ours, or a claim and our last stamp is not older than the lease? ─► stamp ─► go on
//!            last stamp older than the lease: the same before anything is written
//! ```
//! The servers run on machines that cannot see each other, or on one. Time is in seconds. A server that is not paused stamps when that is
//! due; a paused one does nothing, however long. Reading the stamp and what follows from it is one step: a machine that stops between the two
//! is what only a fence excludes.

use stateright::{Model, Property};

/// Interval at which a server with work stamps, in seconds.
const INTERVAL: u8 = 2;
/// Until its last stamp is older than this, a server writes without a look at it.
const LEASE: u8 = 3;
/// How long a server waits that claims a volume.
const WAIT: u8 = 2 * INTERVAL;
/// Longer times are not told apart.
const LONG: u8 = WAIT + 1;

rules! {
    ServeOvertaken,
    NoLookAfterGap,
    ClaimAtOnce,
    LiveHasEnded,
}

/// The model.
#[derive(Clone, Debug)]
pub struct Stamp {
    /// Number of servers. The first one serves at the beginning.
    pub servers: usize,
    /// Whether all of them run on one machine, where a process sees which others live.
    pub one_machine: bool,
    /// The rule that is taken out.
    pub without: Option<Rule>,
}

/// What a server is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    NotStarted,
    /// It has claimed the volume this long ago.
    Claims(u8),
    Serves {
        /// Seconds since its last stamp, and since it read the stamp.
        stamped: u8,
        read: u8,
        /// Whether there was work since then.
        active: bool,
    },
    /// It was refused, because the volume is served.
    Refused,
    /// It has found that another one serves the volume, and has ended.
    Overtaken,
    Closed,
    Killed,
}

/// A server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Server {
    phase: Phase,
    paused: bool,
}

/// A state of the servers, and of the block with the stamp.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    servers: Vec<Server>,
    /// Whose stamp it is, and whether it is a claim.
    owner: usize,
    claim: bool,
    /// Whether the volume was closed cleanly.
    clean: bool,
    /// The server that began to serve last.
    newest: usize,
    /// Whether another server than that has written to the volume.
    two_writers: bool,
}

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// A server opens the volume.
    Open(usize),
    /// A server that claimed the volume looks whether its claim is still there.
    Look(usize),
    /// A server writes to the volume for a client.
    Write(usize),
    /// A server stamps the volume because that is due.
    StampDue(usize),
    /// A server is stopped, or its machine is suspended.
    Pause(usize),
    /// It goes on.
    Resume(usize),
    /// A server closes the volume.
    Close(usize),
    /// A server is killed.
    Kill(usize),
    /// A second goes by.
    Second,
}

impl Stamp {
    fn lacks(&self, rule: Rule) -> bool {
        self.without == Some(rule)
    }

    fn open(&self, s: &mut State, i: usize) {
        let rival = s.servers[s.owner];
        let lives = !matches!(
            rival.phase,
            Phase::Killed | Phase::Closed | Phase::Overtaken
        );
        let sees = self.one_machine && !s.clean;
        if sees && lives && !self.lacks(Rule::LiveHasEnded) {
            s.servers[i].phase = Phase::Refused;
            return;
        }
        (s.owner, s.claim) = (i, true);
        s.servers[i].phase = Phase::Claims(0);
        if s.clean || (sees && !lives) || self.lacks(Rule::ClaimAtOnce) {
            s.begin(i);
        }
    }

    /// Reads the stamp; if the volume is still ours, it is stamped.
    fn stamp(&self, s: &mut State, i: usize) {
        let Phase::Serves { stamped, .. } = s.servers[i].phase else {
            return;
        };
        // A server that claims the volume waits longer than our lease, so it sees our next stamp and gives up.
        let in_time = s.claim && stamped <= LEASE;
        if s.owner != i && !in_time && !self.lacks(Rule::ServeOvertaken) {
            s.servers[i].phase = Phase::Overtaken;
            return;
        }
        (s.owner, s.claim) = (i, false);
        s.servers[i].phase = Phase::Serves {
            stamped: 0,
            read: 0,
            active: false,
        };
    }
}

impl State {
    fn begin(&mut self, i: usize) {
        self.servers[i].phase = Phase::Serves {
            stamped: 0,
            read: LONG,
            active: false,
        };
        (self.newest, self.clean) = (i, false);
    }

    fn is_due(server: Server) -> bool {
        matches!(server.phase, Phase::Serves { read, active: true, .. } if read >= INTERVAL)
    }

    fn has(&self, is: impl Fn(Phase) -> bool) -> bool {
        self.servers.iter().any(|server| is(server.phase))
    }
}

impl Model for Stamp {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let server = Server {
            phase: Phase::NotStarted,
            paused: false,
        };
        let mut s = State {
            servers: vec![server; self.servers],
            owner: 0,
            claim: false,
            clean: false,
            newest: 0,
            two_writers: false,
        };
        s.begin(0);
        vec![s]
    }

    fn actions(&self, s: &State, actions: &mut Vec<Action>) {
        for (i, server) in s.servers.iter().enumerate() {
            if server.paused {
                actions.extend([Action::Resume(i), Action::Kill(i)]);
                continue;
            }
            match server.phase {
                Phase::NotStarted => actions.push(Action::Open(i)),
                Phase::Claims(_) => {
                    actions.extend([Action::Look(i), Action::Pause(i), Action::Kill(i)]);
                }
                Phase::Serves { .. } => {
                    actions.extend([Action::Write(i), Action::Pause(i)]);
                    actions.extend([Action::Close(i), Action::Kill(i)]);
                    actions.extend(State::is_due(*server).then_some(Action::StampDue(i)));
                }
                _ => {}
            }
        }
        let late = |server: &Server| !server.paused && State::is_due(*server);
        actions.extend((!s.servers.iter().any(late)).then_some(Action::Second));
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut s = last.clone();
        match action {
            Action::Open(i) => self.open(&mut s, i),
            Action::Look(i) => match s.servers[i].phase {
                _ if (s.owner, s.claim) != (i, true) => s.servers[i].phase = Phase::Refused,
                Phase::Claims(WAIT..) => s.begin(i),
                _ => {}
            },
            Action::Write(i) => {
                if matches!(s.servers[i].phase, Phase::Serves { stamped, .. } if stamped > LEASE)
                    && !self.lacks(Rule::NoLookAfterGap)
                {
                    self.stamp(&mut s, i);
                }
                if let Phase::Serves { active, .. } = &mut s.servers[i].phase {
                    *active = true;
                    s.two_writers |= i != s.newest;
                }
            }
            Action::StampDue(i) => self.stamp(&mut s, i),
            Action::Pause(i) => s.servers[i].paused = true,
            Action::Resume(i) => s.servers[i].paused = false,
            Action::Close(i) => {
                // Nothing is written if the volume is not ours any more.
                let ours = s.owner == i;
                s.servers[i].phase = if ours {
                    Phase::Closed
                } else {
                    Phase::Overtaken
                };
                s.clean |= ours;
            }
            Action::Kill(i) => {
                s.servers[i] = Server {
                    phase: Phase::Killed,
                    paused: false,
                };
            }
            Action::Second => {
                let older = |t: &mut u8| *t = LONG.min(*t + 1);
                for server in &mut s.servers {
                    match &mut server.phase {
                        Phase::Claims(since) => older(since),
                        Phase::Serves { stamped, read, .. } => {
                            older(stamped);
                            older(read);
                        }
                        _ => {}
                    }
                }
            }
        }
        Some(s)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(
                "a server that was taken over writes nothing",
                |_, s: &State| !s.two_writers,
            ),
            Property::always(
                "a server of this machine that lives is not taken over",
                |m: &Stamp, s: &State| !m.one_machine || !s.has(|phase| phase == Phase::Overtaken),
            ),
            Property::sometimes("a server answers a claim", |_, s: &State| {
                s.has(|phase| phase == Phase::Refused)
            }),
            Property::sometimes(
                "a volume is opened after its server was killed",
                |_, s: &State| s.newest > 0 && s.servers[0].phase == Phase::Killed,
            ),
            Property::sometimes("a volume is opened after it was closed", |_, s: &State| {
                s.newest > 0 && s.servers[0].phase == Phase::Closed
            }),
        ]
        .into_iter()
        .chain((!self.one_machine).then(|| {
            Property::sometimes(
                "a server that was paused finds that it was taken over",
                |_, s: &State| s.newest > 0 && s.servers[0].phase == Phase::Overtaken,
            )
        }))
        .collect()
    }
}
