//! FUSE's switch for io_uring, which all processes of the machine share.

use std::fs::File;

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// The switch, switched on; dropping the value restores it. One test on the machine has it at a time: else the end of one test, in whichever
/// process, would switch it off for another.
pub struct FuseRing {
    before: Vec<u8>,
    _alone: File,
}

impl FuseRing {
    /// `None`, with a message, if there is no such switch or if it cannot be turned on.
    pub fn on() -> Option<FuseRing> {
        let on = || {
            let file = File::open(SWITCH).ok()?;
            rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).ok()?;
            let before = std::fs::read(SWITCH).ok()?;
            std::fs::write(SWITCH, "Y").ok()?;
            Some(FuseRing {
                before,
                _alone: file,
            })
        };
        let ring = on();
        if ring.is_none() {
            eprintln!("skipped: this kernel has no FUSE over io_uring, or it cannot be turned on");
        }
        ring
    }
    /// Switches it off early, in a test that has it.
    pub fn off() {
        std::fs::write(SWITCH, "N").expect("it could be switched on");
    }
}

impl Drop for FuseRing {
    fn drop(&mut self) {
        let _ = std::fs::write(SWITCH, &self.before);
    }
}
