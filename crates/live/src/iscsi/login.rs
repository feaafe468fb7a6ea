//! Login of an initiator (RFC 7143, sections 6 and 13): security, then parameters. No I/O; challenges come from the caller.

use super::chap::{Secrets, hex, unhex};
use super::pdu::{self, Header, MAX_SEGMENT, Violation, add_pair, header, pairs, put};
use std::sync::Arc;

/// Maximum number of bytes of text from an initiator before it has logged in.
const MAX_TEXT: usize = 16 << 10;
/// Maximum number of requests in a login.
const MAX_STEPS: u32 = 32;
/// Maximum size of a burst of data that the target accepts, in bytes.
pub const MAX_BURST: u32 = 1 << 20;
/// Maximum amount of data that may arrive with a command, in bytes.
pub const FIRST_BURST: u32 = 64 << 10;

/// The identity of the target.
#[derive(Clone, Debug)]
pub struct Target {
    /// `iqn.…`
    pub name: String,
    /// The initiators that may log in; without secrets, all may.
    pub secrets: Option<Arc<Secrets>>,
}

/// The negotiated parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Name of the initiator.
    pub initiator: String,
    /// The session only discovers targets.
    pub discovery: bool,
    /// Maximum data segment that the initiator accepts, in bytes.
    pub max_send: u32,
    /// Maximum amount of data in one sequence, in bytes.
    pub max_burst: u32,
    /// Maximum amount of unsolicited data with a command, in bytes.
    pub first_burst: u32,
    /// Commands may carry data.
    pub immediate_data: bool,
}

/// The next action after a request.
#[derive(Debug)]
pub enum Step {
    /// Send this reply; the login continues.
    Reply(Header, Vec<u8>),
    /// Send this reply; the session has begun.
    Begin(Header, Vec<u8>),
    /// Send this reply and close the connection.
    Refuse(Header, &'static str),
}

/// State of an initiator's authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Proof {
    /// No authentication key has been received.
    Open,
    /// CHAP was chosen.
    Chosen,
    /// The challenge was sent.
    Challenged,
    /// The initiator is authenticated, or need not be.
    Done,
}

/// A login in progress.
#[derive(Clone, Debug)]
pub struct Login {
    target: Target,
    terms: Terms,
    proof: Proof,
    challenge: [u8; 16],
    challenge_id: u8,
    /// Handle of the future session.
    tsih: u16,
    text: Vec<u8>,
    steps: u32,
    named: bool,
    has_told_segment: bool,
    /// Identifier of the session, from the first request.
    isid: Option<[u8; 6]>,
}

