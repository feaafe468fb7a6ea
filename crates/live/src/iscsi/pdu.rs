//! Protocol data units (RFC 7143, section 11): received PDUs as fields, PDUs to send as bytes. No I/O, no clock.

/// Bytes of a basic header.
pub const HEADER: usize = 48;
/// Largest data segment that a peer may send, bytes (our `MaxRecvDataSegmentLength`).
pub const MAX_SEGMENT: usize = 256 << 10;
/// A tag that names nothing.
pub const NO_TAG: u32 = u32::MAX;

/// The bytes of a basic header.
pub type Header = [u8; HEADER];

/// A violation of the protocol by the peer, as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation(pub &'static str);

/// Position of a command in the order of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Its number.
    pub cmd_sn: u32,
    /// The command is executed at once, outside of the order, and uses no number.
    pub immediate: bool,
}

/// A SCSI command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// See [`Order`].
    pub order: Order,
    /// The initiator's tag for the command.
    pub itt: u32,
    /// Logical unit, as on the wire.
    pub lun: u64,
    /// The initiator expects data.
    pub read: bool,
    /// The initiator has data.
    pub write: bool,
    /// No unsolicited data follows this PDU.
    pub last: bool,
    /// Number of bytes that the initiator wants to transfer.
    pub expected: u32,
    /// The command descriptor block.
    pub cdb: [u8; 16],
}

/// A login request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Login {
    /// The initiator requests the transition to `next`.
    pub transit: bool,
    /// The text continues in the next PDU.
    pub more: bool,
    /// Current stage: 0 security, 1 operational, 3 full feature.
    pub current: u8,
    /// Next stage.
    pub next: u8,
    /// Lowest version that the initiator supports; ours is 0.
    pub version_min: u8,
    /// The initiator's part of the session identifier.
    pub isid: [u8; 6],
    /// The target's part; 0 for a new session.
    pub tsih: u16,
    /// See [`Command::itt`].
    pub itt: u32,
    /// Connection.
    pub cid: u16,
    /// First command number.
    pub cmd_sn: u32,
    /// Status number that the initiator expects next.
    pub exp_stat_sn: u32,
}

/// The contents of a PDU from an initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A ping, or the answer to ours.
    Nop {
        /// See [`Order`].
        order: Order,
        /// With [`NO_TAG`] no answer is expected.
        itt: u32,
        /// Logical unit.
        lun: u64,
    },
    /// See [`Command`].
    Command(Command),
    /// A task management request.
    Task {
        /// See [`Order`].
        order: Order,
        /// Tag of the request itself.
        itt: u32,
        /// 1 abort task … 8 reassign.
        function: u8,
        /// Logical unit.
        lun: u64,
        /// Tag of the task to which the request refers.
        about: u32,
    },
    /// See [`Login`].
    Login(Login),
    /// Key-value negotiation.
    Text {
        /// See [`Order`].
        order: Order,
        /// Tag of the request.
        itt: u32,
        /// The text continues in the next PDU.
        more: bool,
    },
    /// Data that the target requested.
    Data {
        /// Tag of the command to which the data belongs.
        itt: u32,
        /// The target's tag for the transfer.
        ttt: u32,
        /// Number of this PDU in its burst.
        data_sn: u32,
        /// Offset in the command's data.
        offset: u32,
        /// This is the last PDU of its burst.
        last: bool,
    },
    /// The end of a session.
    Logout {
        /// See [`Order`].
        order: Order,
        /// Tag of the request.
        itt: u32,
        /// 0 session, 1 connection, 2 recovery.
        reason: u8,
    },
    /// An operation that is not supported.
    Unknown {
        /// See [`Order`].
        order: Order,
    },
}

/// One PDU of an initiator without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// Bytes of additional headers behind the basic one.
    pub more_header: usize,
    /// Bytes of data behind those, at most [`MAX_SEGMENT`].
    pub data: usize,
    /// Bytes behind the data that fill up the last word.
    pub padding: usize,
    /// The contents.
    pub what: What,
}

fn u16_at(b: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([b[at], b[at + 1]])
}

/// Four bytes at `at`; the caller has checked that they exist.
pub fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

/// Eight bytes at `at`; the caller has checked that they exist.
pub fn u64_at(b: &[u8], at: usize) -> u64 {
    u64::from(u32_at(b, at)) << 32 | u64::from(u32_at(b, at + 4))
}

