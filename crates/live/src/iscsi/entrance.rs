//! The login of a peer on its connection.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::input::Input;
use super::login::{Login, Step, Terms, numbered};
use super::outbox::{Outbox, WINDOW};
use super::pdu::{self, Header, Incoming, What, put_data_len};
use super::reservations::Nexus;
use super::session::Session;
use super::shared::{End, Shared};

/// A session that has begun, with the next status number of its writer.
pub(super) struct Begun {
    pub session: Session,
    pub stat_sn: u32,
    pub terms: Terms,
}

/// Receives a login request with its text.
fn receive(input: &mut Input, limit: Duration) -> Result<(pdu::Login, Vec<u8>), End> {
    let lost = |e: io::Error| match e.kind() {
        io::ErrorKind::TimedOut => End::Stalled,
        _ => End::Lost,
    };
    input.set_receive_timeout(limit).map_err(|_| End::Lost)?;
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

/// Lets a peer log in.
pub(super) fn login(
    shared: &Arc<Shared>,
    outbox: &Arc<Outbox>,
    tsih: u16,
    challenge: (u8, [u8; 16]),
) -> Result<Begun, End> {
    let socket = || outbox.socket().try_clone().map_err(|_| End::Lost);
    let mut input = Input::new(socket()?);
    let time_limits = shared.config.time_limits;
    input.until = Some(Instant::now() + time_limits.handshake);
    let target = shared.target();
    let mut login = Login::new(target, tsih, challenge.0, challenge.1);
    let mut stat_sn = None;
    let mut nexus = Nexus::default();
    loop {
        let (request, text) = receive(&mut input, time_limits.handshake)?;
        let step = login.step(&request, &text);
        if let Step::Begin(..) = step {
            outbox.begin(request.cmd_sn);
            let terms = login.terms();
            nexus.initiator.clone_from(&terms.initiator);
            nexus.isid = request.isid;
            shared.enter(outbox, &nexus, terms.discovery);
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
                input.until = None;
                input
                    .set_receive_timeout(time_limits.transmission)
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
