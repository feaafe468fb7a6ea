//! A policy that wraps another one: every method that it does not implement itself must be passed to the inner policy.

use isotherm_core::geometry::{Geometry, Member};
use isotherm_core::policy::{
    Access, Action, MoveRules, Outcome, ParamError, Place, Policy, Uses, View, WriteMode, WriteTo,
    build,
};
use isotherm_core::volume::{Position, Space, UnitId};
use isotherm_core::{Nanos, TierId};
use std::sync::{Arc, Mutex};

type Calls = Arc<Mutex<Vec<&'static str>>>;

/// A policy that records the calls of its methods, and whose answers all differ from the defaults.
struct RecordingPolicy(Calls);

impl RecordingPolicy {
    fn note(&self, what: &'static str) {
        self.0.lock().expect("no test panicked").push(what);
    }
}

const RULES: MoveRules = MoveRules {
    limit: Some(3),
    yield_to_metadata: true,
    idle_extents_only: true,
    rounds_yield: true,
};

impl Policy for RecordingPolicy {
    fn name(&self) -> &'static str {
        "told"
    }
    fn uses(&self) -> Uses {
        self.note("uses");
        Uses::Both
    }
    fn keeps_dirty(&self) -> bool {
        self.note("keeps_dirty");
        false
    }
    fn writes_through(&self) -> bool {
        self.note("writes_through");
        true
    }
    fn writes_back_on_demand(&self) -> bool {
        self.note("writes_back_on_demand");
        true
    }
    fn unit_bytes(&self) -> u32 {
        self.note("unit_bytes");
        7
    }
    fn reads_sooner(&self) -> bool {
        self.note("reads_sooner");
        true
    }
    fn fixes_places(&self) -> bool {
        self.note("fixes_places");
        true
    }
    fn minds_gaps(&self) -> bool {
        self.note("minds_gaps");
        false
    }
    fn attach(&mut self, _: &mut View<'_>) {
        self.note("attach");
    }
    fn make_room(&mut self, _: &mut View<'_>, _: &Access, _: &mut Vec<Action>) {
        self.note("make_room");
    }
    fn first_touch(&mut self, _: &mut View<'_>, _: UnitId) -> Place {
        self.note("first_touch");
        Place::Tier(TierId(1))
    }
    fn beside(&self, _: &View<'_>, unit: UnitId, _: TierId) -> Option<UnitId> {
        self.note("beside");
        Some(unit)
    }
    fn on_placed(&mut self, _: &mut View<'_>, _: UnitId, _: Position) {
        self.note("on_placed");
    }
    fn on_resized(&mut self, _: &mut View<'_>, _: UnitId, _: u32) {
        self.note("on_resized");
    }
    fn on_reclassified(&mut self, _: &mut View<'_>, _: UnitId, _: u8, _: &mut Vec<Action>) {
        self.note("on_reclassified");
    }
    fn on_discarded(&mut self, _: &mut View<'_>, _: UnitId, _: Position) {
        self.note("on_discarded");
    }
    fn on_access(&mut self, _: &mut View<'_>, _: &Access, _: &mut Vec<Action>) {
        self.note("on_access");
    }
    fn on_copied(&mut self, _: &mut View<'_>, _: UnitId, _: Position) {
        self.note("on_copied");
    }
    fn on_uncopied(&mut self, _: &mut View<'_>, _: UnitId, _: Position) {
        self.note("on_uncopied");
    }
    fn keeps_over_crash(&self, _: &View<'_>, _: UnitId) -> bool {
        self.note("keeps_over_crash");
        false
    }
    fn write_to(&mut self, _: &mut View<'_>, _: &Access) -> WriteTo {
        self.note("write_to");
        WriteTo::Home
    }
    fn on_settled(&mut self, _: &mut View<'_>, _: Action, _: Outcome, _: &mut Vec<Action>) {
        self.note("on_settled");
    }
    fn tick(&mut self, _: &mut View<'_>, _: &mut Vec<Action>) {
        self.note("tick");
    }
    fn next_wake(&self) -> Option<Nanos> {
        self.note("next_wake");
        Some(Nanos(7))
    }
    fn move_rules(&self) -> MoveRules {
        self.note("move_rules");
        RULES
    }
    fn set(&mut self, _: &str, _: f64) -> Result<(), ParamError> {
        self.note("set");
        Ok(())
    }
    fn set_name(&mut self, _: &str, _: &str) -> Result<(), ParamError> {
        self.note("set_name");
        Ok(())
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        self.note("params");
        vec![("p", 1.0)]
    }
    fn names(&self) -> Vec<(&'static str, String)> {
        self.note("names");
        vec![("n", String::from("v"))]
    }
    fn explain(&self, _: &View<'_>, _: UnitId) -> String {
        self.note("explain");
        String::from("so")
    }
    fn warning(&self) -> Option<String> {
        self.note("warning");
        Some(String::from("mind"))
    }
    fn bytes(&self) -> usize {
        self.note("bytes");
        5
    }
}

