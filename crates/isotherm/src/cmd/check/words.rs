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
        SuperblockError::Unreadable(error) => format!(
            "cannot be read: {}",
            std::io::Error::from_raw_os_error(error)
        ),
        SuperblockError::Impossible(what) => format!("impossible: {what}"),
    }
}
