//! The reasons why SCSI commands fail.

use isotherm_core::IoError;

/// Bytes of sense data.
pub const SENSE: usize = 18;

/// The reason why a command fails: key, additional code and qualifier (SPC-4, tables 48 and 49).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sense(pub u8, pub u8, pub u8);

impl Sense {
    /// The operation is not supported.
    pub const OPCODE: Sense = Sense(5, 0x20, 0);
    /// A field of the command is wrong.
    pub const FIELD: Sense = Sense(5, 0x24, 0);
    /// A field of the command's data is wrong.
    pub const PARAMETER: Sense = Sense(5, 0x26, 0);
    /// The data is shorter than its length field states.
    pub const LENGTH: Sense = Sense(5, 0x1a, 0);
    /// The range goes beyond the last block.
    pub const RANGE: Sense = Sense(5, 0x21, 0);
    /// No such logical unit.
    pub const UNIT: Sense = Sense(5, 0x25, 0);
    /// Writes are refused.
    pub const PROTECTED: Sense = Sense(7, 0x27, 0);
    /// The blocks differ from the data of the command.
    pub const DIFFERS: Sense = Sense(14, 0x1d, 0);
    /// Data from the initiator was lost.
    pub const DATA_PHASE: Sense = Sense(11, 0x4b, 0);

    /// Unit attention: the number of blocks has changed.
    pub const CAPACITY: Sense = Sense(6, 0x2a, 9);
    /// Unit attention: another initiator cleared all registrations.
    pub const PREEMPTED: Sense = Sense(6, 0x2a, 3);
    /// Unit attention: the reservation that this registrant shared was released.
    pub const RELEASED: Sense = Sense(6, 0x2a, 4);
    /// Unit attention: another initiator removed the registration.
    pub const UNREGISTERED: Sense = Sense(6, 0x2a, 5);

    /// The sense data for an error of the volume.
    pub fn of(error: IoError, reading: bool) -> Sense {
        match error {
            IoError::Invalid => Sense::RANGE,
            IoError::ReadOnly => Sense::PROTECTED,
            // Space allocation failed write protect.
            IoError::NoSpace => Sense(7, 0x27, 7),
            // Logical unit not ready.
            IoError::Gone => Sense(2, 4, 0),
            IoError::Io if reading => Sense(3, 0x11, 0),
            IoError::Io => Sense(3, 0xc, 0),
        }
    }

    /// The sense data in fixed format.
    pub fn bytes(self) -> [u8; SENSE] {
        let mut b = [0; SENSE];
        (b[0], b[2], b[7], b[12], b[13]) = (0x70, self.0, 10, self.1, self.2);
        b
    }
}
