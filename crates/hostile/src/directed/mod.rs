//! Directed scenes: each brings a volume, step by step, into exactly the state in which a safety rule matters. Random scenarios meet such a
//! state once in thousands of seeds, or never; a scene meets it every time, in milliseconds.
//!
//! | file | scenes about |
//! |---|---|
//! | `stage.rs`, `ends.rs`, `scripted.rs` | no scenes: the volume, its members, its clients and its policy, which a scene controls |
//! | `recovery.rs` | opening: effects of a power loss during recovery, or of a damaged block |
//! | `ahead.rs` | rounds that begin before a FLUSH asks for them |
//! | `asked.rs` | dirty data that the user wants at home |
//! | `kept.rs` | writes that must survive a kill of the server |
//! | `gather.rs` | FLUSHes that wait for writes in progress |
//! | `rounds.rs` | rounds, checkpoints, the mirror, slots that are used again |
//! | `copies.rs` | copies: dirty blocks, cleans, discards |
//! | `counters.rs` | members that are written to while nothing needs a round |
//! | `adoption.rs` | a disk that is adopted with its data |
//! | `claims.rs` | records that go on naming a copy after it was cleaned |
//! | `clean_claims.rs` | records that claim that copies are clean |
//! | `cache_ends.rs` | a cache that ends while the volume is served |
//! | `lists.rs` | data that was lost with flash |
//! | `long_lists.rs` | lists of a disk of several chunks |
//! | `final_records.rs` | sessions that end without a checkpoint |
//! | `successors.rs` | devices that take the place of a member |
//! | `growths.rs` | growths that are abandoned |
//! | `flash_growths.rs` | flash that has become larger |
//! | `flash_members.rs` | flash devices that join or leave |
//! | `fills.rs` | zeros if there is no memory for bitmaps |

mod adoption;
mod ahead;
mod asked;
mod behind;
mod cache_ends;
mod caches;
mod claims;
mod clean_claims;
mod copies;
mod counters;
mod ends;
mod fills;
mod final_records;
mod flash_growths;
mod flash_members;
mod gather;
mod growths;
mod kept;
mod lists;
mod long_lists;
mod openings;
mod recovery;
mod rounds;
mod scripted;
mod stage;
mod successors;

pub use flash_members::cut_changes;
use isotherm_core::engine::Mutant;
pub use openings::cut_openings;

/// A scene. It runs with one rule removed, or with all rules.
///
/// # Errors
/// The fault that was found at its end.
pub type Scene = fn(Option<Mutant>) -> Result<(), String>;

