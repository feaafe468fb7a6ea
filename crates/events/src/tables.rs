//! Codes of operations and errors in an events file: the index in these lists (`docs/events-format.md`).

use isotherm_core::{IoError, OpKind, RequestOp};

pub(super) const OPS: [RequestOp; 6] = [
    RequestOp::Read,
    RequestOp::Write,
    RequestOp::Flush,
    RequestOp::Discard,
    RequestOp::WriteZeroes { keep: false },
    RequestOp::WriteZeroes { keep: true },
];
pub(super) const KINDS: [OpKind; 6] = [
    OpKind::Read,
    OpKind::Write,
    OpKind::Flush,
    OpKind::Discard,
    OpKind::WriteZeroes,
    OpKind::Standby,
];
pub(super) const ERRORS: [IoError; 5] = [
    IoError::Io,
    IoError::NoSpace,
    IoError::Invalid,
    IoError::ReadOnly,
    IoError::Gone,
];
