//! Safety rules of recovery that tests can remove.

use super::Media;
use crate::mutants::Mutant;

/// Whether this rule was removed.
#[cfg(feature = "mutants")]
pub(super) fn broken<M: Media + ?Sized>(media: &M, m: Mutant) -> bool {
    media.mutant() == Some(m)
}
/// Whether this rule was removed. (Always false in a build without the feature.)
#[cfg(not(feature = "mutants"))]
pub(super) fn broken<M: Media + ?Sized>(_media: &M, _m: Mutant) -> bool {
    false
}
