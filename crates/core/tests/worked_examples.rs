//! The worked examples of CONTRIBUTING.md: a policy, and a cache replacement with a parameter. `scripts/tidy` compares the code blocks
//! there with this file, so the code on that page compiles and passes.

mod write_up {
    use isotherm_core::policy::{Access, Action, ParamError, Place, Policy, View};
    use isotherm_core::{TierId, UnitId};

    /// See the module.
    #[derive(Clone, Debug, Default)]
    pub struct WriteUp;

    impl Policy for WriteUp {
        fn name(&self) -> &'static str {
            "write-up"
        }
        fn attach(&mut self, _view: &mut View<'_>) {}
        fn first_touch(&mut self, view: &mut View<'_>, _unit: UnitId) -> Place {
            Place::Tier(view.slowest())
        }
        fn on_access(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
            let slow = access.home.is_some_and(|h| view.tier_of(h) != TierId(0));
            if access.write && slow && view.free(TierId(0)) > 0 {
                wanted.push(Action::Move {
                    extent: access.extent,
                    to: TierId(0),
                });
            }
        }
        fn set(&mut self, key: &str, _value: f64) -> Result<(), ParamError> {
            Err(ParamError::Unknown(key.into()))
        }
        fn params(&self) -> Vec<(&'static str, f64)> {
            Vec::new()
        }
        fn explain(&self, _view: &View<'_>, _unit: UnitId) -> String {
            "a write moves it to the fast tier if there is room".into()
        }
    }

    #[cfg(test)]
    mod tests {
        use super::WriteUp;
        use isotherm_core::null::NullEngine;
        use isotherm_core::{ExtentId, Nanos, Slot};

        /// Worked by hand. Two fast slots (0, 1), slow ones from 2 on.
        #[test]
        fn golden() {
            let mut e = NullEngine::two_tiers(2, 8, WriteUp);
            let mut touch = |ms, x, write| {
                let bytes = (u64::from(x) << 12, 4096);
                e.access(Nanos::from_millis(ms), ExtentId(x), write, 0, bytes)
            };
            touch(0, 5, true); // first touch: slot 2; not yet a write to a slow home
            touch(1, 5, false); // a read moves nothing
            touch(2, 5, true); // promoted to slot 0
            assert!(touch(3, 5, false)); // hit
            assert_eq!(e.home(ExtentId(5)), Some(Slot(0)));
            assert_eq!((e.counters().promotions, e.counters().hits), (1, 1));
        }
    }
}

mod chances {
    use isotherm_core::UnitId;
    use isotherm_core::collector::Lists;
    use isotherm_core::policy::{Access, ParamError, Replacement, nearest, param};

    /// See the module.
    #[derive(Clone, Debug)]
    pub struct Chances {
        list: Lists,
        left: Vec<u8>,
        most: u8,
    }

    impl Default for Chances {
        fn default() -> Chances {
            Chances {
                list: Lists::new(0, 1),
                left: Vec::new(),
                most: 1,
            }
        }
    }

    impl Replacement for Chances {
        fn attach(&mut self, slots: u32, _units: u32) {
            self.list = Lists::new(slots, 1);
            self.left = vec![0; slots as usize];
        }
        fn hit(&mut self, slot: u32, _access: &Access) {
            self.left[slot as usize] = self.most;
        }
        fn admit(&mut self, _access: &Access, _full: bool) -> bool {
            true
        }
        fn victim(&mut self, _newcomer: UnitId, busy: impl FnMut(u32) -> bool) -> Option<u32> {
            while let Some(slot) = self.list.head(0).filter(|&s| self.left[s as usize] > 0) {
                self.left[slot as usize] -= 1;
                self.list.unlink(slot);
                self.list.push_tail(0, slot);
            }
            self.list.first(0, busy)
        }
        fn inserted(&mut self, slot: u32, _unit: UnitId, _write: bool) {
            self.left[slot as usize] = 0;
            self.list.push_tail(0, slot);
        }
        fn removed(&mut self, slot: u32, _unit: UnitId) {
            self.list.unlink(slot);
        }
        fn set(&mut self, key: &str, value: f64) -> Result<(), ParamError> {
            if key != "chances" {
                return Err(ParamError::Unknown(nearest(key, ["chances"].into_iter())));
            }
            self.most = param::whole(value, 0.0, 255.0, "a whole number from 0 to 255")? as u8;
            Ok(())
        }
        fn params(&self) -> Vec<(&'static str, f64)> {
            vec![("chances", f64::from(self.most))]
        }
        fn bytes(&self) -> usize {
            self.list.bytes() + self.left.capacity()
        }
    }

    #[cfg(test)]
    mod tests {
        use super::Chances;
        use isotherm_core::null::NullEngine;
        use isotherm_core::policy::{Cache, ParamError, Policy};
        use isotherm_core::{ExtentId, Nanos};

        /// Worked by hand: of 1 and 2, the older leaves unless it was used again.
        #[test]
        fn golden() {
            let mut e = NullEngine::two_tiers(2, 8, Cache::new("chances", Chances::default()));
            let mut read = |ms, x| {
                let bytes = (u64::from(x) << 12, 4096);
                e.access(Nanos::from_millis(ms), ExtentId(x), false, 0, bytes)
            };
            assert!(!read(0, 1) && !read(1, 2));
            assert!(read(2, 1)); // its one chance
            assert!(!read(3, 3)); // 1 returns to the tail, 2 leaves
            assert!(read(4, 1) && !read(5, 2));
            assert_eq!((e.counters().fetches, e.counters().evictions), (4, 2));
        }

        #[test]
        fn a_parameter_is_checked() {
            let mut cache = Cache::new("chances", Chances::default());
            assert_eq!(cache.set("chances", 3.0), Ok(()));
            assert_eq!(cache.params(), [("chances", 3.0)]);
            let nearest = cache.set("chance", 1.0);
            assert!(matches!(nearest, Err(ParamError::Unknown(n)) if n == "chances"));
            let fraction = cache.set("chances", 0.5);
            assert!(matches!(fraction, Err(ParamError::Range(_))));
        }
    }
}