/// Implements only the methods that the compiler requires.
struct Thin(Box<dyn Policy>);

impl Policy for Thin {
    fn inner(&self) -> Option<&dyn Policy> {
        Some(&*self.0)
    }
    fn inner_mut(&mut self) -> Option<&mut dyn Policy> {
        Some(&mut *self.0)
    }
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn attach(&mut self, view: &mut View<'_>) {
        self.0.attach(view);
    }
    fn first_touch(&mut self, view: &mut View<'_>, unit: UnitId) -> Place {
        self.0.first_touch(view, unit)
    }
    fn on_access(&mut self, view: &mut View<'_>, access: &Access, wanted: &mut Vec<Action>) {
        self.0.on_access(view, access, wanted);
    }
    fn set(&mut self, key: &str, value: f64) -> Result<(), ParamError> {
        self.0.set(key, value)
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        self.0.params()
    }
    fn explain(&self, view: &View<'_>, unit: UnitId) -> String {
        self.0.explain(view, unit)
    }
}

/// Every method of the trait but `name`, `inner` and `inner_mut`, in the order of [`ask_all`].
const METHODS: [&str; 32] = [
    "uses",
    "keeps_dirty",
    "writes_through",
    "writes_back_on_demand",
    "unit_bytes",
    "reads_sooner",
    "fixes_places",
    "minds_gaps",
    "attach",
    "make_room",
    "first_touch",
    "beside",
    "on_placed",
    "on_resized",
    "on_reclassified",
    "on_discarded",
    "on_access",
    "on_copied",
    "on_uncopied",
    "keeps_over_crash",
    "write_to",
    "on_settled",
    "tick",
    "next_wake",
    "move_rules",
    "set",
    "set_name",
    "params",
    "names",
    "explain",
    "warning",
    "bytes",
];

fn space() -> Space {
    let m = |tier, slots| Member {
        tier: TierId(tier),
        first_slot: 0,
        slots,
        data_offset: 0,
        stash: isotherm_core::geometry::Stash::default(),
    };
    Space::new(Geometry::new(12, 12, 6, vec![m(0, 2), m(1, 8)]).expect("a valid shape"))
}

