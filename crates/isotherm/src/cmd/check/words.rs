//! The reason why a superblock cannot be used, in words.

use isotherm_core::store::superblock::SuperblockError;

/// What `check` says about it.
pub(super) fn words(error: SuperblockError) -> String {
    match error {
        SuperblockError::Foreign => "there is none".into(),
        SuperblockError::Newer(v) => {
            format!("of format version {v}, which this program does not know")
        }
        SuperblockError::Older(v) => {
            format!("of format version {v}, which this program no longer reads")
        }
        SuperblockError::Damaged => "damaged".into(),
        SuperblockError::Impossible(what) => format!("impossible: {what}"),
    }
}
