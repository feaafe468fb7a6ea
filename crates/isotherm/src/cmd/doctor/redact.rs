//! Secrets are taken out of text that leaves the machine.
//!
//! Three rules, of which each one alone is enough for a secret that it covers:
//!
//! - what is known to be a secret, or the path of one, is removed wherever it stands;
//! - in words for people (the log, messages), the rest of a line is removed after a word that announces a secret, and so is each word that
//!   could be one: a path that is not of this volume, an address with more than a host in it, a long run of letters with digits;
//! - what a person wrote for himself (comments, keys that no description has) never gets here: see `bundle.rs`.
//!
//! A message that loses too much is no harm; the list of what is written says that this happens.

use serde_json::Value;

/// What stands in the place of a secret.
pub(super) const REMOVED: &str = "[removed]";
/// Parts of words after which the rest of a line is removed.
const ANNOUNCE: [&str; 12] = [
    "passw",
    "passphrase",
    "secret",
    "token",
    "bearer",
    "authoriz",
    "credential",
    "chap",
    "private",
    "psk",
    "api_key",
    "apikey",
];
/// Directories whose paths say nothing of keys.
const KNOWN: [&str; 4] = ["/dev/", "/sys/", "/proc/", "/run/isotherm/"];
/// Files that others know as well.
const KNOWN_FILES: [&str; 2] = ["/etc/fstab", "/etc/crypttab"];
/// Words with a slash that are no paths.
const NO_PATHS: [&str; 2] = ["I/O", "read/write"];
/// Characters from which on a word of letters and digits may be a token or a key. A CHAP secret has at least 12 bytes.
const LONG: usize = 12;
/// Letters from which on a word without digits may be one, too: the shortest token that the web view takes.
const RUN: usize = 20;

/// Takes secrets out.
#[derive(Debug, Default)]
pub(super) struct Redactor {
    /// Secrets and paths of their files, the longest first.
    secrets: Vec<String>,
    /// Words that stay: names of the volume, paths of its members and of its description, its identity.
    kept: Vec<String>,
}

impl Redactor {
    /// `secrets` are removed everywhere; the words `kept` stay, unless they are secrets.
    pub(super) fn new(secrets: impl IntoIterator<Item = String>, kept: Vec<String>) -> Redactor {
        let mut all: Vec<String> = Vec::new();
        for secret in secrets.into_iter().filter(|s| !s.trim().is_empty()) {
            // As it stands in JSON and in TOML, if that differs.
            let quoted = Value::from(secret.as_str()).to_string();
            all.push(quoted[1..quoted.len() - 1].to_owned());
            all.push(secret);
        }
        all.sort_by_key(|s| std::cmp::Reverse(s.len()));
        all.dedup();
        Redactor { secrets: all, kept }
    }

    /// The text without what is known to be a secret.
    pub(super) fn known(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for secret in &self.secrets {
            text = text.replace(secret, REMOVED);
        }
        text
    }

    /// Lines for people without what could be a secret.
    pub(super) fn lines(&self, text: &str) -> String {
        let text = self.known(text);
        let lines: Vec<String> = text.lines().map(|l| self.line(l)).collect();
        lines.join("\n")
    }

    fn line(&self, line: &str) -> String {
        // An error of a description quotes its line, with what a person wrote behind it.
        let is_quote = is_quoted(line) || line.contains("TOML parse error");
        let line = line.split('#').next().filter(|_| is_quote).unwrap_or(line);
        let mut shown = String::with_capacity(line.len());
        for piece in line.split_inclusive(is_between) {
            let word = piece.trim_end_matches(is_between);
            let rest = &piece[word.len()..];
            let lower = word.to_lowercase();
            if ANNOUNCE.iter().any(|a| lower.contains(a)) && !self.is_kept(word) {
                // `token=abc` is one word: what is behind the announcement goes with it.
                let name: &str = word.split(['=', ':']).next().unwrap_or_default();
                let of_name = if name.len() < LONG && !name.contains('/') {
                    name
                } else {
                    ""
                };
                return format!("{shown}{of_name} {REMOVED}");
            }
            shown.push_str(if self.may_be_one(word) { REMOVED } else { word });
            shown.push_str(rest);
        }
        shown
    }

    fn is_kept(&self, word: &str) -> bool {
        // `v: …`, `/dev/sda1: …`, `path.`
        let bare = word.trim_end_matches([':', '.']);
        self.kept.iter().any(|k| k == bare)
    }

    fn may_be_one(&self, word: &str) -> bool {
        let bare = word.trim_end_matches([':', '.']);
        if self.is_kept(word) || NO_PATHS.contains(&bare) || KNOWN_FILES.contains(&bare) {
            return false;
        }
        if bare.contains('/') {
            return !KNOWN.iter().any(|k| bare.starts_with(k))
                || bare.starts_with("/dev/shm/")
                || bare.contains("/../");
        }
        // `joe:secret@host`
        let is_login = bare.split_once('@').is_some_and(|b| b.0.contains(':'));
        is_login || (!is_date(bare) && bare.split(':').any(is_random))
    }