/// All scenes, by name.
pub const SCENES: [(&str, Scene); 127] = [
    (
        "openings with and without flash are cut",
        openings::cut_with_and_without,
    ),
    ("members that were served apart", openings::served_apart),
    (
        "flash returns after openings that were cut",
        openings::served_without,
    ),
    ("dirty data has an age", asked::has_an_age),
    ("dirty data has a limit", asked::has_a_limit),
    (
        "a sleeping disk is woken at the limit of dirty data",
        asked::wakes_at_the_limit,
    ),
    (
        "what was asked home may be lost with flash",
        asked::may_be_lost_with_flash,
    ),
    (
        "what was asked home goes there under another policy",
        asked::survives_a_switch,
    ),
    ("power is lost while a cache ends", cache_ends::cut),
    (
        "a volume goes on after the end of its cache",
        cache_ends::goes_on,
    ),
    ("flash that failed cannot be read", cache_ends::unreadable),
    (
        "a volume that cannot go on without its flash",
        cache_ends::given_up,
    ),
    ("lost data is written again", lists::written_again),
    ("a page of a list without its data", lists::page_before_data),
    ("a FUA write of lost data", lists::forced),
    ("a round ahead of a page", lists::ahead),
    ("a close with lost data", lists::closed),
    ("half of a lost block is written", lists::in_part),
    ("a write of lost data that fails", lists::failed_write),
    ("power is lost while a list is made", lists::cut),
    ("data is lost twice", lists::twice),
    ("other flash after a loss", lists::no_copies),
    (
        "all data is wanted on flash after a loss",
        lists::not_warmed,
    ),
    ("a loss that is accepted later", lists::accepted),
    ("a damaged list", lists::list_is_damaged),
    ("a list that does not fit", long_lists::too_long),
    (
        "a list of regions that does not fit",
        long_lists::too_many_regions,
    ),
    ("a list with a damaged page", long_lists::damaged),
    (
        "discarded blocks are written at the home",
        caches::written_past_discarded,
    ),
    ("a home of a cache volume stays", caches::a_home_stays),
    (
        "a process dies while it closes",
        recovery::dies_while_closing,
    ),
    ("a lost session comes back", recovery::lost_session),
    (
        "power is lost while the mirror is mended",
        recovery::mending_is_cut,
    ),
    (
        "a damaged checkpoint's number",
        recovery::damaged_checkpoint,
    ),
    (
        "a journal that is longer than the ring",
        recovery::longer_than_the_ring,
    ),
    (
        "an older first superblock",
        recovery::older_first_superblock,
    ),
    ("what was mended is durable", recovery::mended_is_durable),
    (
        "power is lost at each step of an opening",
        recovery::opening_is_cut,
    ),
    (
        "the only whole superblock is torn",
        recovery::last_superblock_is_torn,
    ),
    (
        "the end of a session is only in caches",
        recovery::closed_only_in_caches,
    ),
    ("a member that was left behind", recovery::left_behind),
    (
        "a failed round while a write waits for a slot",
        rounds::fails_with_waiting_write,
    ),
    (
        "a slot of the primary used again",
        rounds::primary_slot_again,
    ),
    (
        "the slot of a cleaned copy used again",
        rounds::cleaned_slot_again,
    ),
    ("a slow slot used again", rounds::slow_slot_again),
    ("moves side by side", rounds::joined_moves),
    ("a joined operation that fails", rounds::joined_failure),
    ("a FLUSH that comes during a round", rounds::late_flush),
    ("a write that ends during a flush", rounds::late_write),
    ("a write after a round that began ahead", ahead::late_write),
    ("rounds ahead of many FLUSHes", ahead::again_and_again),
    ("a FLUSH that waited for a write", gather::is_flushed),
    (
        "a FLUSH that waits for a write that does not end",
        gather::ends,
    ),
    (
        "a first write before a round that began ahead",
        ahead::new_extent,
    ),
    (
        "a forced rewrite of a copy whose region has no mark",
        claims::forced_unmarked,
    ),
    (
        "a forced rewrite of a copy whose record is withdrawn",
        claims::forced_while_it_rests,
    ),
    (
        "a round that began ahead without a mark",
        caches::ahead_without_mark,
    ),
    (
        "a kill after writes whose records are only kept",
        kept::killed,
    ),
    ("a FUA write whose record is only kept", kept::forced),
    (
        "power is lost while kept records are restored",
        kept::restoring_is_cut,
    ),
    (
        "kept writes where a lost session was",
        kept::over_a_lost_session,
    ),
    (
        "a kept write beside a round with a move",
        kept::beside_a_move,
    ),
    ("a move after a kept write", kept::before_a_move),
    ("writes without a FLUSH", counters::raised_without_flush),
    ("writes while flash sleeps", counters::raised_when_awake),
    ("a mirror with a gap", rounds::mirror_gap),
    (
        "a change while a checkpoint is written",
        rounds::change_meanwhile,
    ),
    ("a checkpoint of full blocks", rounds::full_blocks),
    ("a first write that fails", rounds::failed_write),
    (
        "a copy that only a checkpoint names",
        copies::named_by_checkpoint,
    ),
    ("power is lost during an adoption", adoption::cut),
    ("claimed copies outlive a crash", clean_claims::outlives),
    (
        "a checkpoint with void claims",
        clean_claims::void_in_checkpoint,
    ),
    (
        "a claimed copy with dirty blocks",
        clean_claims::partly_dirty,
    ),
    (
        "a checkpoint with a claimed copy",
        clean_claims::in_checkpoint,
    ),
    ("a write to a claimed copy", clean_claims::written),
    ("a discard of a claimed copy", clean_claims::discarded),
    ("a write to a claimed copy fails", clean_claims::fails),
    ("a fetch to a claimed slot", clean_claims::slot_fetched),
    ("a write to a claimed slot", clean_claims::slot_written),
    (
        "a slot that a write gave up, and the mirror",
        clean_claims::slot_passed_before_mirror,
    ),
    (
        "a claimed slot and the mirror",
        clean_claims::slot_before_mirror,
    ),
    ("a claim without a flush", clean_claims::unflushed),
    ("a claim under a writer", clean_claims::under_writer),
    ("a cleaned copy is written again", claims::rewritten),
    ("a cleaned copy that has rested", claims::rested),
    ("a write beside what a record names", claims::grown),
    ("a write past what a record names", claims::passed),
    ("a FUA write past what a record names", claims::forced),
    ("a checkpoint with a cleaned copy", claims::checkpointed),
    ("a checkpoint that is not complete", claims::in_pieces),
    ("an end with a cleaned copy", claims::ended),
    ("an end with a partly dirty copy", claims::ended_in_part),
    ("a copy that is named again", claims::named_again),
    ("a discard of part of a copy", copies::discarded_in_part),
    (
        "a discard while a clean writes",
        copies::discarded_under_clean,
    ),
    ("a read beside a fill", copies::read_beside_fill),
    ("a copy that flash cannot read", copies::unreadable),
    ("reads while flash is behind", behind::reads),
    (
        "a write to a copy while flash is behind",
        behind::under_a_write,
    ),
    ("a copy that flash cannot write", copies::unwritable),
    (
        "a copy that flash cannot write during a clean",
        copies::unwritable_under_clean,
    ),
    ("a dirty cache that is gone", caches::dirty_cache_gone),
    (
        "a mark outlives the write-back",
        caches::mark_outlives_clean,
    ),
    ("the first of two caches is gone", caches::first_flash_gone),
    ("power is lost during a release", caches::release_is_cut),
    (
        "a stash that is damaged during a release",
        caches::damaged_stash,
    ),
    (
        "a disk that was taken for a file system",
        caches::taken_for_another,
    ),
    ("a disk that hangs", caches::hung_disk),
    (
        "a checkpoint over blocks of its number",
        successors::settled_over_lost_blocks,
    ),
    (
        "a member that is its own successor",
        successors::former_member_again,
    ),
    (
        "a disk that is replaced before its flash is lost",
        successors::disk_before_its_flash_is_lost,
    ),
    ("growths that are abandoned", growths::abandoned),
    (
        "the disk alone grows, and power fails",
        growths::of_the_disk_alone,
    ),
    (
        "the ring of a successor is lost",
        successors::ring_of_a_successor_is_lost,
    ),
    (
        "the first round after flash has grown",
        flash_growths::first_round,
    ),
    ("flash that grows", flash_growths::cut),
    (
        "flash that grows over old blocks of its journal",
        flash_growths::over_old_blocks,
    ),
    ("flash that joins or leaves", flash_members::cut),
    (
        "flash that was taken out comes back",
        flash_members::comes_back,
    ),
    ("a round while zeros are written", fills::round_during_fill),
    ("a FLUSH behind zeros", fills::flush_behind_fill),
    ("changes while zeros are written", fills::change_during_fill),
    ("a discard that writes zeros", fills::discard_writes_zeros),
    ("zeros that a device refuses", fills::fill_fails),
    (
        "an end without a checkpoint",
        final_records::keeps_the_cache,
    ),
    (
        "an end with too many records",
        final_records::too_many_records,
    ),
];

/// Runs all scenes in order. Returns the first one that fails, and its fault. A scene in which an assertion of the engine fires has failed.
#[must_use]
pub fn first_failure(mutant: Option<Mutant>) -> Option<(&'static str, String)> {
    SCENES.iter().find_map(|(name, scene)| {
        let end = std::panic::catch_unwind(|| scene(mutant));
        let end = end.unwrap_or_else(|_| Err(String::from("an assertion of the engine")));
        Some((*name, end.err()?))
    })
}
