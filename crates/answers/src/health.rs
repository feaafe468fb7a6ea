//! How a volume is: `health` and `failure` in `status` and `stats`.

use serde::{Deserialize, Serialize};

/// How the volume is. well: nothing is wrong. degraded: all requests are served, something needs a person. failing: some requests fail or wait. failed: writes are refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Health {
    /// The worst of the causes.
    pub state: Level,
    /// The state in one sentence, which stays the same as long as nothing changes.
    pub sentence: String,
    /// What is wrong, the worst first.
    pub causes: Vec<Cause>,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// Nothing is wrong.
    Well,
    /// All requests are served; something needs a person.
    Degraded,
    /// Some requests fail or wait.
    Failing,
    /// Writes are refused.
    Failed,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cause {
    /// How bad it is; never `well`.
    pub state: Level,
    /// What kind of thing it is.
    pub kind: CauseKind,
    /// The place of the member in the list of members, if it is one's.
    pub member: Option<u64>,
    /// Its path.
    pub path: Option<String>,
    /// Stays the same as long as this goes on.
    pub what: String,
    /// Figures, which change.
    pub detail: String,
    /// What a person should do.
    pub todo: String,
    /// The system's error number.
    pub errno: Option<i32>,
    /// The system's words for errno.
    pub error: Option<String>,
    /// Errors, or operations that wait.
    pub count: Option<u64>,
    /// When it began.
    pub since_unix_s: Option<f64>,
    /// When it was last seen.
    pub last_unix_s: Option<f64>,
}

/// Kinds of what can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum CauseKind {
    /// The volume has failed: writes are refused.
    Failure,
    /// A member does not answer.
    Silent,
    /// A member's file system is full.
    NoSpace,
    /// A member has answered with errors.
    Errors,
    /// A member is absent.
    Missing,
    /// A check has found damaged data.
    Damage,
    /// Data was lost with flash and is listed.
    Lost,
    /// Metadata was incomplete when the volume was opened.
    Incomplete,
    /// A drive under a member says that it fails (SMART).
    Drive,
}

/// Why writes are refused until the volume is served anew.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Failure {
    /// In words.
    pub reason: String,
    /// The place of the member that caused it.
    pub member: Option<u64>,
    /// Its path.
    pub path: Option<String>,
    /// The system's error number.
    pub errno: Option<i32>,
    /// When it happened.
    pub time_unix_s: f64,
}

impl Level {
    /// All, the best one first.
    pub const ALL: [Level; 4] = [Level::Well, Level::Degraded, Level::Failing, Level::Failed];

    /// The word in answers and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Level::Well => "well",
            Level::Degraded => "degraded",
            Level::Failing => "failing",
            Level::Failed => "failed",
        }
    }
}

impl CauseKind {
    /// The word in answers and in the log.
    pub fn word(self) -> &'static str {
        match self {
            CauseKind::Failure => "failure",
            CauseKind::Silent => "silent",
            CauseKind::NoSpace => "no-space",
            CauseKind::Errors => "errors",
            CauseKind::Missing => "missing",
            CauseKind::Damage => "damage",
            CauseKind::Lost => "lost",
            CauseKind::Incomplete => "incomplete",
            CauseKind::Drive => "drive",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_the_answers() {
        use crate::State::{Failed, Serving, Stopped};
        use CauseKind::{
            Damage, Drive, Errors, Failure, Incomplete, Lost, Missing, NoSpace, Silent,
        };
        let all = [
            Failure, Silent, NoSpace, Errors, Missing, Damage, Lost, Incomplete, Drive,
        ];
        for kind in all {
            assert_eq!(crate::json(&kind), kind.word());
        }
        for level in Level::ALL {
            assert_eq!(crate::json(&level), level.word());
        }
        for state in [Serving, Failed, Stopped] {
            assert_eq!(crate::json(&state), state.word());
        }
    }
}
