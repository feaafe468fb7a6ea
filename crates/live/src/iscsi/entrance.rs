//! The login of a peer on its connection.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Instant;

use super::input::Input;
use super::login::{Login, Step, Terms, numbered};
use super::outbox::{Outbox, WINDOW};
use super::pdu::{self, Header, Incoming, What, put_data_len};
use super::reservations::Nexus;
use super::session::Session;
use super::shared::{End, Shared};
use crate::newcomers::Newcomer;

/// A session that has begun, with the next status number of its writer.
pub(super) struct Begun {
    pub session: Session,
    pub stat_sn: u32,
    pub terms: Terms,
}

/// Receives a login request with its text.
fn receive(input: &mut Input) -> Result<(pdu::Login, Vec<u8>), End> {
    let lost = |e: io::Error| match e.kind() {
        io::ErrorKind::TimedOut => End::Stalled,
        _ => End::Lost,
    };
    let b = input.header(false).map_err(lost)?.ok_or(End::Eof)?;
    let incoming = Incoming::parse(&b).map_err(|v| End::Violation(v.0))?;
    let What::Login(request) = incoming.what else {
        return Err(End::Violation("a request before the login"));
    };
    let mut text = vec![0; incoming.data.min(16 << 10)];
    if text.len() != incoming.data {
        return Err(End::Violation("a login with too much text"));
    }
    input.skip(incoming.more_header).map_err(lost)?;
    input.fill(&mut text).map_err(lost)?;
    input.skip(incoming.padding).map_err(lost)?;
    Ok((request, text))
}

/// Sends a login response with its text.
fn send(outbox: &Outbox, header: &mut Header, text: &[u8]) -> Result<(), End> {
    put_data_len(header, text.len());
    let mut bytes = header.to_vec();
    bytes.extend_from_slice(text);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let mut to = outbox.socket();
    to.write_all(&bytes).map_err(|_| End::Lost)
}

/// The answer to a login that is complete but for which there is no place: service unavailable.
fn unavailable(mut b: Header) -> Header {
    // No transition to the next stage, and no handle of a session.
    b[1] &= 0x0c;
    b[14..16].fill(0);
    (b[36], b[37]) = (3, 1);
    b
}

/// Lets a peer log in; until then it is a newcomer.
pub(super) fn login(
    shared: &Arc<Shared>,
    outbox: &Arc<Outbox>,
    newcomer: Newcomer,
    challenge: (u8, [u8; 16]),
) -> Result<Begun, End> {
    let socket = || outbox.socket().try_clone().map_err(|_| End::Lost);
    let time_limits = shared.config.time_limits;
    let mut input = Input::new(socket()?, Instant::now() + time_limits.handshake);
    let (target, tsih) = (shared.target(), shared.next_tsih());
    let mut newcomer = Some(newcomer);
    let mut login = Login::new(target, tsih, challenge.0, challenge.1);
    let mut stat_sn = None;
    let mut nexus = Nexus::default();
    loop {
        let (request, text) = receive(&mut input)?;
        let mut step = login.step(&request, &text);
        if let Step::Begin(b, _) = &step {
            outbox.begin(request.cmd_sn);
            let terms = login.terms();
            nexus.initiator.clone_from(&terms.initiator);
            nexus.isid = request.isid;
            // It may have to wait for its older session, and needs not give way meanwhile.
            drop(newcomer.take());
            if let Err(why) = shared.enter(outbox, &nexus, terms.discovery) {
                step = Step::Refuse(unavailable(*b), why);
            }
        }
        let stat = stat_sn.get_or_insert(request.exp_stat_sn);
        let window = (request.cmd_sn, request.cmd_sn.wrapping_add(WINDOW - 1));
        let (mut b, text, ends) = match step {
            Step::Reply(b, text) => (numbered(b, *stat, window.0, window.1), text, None),
            Step::Begin(b, text) => (numbered(b, *stat, window.0, window.1), text, Some(Ok(()))),
            Step::Refuse(b, why) => (
                numbered(b, *stat, window.0, window.1),
                Vec::new(),
                Some(Err(why)),
            ),
        };
        *stat = stat.wrapping_add(1);
        send(outbox, &mut b, &text)?;
        match ends {
            None => {}
            Some(Err(why)) => return Err(End::Refused(why)),
            Some(Ok(())) => {
                input
                    .log_in(time_limits.transmission)
                    .map_err(|_| End::Lost)?;
                let (terms, stat_sn) = (login.terms().clone(), *stat);
                let session = Session {
                    shared: Arc::clone(shared),
                    share: shared.port.share(),
                    input,
                    outbox: Arc::clone(outbox),
                    terms: terms.clone(),
                    nexus,
                    transfers: Vec::new(),
                    held: VecDeque::new(),
                    next_ttt: 1,
                    text: Vec::new(),
                    logged_out: false,
                };
                return Ok(Begun {
                    session,
                    stat_sn,
                    terms,
                });
            }
        }
    }
}
