//! The number of the kernel's queues, and the memory that their entries need.

use super::LARGEST;

/// Memory for payloads on a machine with few processors, in bytes.
const MEMORY: usize = 32 << 20;
/// Least number of entries of a queue. A loop device sends all its requests to the queue of one processor, and those beyond the entries of
/// this queue wait in the kernel (`docs/design/flush-and-threads.md`).
const ENTRIES_MIN: usize = 16;
/// With more queues the ring is not used, because its entries would take more than 128 MiB.
const QUEUES_MAX: usize = 32;
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";

/// Bytes of payload memory that the ring needs on this machine; 0 if it is not to be used.
pub(crate) fn memory() -> usize {
    memory_for(queues())
}

pub(super) fn memory_for(queues: usize) -> usize {
    match queues {
        0 => 0,
        n if n > QUEUES_MAX => 0,
        n => n * per_queue(n) * LARGEST as usize,
    }
}

/// Number of entries of each queue.
pub(super) fn per_queue(queues: usize) -> usize {
    (MEMORY / LARGEST as usize / queues).max(ENTRIES_MIN)
}

/// Processors that this machine may ever have, each of which has a queue.
pub(super) fn queues() -> usize {
    std::fs::read_to_string(POSSIBLE).map_or(0, |list| count(list.trim()))
}

/// The length of a list such as `0-3,8`; 0 if the text is no list.
pub(super) fn count(list: &str) -> usize {
    let mut sum = 0;
    for part in list.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        match (from.parse::<usize>(), to.parse::<usize>()) {
            (Ok(from), Ok(to)) if from <= to => sum += to - from + 1,
            _ => return 0,
        }
    }
    sum
}