/// The reason why a login is refused: class, detail, text.
type Refusal = (u8, u8, &'static str);

const INITIATOR_ERROR: Refusal = (2, 0, "the login contradicts the protocol");
const NOT_AUTHENTIC: Refusal = (2, 1, "it did not prove with CHAP who it is");

impl From<Violation> for Refusal {
    fn from(v: Violation) -> Refusal {
        (2, 0, v.0)
    }
}

impl Login {
    /// Starts a login that may lead to the session `tsih`; the challenge must be unpredictable.
    pub fn new(target: Target, tsih: u16, challenge_id: u8, challenge: [u8; 16]) -> Login {
        Login {
            target,
            terms: Terms {
                initiator: String::new(),
                discovery: false,
                max_send: 8192,
                max_burst: 256 << 10,
                first_burst: FIRST_BURST,
                immediate_data: true,
            },
            proof: Proof::Open,
            challenge,
            challenge_id,
            tsih,
            text: Vec::new(),
            steps: 0,
            named: false,
            has_told_segment: false,
            isid: None,
        }
    }

    /// The negotiated parameters; they are valid once the session has begun.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Answers one request. The caller inserts status and command numbers into the answer.
    pub fn step(&mut self, request: &pdu::Login, text: &[u8]) -> Step {
        match self.answer(request, text) {
            Ok(step) => step,
            Err((class, detail, why)) => {
                let mut b = self.reply(request, false);
                (b[36], b[37]) = (class, detail);
                Step::Refuse(b, why)
            }
        }
    }

    fn reply(&self, request: &pdu::Login, transit: bool) -> Header {
        let flags =
            u8::from(transit) << 7 | request.current << 2 | if transit { request.next } else { 0 };
        let mut b = header(0x23, flags, request.itt);
        b[8..14].copy_from_slice(&request.isid);
        let tsih = if transit && request.next == 3 {
            self.tsih
        } else {
            request.tsih
        };
        b[14..16].copy_from_slice(&tsih.to_be_bytes());
        b
    }

    fn answer(&mut self, request: &pdu::Login, text: &[u8]) -> Result<Step, Refusal> {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            return Err((2, 0, "the login does not end"));
        }
        if request.version_min > 0 {
            return Err((2, 5, "it speaks only later versions of iSCSI"));
        }
        if request.tsih != 0 {
            return Err((2, 0xa, "a session has one connection"));
        }
        if *self.isid.get_or_insert(request.isid) != request.isid || request.current > 1 {
            return Err(INITIATOR_ERROR);
        }
        if self.text.len() + text.len() > MAX_TEXT {
            return Err((2, 0, "the login has too much text"));
        }
        self.text.extend_from_slice(text);
        if request.more {
            return Ok(Step::Reply(self.reply(request, false), Vec::new()));
        }
        let text = std::mem::take(&mut self.text);
        let keys = pairs(&text)?;
        self.names(&keys)?;
        let mut out = Vec::new();
        let mut ready = true;
        if request.current == 0 {
            ready = self.security(&keys, &mut out)?;
        } else {
            if self.target.secrets.is_some() && self.proof != Proof::Done {
                return Err(NOT_AUTHENTIC);
            }
            if !self.has_told_segment {
                self.has_told_segment = true;
                add_pair(
                    &mut out,
                    "MaxRecvDataSegmentLength",
                    &MAX_SEGMENT.to_string(),
                );
            }
        }
        for (key, value) in &keys {
            self.parameter(key, value, &mut out)?;
        }
        let transit = request.transit && ready;
        if transit && !(request.next > request.current && request.next != 2) {
            return Err(INITIATOR_ERROR);
        }
        let b = self.reply(request, transit);
        Ok(if transit && request.next == 3 {
            Step::Begin(b, out)
        } else {
            Step::Reply(b, out)
        })
    }

    /// Reads the names of initiator and target, which are in the first complete request.
    fn names(&mut self, keys: &[(&str, &str)]) -> Result<(), Refusal> {
        let of = |key: &str| keys.iter().find(|k| k.0 == key).map(|k| k.1);
        if self.named {
            return Ok(());
        }
        let initiator = of("InitiatorName").filter(|n| !n.is_empty() && n.len() <= 223);
        let initiator = initiator.ok_or((2, 7, "it does not say its name"))?;
        initiator.clone_into(&mut self.terms.initiator);
        self.terms.discovery = of("SessionType") == Some("Discovery");
        match of("TargetName") {
            Some(name) if name.eq_ignore_ascii_case(&self.target.name) => {}
            None if self.terms.discovery => {}
            Some(_) => return Err((2, 3, "it asks for another target")),
            None => return Err((2, 7, "it does not say which target it wants")),
        }
        self.named = true;
        Ok(())
    }

    /// Executes one step of authentication. Returns true when it is complete.
    fn security(&mut self, keys: &[(&str, &str)], out: &mut Vec<u8>) -> Result<bool, Refusal> {
        let of = |key: &str| keys.iter().find(|k| k.0 == key).map(|k| k.1);
        let offers =
            |method: &str| of("AuthMethod").is_some_and(|m| m.split(',').any(|m| m == method));
        let Some(secrets) = self.target.secrets.clone() else {
            if of("AuthMethod").is_some() {
                if !offers("None") {
                    return Err((2, 1, "it wants a password, and the target has none"));
                }
                add_pair(out, "AuthMethod", "None");
            }
            self.proof = Proof::Done;
            self.portal_group(out);
            return Ok(true);
        };
        match self.proof {
            Proof::Open if offers("CHAP") => {
                add_pair(out, "AuthMethod", "CHAP");
                self.portal_group(out);
                self.proof = Proof::Chosen;
            }
            // An initiator may send its name first.
            Proof::Open if of("AuthMethod").is_none() => self.portal_group(out),
            Proof::Chosen if of("CHAP_A").is_some_and(|a| a.split(',').any(|a| a == "5")) => {
                add_pair(out, "CHAP_A", "5");
                add_pair(out, "CHAP_I", &self.challenge_id.to_string());
                add_pair(out, "CHAP_C", &hex(&self.challenge));
                self.proof = Proof::Challenged;
            }
            Proof::Challenged => {
                let name = of("CHAP_N").ok_or(NOT_AUTHENTIC)?;
                let response = of("CHAP_R").and_then(unhex).ok_or(NOT_AUTHENTIC)?;
                if !secrets.is_right(name, self.challenge_id, &self.challenge, &response) {
                    return Err(NOT_AUTHENTIC);
                }
                self.prove(&secrets, of("CHAP_I").zip(of("CHAP_C")), out)?;
                self.proof = Proof::Done;
            }
            Proof::Done => {}
            _ => return Err(NOT_AUTHENTIC),
        }
        Ok(self.proof == Proof::Done)
    }

    /// Answers the initiator's own challenge.
    fn prove(
        &self,
        secrets: &Secrets,
        asked: Option<(&str, &str)>,
        out: &mut Vec<u8>,
    ) -> Result<(), Refusal> {
        let Some((id, challenge)) = asked else {
            return Ok(());
        };
        let id = id.parse::<u8>().map_err(|_| NOT_AUTHENTIC)?;
        let challenge = unhex(challenge).ok_or(NOT_AUTHENTIC)?;
        // An initiator that sends our challenge back wants us to compute its answer.
        if challenge == self.challenge {
            return Err(NOT_AUTHENTIC);
        }
        let (name, response) = (secrets.own(id, &challenge)).ok_or((
            2,
            1,
            "it asks who the target is, and there is no `mutual` secret",
        ))?;
        add_pair(out, "CHAP_N", name);
        add_pair(out, "CHAP_R", &hex(&response));
        Ok(())
    }

    fn portal_group(&self, out: &mut Vec<u8>) {
        if !self.terms.discovery {
            add_pair(out, "TargetPortalGroupTag", "1");
        }
    }

    /// One key of RFC 7143, section 13.
    fn parameter(&mut self, key: &str, value: &str, out: &mut Vec<u8>) -> Result<(), Refusal> {
        let number = || {
            let n = value.strip_prefix("0x").map_or_else(
                || value.parse::<u32>(),
                |digits| u32::from_str_radix(digits, 16),
            );
            n.map_err(|_| (2u8, 0u8, "a parameter is no number"))
        };
        let segment = |n: u32| {
            let fits = (512..=0xff_ffff).contains(&n);
            fits.then_some(n)
                .ok_or((2u8, 0u8, "a length is out of its range"))
        };
        let answer = match key {
            "InitiatorName" | "TargetName" | "SessionType" | "InitiatorAlias" | "AuthMethod" => {
                return Ok(());
            }
            _ if key.starts_with("CHAP_") => return Ok(()),
            // These are answers to our keys.
            _ if matches!(value, "NotUnderstood" | "Irrelevant" | "Reject") => return Ok(()),
            "MaxRecvDataSegmentLength" => {
                self.terms.max_send = segment(number()?)?;
                return Ok(());
            }
            "HeaderDigest" | "DataDigest" => {
                let none = value.split(',').any(|d| d == "None");
                if none { "None" } else { "Reject" }.into()
            }
            "MaxBurstLength" => {
                self.terms.max_burst = segment(number()?)?.min(MAX_BURST);
                self.terms.max_burst.to_string()
            }
            "FirstBurstLength" => {
                self.terms.first_burst = segment(number()?)?.min(FIRST_BURST);
                self.terms.first_burst.to_string()
            }
            "ImmediateData" => {
                self.terms.immediate_data = value == "Yes";
                value.into()
            }
            "InitialR2T" | "DataPDUInOrder" | "DataSequenceInOrder" => "Yes".into(),
            "IFMarker" | "OFMarker" => "No".into(),
            "MaxConnections" | "MaxOutstandingR2T" => number()?.min(1).to_string(),
            "ErrorRecoveryLevel" | "DefaultTime2Retain" => number().map(|_| "0".into())?,
            "DefaultTime2Wait" => number()?.min(3600).to_string(),
            _ => "NotUnderstood".into(),
        };
        add_pair(out, key, &answer);
        Ok(())
    }
}

/// Inserts the numbers into the first header of the answer.
pub fn numbered(mut b: Header, stat_sn: u32, exp_cmd_sn: u32, max_cmd_sn: u32) -> Header {
    put(&mut b, 24, stat_sn);
    put(&mut b, 28, exp_cmd_sn);
    put(&mut b, 32, max_cmd_sn);
    b
}

#[cfg(test)]
#[path = "login_tests.rs"]
mod tests;
