//! A request in flight.

use isotherm_core::{Request, RequestOp};

/// A request in flight, or a place for one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flight {
    pub arrived: u64,
    pub offset: u64,
    pub len: u32,
    pub kind: Kind,
    pub class: u8,
    pub counts: bool,
    /// Index of its record in the trace.
    pub number: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    #[default]
    Other,
}

impl Flight {
    /// Whether it touches a byte of `r`, and one of the two writes.
    pub fn conflicts(&self, r: &Request) -> bool {
        let (from, to) = (r.offset, r.offset + u64::from(r.len));
        let touches = self.offset < to && from < self.offset + u64::from(self.len);
        touches
            && (self.kind == Kind::Write || (r.op == RequestOp::Write && self.kind == Kind::Read))
    }

    /// The request is answered.
    pub fn over(&mut self) {
        self.kind = Kind::Other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isotherm_core::Tag;

    #[test]
    fn only_what_overlaps_a_write_conflicts() {
        let at = |op, offset| Request {
            tag: Tag(0),
            op,
            offset,
            len: 4096,
            fua: false,
            class: 0,
        };
        let mut f = Flight {
            offset: 4096,
            len: 8192,
            kind: Kind::Read,
            ..Flight::default()
        };
        let (read, write) = (RequestOp::Read, RequestOp::Write);
        assert!(!f.conflicts(&at(read, 8192)) && f.conflicts(&at(write, 8192)));
        f.kind = Kind::Write;
        assert!(f.conflicts(&at(read, 8192)) && f.conflicts(&at(write, 4096)));
        assert!(!f.conflicts(&at(write, 0)) && !f.conflicts(&at(write, 12288)));
        f.over();
        assert!(!f.conflicts(&at(write, 8192)));
    }
}