    /// A JSON value: all of its text without known secrets, and its messages without what could be one.
    pub(super) fn value(&self, value: &Value) -> Value {
        match value {
            Value::String(s) if s.contains(char::is_whitespace) => Value::String(self.lines(s)),
            Value::String(s) => Value::String(self.known(s)),
            Value::Array(all) => Value::Array(all.iter().map(|v| self.value(v)).collect()),
            Value::Object(map) => {
                let entries = map.iter().map(|(k, v)| (self.known(k), self.value(v)));
                Value::Object(entries.collect())
            }
            other => other.clone(),
        }
    }
}

/// Whether a character separates words.
fn is_between(c: char) -> bool {
    c.is_whitespace() || "\"'`,;()[]<>{}|".contains(c)
}

/// Whether letters and digits are so many that they may be a token or a key.
fn is_random(part: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "+=_-~.!$%&*#@^?".contains(c);
    let is_long = part.len() >= LONG && part.chars().all(is_part);
    let has = |kind: fn(&char) -> bool| part.chars().any(|c| kind(&c));
    // No word of English has so many letters.
    let is_run = part.len() >= RUN && part.chars().all(|c| c.is_ascii_alphanumeric());
    is_run || (is_long && has(char::is_ascii_alphabetic) && has(char::is_ascii_digit))
}

/// `12 | policy = lru`, as an error of a description shows a line of it.
fn is_quoted(line: &str) -> bool {
    let number = line.split_once(" | ").map(|l| l.0.trim_start());
    number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

/// `2026-11-30T12:00:00+0000`, as the journal writes it.
fn is_date(word: &str) -> bool {
    let b = word.as_bytes();
    b.len() >= 19
        && b[4] == b'-'
        && b[7] == b'-'
        && b[10] == b'T'
        && word
            .chars()
            .all(|c| c.is_ascii_digit() || "-T:+.Z".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn redactor() -> Redactor {
        let secrets = ["se\"cret of joe", "/etc/keys/tok en", "plainword"].map(str::to_owned);
        let kept = ["v", "/srv/disk", "8f14e45f-ceea-467f-9575-28a0f3b1a6d1"].map(str::to_owned);
        Redactor::new(secrets, kept.to_vec())
    }

    #[test]
    fn what_could_be_a_secret_goes_and_what_explains_stays() {
        for (line, shown) in [
            (
                "v: /srv/disk: answers errors",
                "v: /srv/disk: answers errors",
            ),
            (
                "2026-11-30T12:00:00+0000 isotherm[77]: ready",
                "2026-11-30T12:00:00+0000 isotherm[77]: ready",
            ),
            (
                "volume 8f14e45f-ceea-467f-9575-28a0f3b1a6d1",
                "volume 8f14e45f-ceea-467f-9575-28a0f3b1a6d1",
            ),
            ("I/O error at /dev/sda1.", "I/O error at /dev/sda1."),
            (
                "changes with the token in k",
                "changes with the token [removed]",
            ),
            ("Password: hunter2", "Password [removed]"),
            ("x --iscsi-chap=f", "x  [removed]"),
            ("curl https://joe:pw@host/T0/B1", "curl [removed]"),
            ("read /srv/keys/a: denied", "read [removed] denied"),
            ("read (/srv/disk/../k)", "read ([removed])"),
            ("mail joe:pw@host now", "mail [removed] now"),
            ("isotherm@v.service: ready", "isotherm@v.service: ready"),
            ("key:4f9d1c77a0b3", "[removed]"),
            ("17 | extent = 4K # my own words", "17 | extent = 4K "),
            (
                "v.toml: TOML parse error at line 1: 1 | a # my own words: no",
                "v.toml: TOML parse error at line 1: 1 | a ",
            ),
            ("request #5 fails", "request #5 fails"),
            ("key `4f9d1c77a0b3`", "key `[removed]`"),
            ("plainwords: `se\"cret of joe`", "[removed]s: `[removed]`"),
        ] {
            assert_eq!(redactor().lines(line), shown);
        }
    }

    #[test]
    fn json_loses_what_is_known_in_every_form() {
        let value = json!({"a": "se\"cret of joe", "plainword": [1, "x /srv/other y"]});
        let shown = json!({"a": REMOVED, "[removed]": [1, "x [removed] y"]});
        assert_eq!(redactor().value(&value), shown);
        assert_eq!(
            redactor().known(r#"{"a":"se\"cret of joe"}"#),
            r#"{"a":"[removed]"}"#
        );
    }
}