impl Incoming {
    /// Reads a header.
    ///
    /// # Errors
    /// The data is larger than negotiated, or fields contradict each other; the connection must be closed.
    pub fn parse(b: &Header) -> Result<Incoming, Violation> {
        let data = (u32_at(b, 4) & 0xff_ffff) as usize;
        if data > MAX_SEGMENT {
            return Err(Violation("a data segment is longer than was agreed on"));
        }
        let order = Order {
            cmd_sn: u32_at(b, 24),
            immediate: b[0] & 0x40 != 0,
        };
        let (itt, lun) = (u32_at(b, 16), u64_at(b, 8));
        let is_last = b[1] & 0x80 != 0;
        let what = match b[0] & 0x3f {
            0x00 => What::Nop { order, itt, lun },
            0x01 => What::Command(command(b, order)?),
            0x02 => What::Task {
                order,
                itt,
                function: b[1] & 0x7f,
                lun,
                about: u32_at(b, 20),
            },
            0x03 => What::Login(login(b)),
            0x04 => What::Text {
                order,
                itt,
                more: b[1] & 0x40 != 0,
            },
            0x05 => What::Data {
                itt,
                ttt: u32_at(b, 20),
                data_sn: u32_at(b, 36),
                offset: u32_at(b, 40),
                last: is_last,
            },
            0x06 => What::Logout {
                order,
                itt,
                reason: b[1] & 0x7f,
            },
            _ => What::Unknown { order },
        };
        Ok(Incoming {
            more_header: usize::from(b[4]) * 4,
            data,
            padding: data.wrapping_neg() & 3,
            what,
        })
    }
}

fn command(b: &Header, order: Order) -> Result<Command, Violation> {
    let mut cdb = [0; 16];
    cdb.copy_from_slice(&b[32..48]);
    let c = Command {
        order,
        itt: u32_at(b, 16),
        lun: u64_at(b, 8),
        read: b[1] & 0x40 != 0,
        write: b[1] & 0x20 != 0,
        last: b[1] & 0x80 != 0,
        expected: u32_at(b, 20),
        cdb,
    };
    if c.itt == NO_TAG {
        return Err(Violation("a command without a tag"));
    }
    Ok(c)
}

fn login(b: &Header) -> Login {
    let mut isid = [0; 6];
    isid.copy_from_slice(&b[8..14]);
    Login {
        transit: b[1] & 0x80 != 0,
        more: b[1] & 0x40 != 0,
        current: b[1] >> 2 & 3,
        next: b[1] & 3,
        version_min: b[3],
        isid,
        tsih: u16_at(b, 14),
        itt: u32_at(b, 16),
        cid: u16_at(b, 20),
        cmd_sn: u32_at(b, 24),
        exp_stat_sn: u32_at(b, 28),
    }
}

/// A header for an answer: operation, flags, and the tag of the request. Status and command numbers are inserted when it is sent.
pub fn header(opcode: u8, flags: u8, itt: u32) -> Header {
    let mut b = [0; HEADER];
    (b[0], b[1]) = (opcode, flags);
    put(&mut b, 16, itt);
    b
}

/// Puts four bytes into a header.
pub fn put(b: &mut Header, at: usize, value: u32) {
    b[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

/// Sets the length of the data that follows the header.
pub fn put_data_len(b: &mut Header, len: usize) {
    b[5..8].copy_from_slice(&(len as u32).to_be_bytes()[1..]);
}

/// Splits `key=value` pairs, each of which ends with a zero byte.
///
/// # Errors
/// A pair has no `=`, or the bytes are not text.
pub fn pairs(text: &[u8]) -> Result<Vec<(&str, &str)>, Violation> {
    let whole = text.split(|b| *b == 0).filter(|p| !p.is_empty());
    whole
        .map(|p| {
            let text = std::str::from_utf8(p).map_err(|_| Violation("a key is no text"))?;
            text.split_once('=')
                .ok_or(Violation("a key without a value"))
        })
        .collect()
}

/// Adds a pair.
pub fn add_pair(to: &mut Vec<u8>, key: &str, value: &str) {
    to.extend_from_slice(key.as_bytes());
    to.push(b'=');
    to.extend_from_slice(value.as_bytes());
    to.push(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_read_field_by_field() {
        let mut b = header(0x41, 0xe1, 7);
        b[9] = 3;
        put(&mut b, 20, 4096);
        put(&mut b, 24, 11);
        b[32] = 0x28;
        put_data_len(&mut b, 5);
        let p = Incoming::parse(&b).expect("valid");
        assert_eq!((p.data, p.padding, p.more_header), (5, 3, 0));
        let What::Command(c) = p.what else {
            panic!("{p:?}")
        };
        assert!(c.read && c.write && c.last && c.order.immediate);
        assert_eq!(
            (c.itt, c.lun, c.expected, c.order.cmd_sn),
            (7, 3 << 48, 4096, 11)
        );
        assert_eq!(c.cdb[0], 0x28);
    }

    #[test]
    fn too_much_data_and_a_missing_tag_end_the_connection() {
        let mut b = header(0x05, 0x80, 1);
        put_data_len(&mut b, MAX_SEGMENT);
        assert!(Incoming::parse(&b).is_ok());
        put_data_len(&mut b, MAX_SEGMENT + 1);
        assert!(Incoming::parse(&b).is_err());
        assert!(Incoming::parse(&header(0x01, 0x80, NO_TAG)).is_err());
    }

    #[test]
    fn pairs_come_apart_and_together() {
        let mut text = Vec::new();
        add_pair(&mut text, "A", "1");
        add_pair(&mut text, "B", "x=y");
        assert_eq!(pairs(&text), Ok(vec![("A", "1"), ("B", "x=y")]));
        assert!(pairs(b"nothing\0").is_err());
        assert!(pairs(&[0xff, b'=', 0]).is_err());
    }
}
