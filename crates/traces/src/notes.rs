//! What was assumed when a trace was converted, kept in the copy.
//!
//! Text holds it as lines before the first record, `# isotherm: assumed: …`; Parquet holds the same lines as metadata.

use std::fmt::Write as _;

use crate::decode::Run;
use crate::stats::Sure;

const MARK: &str = "# isotherm: ";
/// Lines that are kept, and the bytes of each, so that no foreign file makes the list long.
const LINES: usize = 64;
const LONGEST: usize = 1000;

/// How certain the reading of the original was, and what was assumed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// How certain the recognition of the format was.
    pub sure: Sure,
    /// Assumptions that were made because the trace does not state the fact, in sentences.
    pub assumed: Vec<String>,
    /// What the content leaves open, in sentences.
    pub doubts: Vec<String>,
}

impl Notes {
    /// Whether there is nothing to say.
    pub(crate) fn is_empty(&self) -> bool {
        self.assumed.is_empty() && self.doubts.is_empty()
    }

    /// The lines in which [`Notes::read`] finds all of it again.
    pub(crate) fn lines(&self) -> String {
        let mut text = format!("{MARK}sure: {}\n", self.sure.name());
        let all = [("assumed", &self.assumed), ("doubt", &self.doubts)];
        for (kind, what) in all
            .iter()
            .flat_map(|(kind, all)| all.iter().map(move |w| (kind, w)))
        {
            let what = what.replace(['\n', '\r'], " ");
            // A string takes everything.
            let _ = writeln!(text, "{MARK}{kind}: {what}");
        }
        text
    }

    /// The notes at the beginning of a text; `None` if there are none.
    pub(crate) fn read(text: &[u8]) -> Option<Notes> {
        let mut notes = Notes::default();
        let mut found = false;
        for line in text.split(|&c| c == b'\n').take(LINES) {
            let line = &line[..line.len().min(LONGEST)];
            let Some(note) = line.strip_prefix(MARK.as_bytes()) else {
                continue;
            };
            found = true;
            let note = String::from_utf8_lossy(note);
            match note.split_once(": ") {
                Some(("sure", word)) => notes.sure = Sure::of_name(word.trim()),
                Some(("assumed", what)) => notes.assumed.push(what.to_owned()),
                Some(("doubt", what)) => notes.doubts.push(what.to_owned()),
                _ => {}
            }
        }
        found.then_some(notes)
    }

    /// Adds what was assumed of the original to what is assumed of its copy.
    pub(crate) fn note(self, run: &mut Run) {
        const OF: &str = "Of the original: ";
        let of = |what: String| {
            if what.starts_with(OF) {
                what
            } else {
                OF.to_owned() + &what
            }
        };
        run.sure = run.sure.min(self.sure);
        run.assumed.extend(self.assumed.into_iter().map(of));
        run.doubts.extend(self.doubts.into_iter().map(of));
    }

    /// The text that must stay with the data, without such lines of an earlier copy.
    pub(crate) fn stripped(header: &[u8]) -> Vec<u8> {
        let lines = header.split_inclusive(|&c| c == b'\n');
        lines
            .filter(|line| !line.starts_with(MARK.as_bytes()))
            .flatten()
            .copied()
            .collect()
    }
}