/// Calls every method of a policy that wraps [`RecordingPolicy`].
fn ask_all(p: &mut dyn Policy) {
    let mut space = space();
    let mut view = View::new(&mut space, Nanos(1), 0, false, 10);
    let (position, unit) = (view.position(0), UnitId(1));
    let access = Access {
        now: Nanos(1),
        extent: unit,
        home: Some(position),
        copy: None,
        write: true,
        class: 0,
        request_bytes: 4096,
        request_offset: 4096,
        first: true,
    };
    let action = Action::Clean { extent: unit };
    let mut wanted = Vec::new();
    assert_eq!(p.uses(), Uses::Both);
    assert!(!p.keeps_dirty());
    assert!(p.writes_through());
    assert!(p.writes_back_on_demand());
    assert_eq!(p.unit_bytes(), 7);
    assert!(p.reads_sooner());
    assert!(p.fixes_places());
    assert!(!p.minds_gaps());
    p.attach(&mut view);
    p.make_room(&mut view, &access, &mut wanted);
    assert_eq!(p.first_touch(&mut view, unit), Place::Tier(TierId(1)));
    assert_eq!(p.beside(&view, unit, TierId(1)), Some(unit));
    p.on_placed(&mut view, unit, position);
    p.on_resized(&mut view, unit, 1);
    p.on_reclassified(&mut view, unit, 3, &mut wanted);
    p.on_discarded(&mut view, unit, position);
    p.on_access(&mut view, &access, &mut wanted);
    p.on_copied(&mut view, unit, position);
    p.on_uncopied(&mut view, unit, position);
    assert!(!p.keeps_over_crash(&view, unit));
    assert_eq!(p.write_to(&mut view, &access), WriteTo::Home);
    p.on_settled(&mut view, action, Outcome::Done, &mut wanted);
    p.tick(&mut view, &mut wanted);
    assert_eq!(p.next_wake(), Some(Nanos(7)));
    assert_eq!(p.move_rules(), RULES);
    assert_eq!(p.set("p", 1.0), Ok(()));
    assert_eq!(p.set_name("n", "v"), Ok(()));
    assert_eq!(p.params(), [("p", 1.0)]);
    assert_eq!(p.names(), [("n", String::from("v"))]);
    assert_eq!(p.explain(&view, unit), "so");
    assert_eq!(p.warning().as_deref(), Some("mind"));
    assert_eq!(p.bytes(), 5);
}

#[test]
fn a_wrapper_passes_every_method_on() {
    let calls = Calls::default();
    let told: Box<dyn Policy> = Box::new(RecordingPolicy(calls.clone()));
    let mut boxed = told;
    ask_all(&mut boxed);
    assert_eq!(*calls.lock().expect("no panic"), METHODS, "boxed");
    calls.lock().expect("no panic").clear();
    // A wrapper around a wrapper.
    let mut thin = Thin(Box::new(Thin(boxed)));
    ask_all(&mut thin);
    assert_eq!(*calls.lock().expect("no panic"), METHODS, "wrapped");
}

/// A new method of the trait must be in the list above; the test reads the trait's source.
#[test]
fn all_methods_are_asked() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/policy/mod.rs");
    let source = std::fs::read_to_string(path).expect("the trait's source");
    let body = source.split("pub trait Policy").nth(1).expect("the trait");
    let body = body.split("\n}\n").next().expect("its end");
    let mut declared: Vec<&str> = body
        .lines()
        .filter_map(|l| l.strip_prefix("    fn "))
        .filter_map(|l| l.split('(').next())
        .filter(|n| !["name", "inner", "inner_mut"].contains(n))
        .collect();
    let mut asked = METHODS.to_vec();
    declared.sort_unstable();
    asked.sort_unstable();
    assert_eq!(declared, asked);
}

/// A cache under a write mode places homes as it does without one (a regression).
#[test]
fn a_write_mode_changes_writes_only() {
    for p in isotherm_core::policy::PRESETS
        .iter()
        .filter(|p| p.is_caching())
    {
        let plain = build(p.name, std::iter::empty()).expect("presets build");
        let back = (
            "write-mode",
            isotherm_core::policy::ParamValue::Name("write-back"),
        );
        let moded = isotherm_core::policy::build_with(p.name, [back].into_iter());
        let moded = moded.expect("presets take a write mode");
        assert_eq!(
            (plain.uses(), plain.minds_gaps(), plain.move_rules()),
            (moded.uses(), moded.minds_gaps(), moded.move_rules()),
            "{}",
            p.name
        );
        assert!(moded.keeps_dirty(), "{}", WriteMode::WriteBack.name());
    }
}
