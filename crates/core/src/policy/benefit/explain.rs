//! The answer to `isotherm why`.

use super::Benefit;
use crate::policy::View;
use crate::volume::UnitId;
use alloc::format;
use alloc::string::String;

impl Benefit {
    /// Why an extent is where it is, in the currency of the policy.
    pub(super) fn explain_extent(&self, view: &View<'_>, extent: UnitId) -> String {
        let ms = |ns: u64| ns as f64 / 1e6;
        let what = match view.copy(extent) {
            Some(_) if view.is_dirty(extent) => view.either("a dirty copy", "on the fast tier"),
            Some(_) => view.either("a clean copy", "on the fast tier"),
            None if Benefit::is_home_on_flash(view, extent) => "its home is on flash",
            None => view.either("no copy", "not on the fast tier"),
        };
        let dirty = if view.is_uniform() {
            let (n, all) = (self.dirty.len(), self.fast_slots);
            format!("{n} of {all} fast slots are dirty; ")
        } else {
            String::new()
        };
        let newcomer = view.either("a new copy", "a file that comes there");
        let than = if self.copies_stay() {
            " even before its latest access"
        } else {
            ""
        };
        let (other, all) = (view.either("copy", "one"), view.either("copies", "these"));
        format!(
            "{what}; its recent accesses are worth {:.1} ms of the slow device{}, an access saves {:.2} ms, {newcomer} must be worth \
             {:.2} ms more than the {other} that it replaces{than} (goal {}); {dirty}{all} have saved {:.0} ms more \
             than they cost (the account is limited)",
            ms(self.worth(view, extent)),
            self.explain_class(view, extent),
            ms(self.value_saved(view)),
            ms(self.copy_price(view, extent)),
            self.settings.weights.name(),
            self.account.balance() as f64 / 1e6,
        )
    }
}
