//! A Python object as a policy: the engine's own trait, one call into Python for each method that the object has.
//!
//! An exception ends the run: it is kept, the policy wants nothing more, and the run's watch is told to stop.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use isotherm_core::policy::{
    self as core, Access as CoreAccess, MoveRules, Outcome, ParamError, Place, Policy, REFUSALS,
    Uses, View as CoreView, WriteTo,
};
use isotherm_core::volume::Position;
use isotherm_core::{ExtentId, Nanos, Slot, TierId};
use isotherm_lab::sim::Watch;
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyTuple};

use crate::action::Action;
use crate::failed;
use crate::view::{self, Access, View};

/// What may be called, by name. `on_access` must be there.
const METHODS: [&str; 12] = [
    "attach",
    "make_room",
    "first_touch",
    "on_placed",
    "on_discarded",
    "on_access",
    "on_copied",
    "on_uncopied",
    "write_to",
    "on_settled",
    "tick",
    "next_wake_ns",
];

/// Bound methods that the object has.
#[derive(Default)]
struct Methods {
    attach: Option<Py<PyAny>>,
    make_room: Option<Py<PyAny>>,
    first_touch: Option<Py<PyAny>>,
    on_placed: Option<Py<PyAny>>,
    on_discarded: Option<Py<PyAny>>,
    on_access: Option<Py<PyAny>>,
    on_copied: Option<Py<PyAny>>,
    on_uncopied: Option<Py<PyAny>>,
    write_to: Option<Py<PyAny>>,
    on_settled: Option<Py<PyAny>>,
    tick: Option<Py<PyAny>>,
    next_wake_ns: Option<Py<PyAny>>,
}

/// The first exception of a policy, for whoever started the run.
pub type Raised = Arc<Mutex<Option<PyErr>>>;

/// See the module.
pub struct PythonPolicy {
    methods: Methods,
    uses: Uses,
    minds_gaps: bool,
    rules: MoveRules,
    view: Py<View>,
    extents: u32,
    slots: u32,
    tiers: u8,
    watch: Arc<Watch>,
    raised: Raised,
}

impl PythonPolicy {
    /// `object` as a policy; an exception stops `watch`.
    ///
    /// # Errors
    /// It lacks `on_access`, has a method that is nearly but not quite one of ours, or an attribute of the wrong kind.
    pub fn new(object: &Bound<'_, PyAny>, watch: Arc<Watch>) -> PyResult<PythonPolicy> {
        let py = object.py();
        let kind = object.get_type().name()?.to_string();
        for name in object.dir()? {
            let name: String = name.extract()?;
            if name.starts_with("on_") && !METHODS.contains(&name.as_str()) {
                let nearest = core::nearest(&name, METHODS.into_iter());
                return Err(failed(format!(
                    "policy {kind}: nothing calls `{name}`; nearest: `{nearest}`"
                )));
            }
        }
        let get = |name: &str| -> PyResult<Option<Py<PyAny>>> {
            Ok(object.getattr_opt(name)?.map(Bound::unbind))
        };
        let methods = Methods {
            attach: get("attach")?,
            make_room: get("make_room")?,
            first_touch: get("first_touch")?,
            on_placed: get("on_placed")?,
            on_discarded: get("on_discarded")?,
            on_access: get("on_access")?,
            on_copied: get("on_copied")?,
            on_uncopied: get("on_uncopied")?,
            write_to: get("write_to")?,
            on_settled: get("on_settled")?,
            tick: get("tick")?,
            next_wake_ns: get("next_wake_ns")?,
        };
        if methods.on_access.is_none() {
            return Err(failed(format!(
                "policy {kind}: it lacks `on_access(view, access)`; a policy is a preset's name or an object with that method"
            )));
        }
        let uses = match object.getattr_opt("uses")? {
            None => Uses::Homes,
            Some(v) => match v.extract::<String>().as_deref() {
                Ok("homes") => Uses::Homes,
                Ok("copies") => Uses::Copies,
                Ok("both") => Uses::Both,
                _ => {
                    return Err(failed(format!(
                        "policy {kind}: uses: \"homes\" (tiering), \"copies\" (caching) or \"both\""
                    )));
                }
            },
        };
        let minds_gaps = match object.getattr_opt("minds_gaps")? {
            None => true,
            Some(v) => v
                .extract()
                .map_err(|_| failed(format!("policy {kind}: minds_gaps: True or False")))?,
        };
        let limit = match object.getattr_opt("move_limit")? {
            None => None,
            Some(v) => v.extract().map_err(|_| {
                failed(format!(
                    "policy {kind}: move_limit: a whole number of moves under way at once, or None"
                ))
            })?,
        };
        Ok(PythonPolicy {
            methods,
            uses,
            minds_gaps,
            rules: MoveRules {
                limit,
                ..MoveRules::default()
            },
            view: Py::new(py, View::none())?,
            extents: 0,
            slots: 0,
            tiers: 0,
            watch,
            raised: Raised::default(),
        })
    }

    /// Where an exception will be.
    pub fn raised(&self) -> Raised {
        self.raised.clone()
    }

    /// Nothing is asked any more: a slow policy must not hold up the end of a run.
    fn is_over(&self) -> bool {
        self.watch.stop.load(Ordering::Relaxed)
    }

    fn fail(&self, error: PyErr) {
        if let Ok(mut r) = self.raised.lock() {
            r.get_or_insert(error);
        }
        self.watch.stop.store(true, Ordering::Relaxed);
    }

    /// Call `method`, if there is one, and understand its answer; `None` if there is none, or after an exception.
    fn call<T, A>(
        &self,
        method: Option<&Py<PyAny>>,
        view: &mut CoreView<'_>,
        args: impl FnOnce(&CoreView<'_>) -> A,
        answer: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>,
    ) -> Option<T>
    where
        A: for<'py> Arguments<'py>,
    {
        let method = method?;
        if self.is_over() {
            return None;
        }
        let args = args(view);
        Python::attach(|py| {
            let called = self.view.get().lend(view, || {
                let args = args.tuple(py, self.view.bind(py))?;
                answer(&method.bind(py).call1(args)?)
            });
            called.map_err(|e| self.fail(e)).ok()
        })
    }

    /// The same for methods that answer with actions.
    fn wants<A>(
        &self,
        method: Option<&Py<PyAny>>,
        view: &mut CoreView<'_>,
        args: impl FnOnce(&CoreView<'_>) -> A,
        wanted: &mut Vec<core::Action>,
    ) where
        A: for<'py> Arguments<'py>,
    {
        if let Some(mut more) = self.call(method, view, args, |v| self.actions(v)) {
            wanted.append(&mut more);
        }
    }

    /// None, an action, or some.
    fn actions(&self, answer: &Bound<'_, PyAny>) -> PyResult<Vec<core::Action>> {
        if answer.is_none() {
            return Ok(Vec::new());
        }
        let one = |a: &Bound<'_, PyAny>| match a.extract::<Action>() {
            Ok(a) => a.core(self.extents, self.tiers),
            Err(_) => Err(failed(format!(
                "{}: no action; return Action.move(extent, tier) and the like, a list of them, or None",
                a.repr()?
            ))),
        };
        if answer.is_instance_of::<Action>() {
            return Ok(vec![one(answer)?]);
        }
        let Ok(list) = answer.try_iter() else {
            return Ok(vec![one(answer)?]);
        };
        list.map(|a| one(&a?)).collect()
    }

    /// Without an answer: the fastest tier that has room, or the slowest for who only caches.
    fn usual_place(&self) -> Place {
        Place::Tier(TierId(match self.uses {
            Uses::Copies => self.tiers.saturating_sub(1),
            Uses::Homes | Uses::Both => 0,
        }))
    }

    fn place(&self, answer: &Bound<'_, PyAny>) -> PyResult<Place> {
        if answer.is_none() {
            return Ok(self.usual_place());
        }
        if answer.is_instance_of::<PyInt>()
            && let Ok(t) = answer.extract::<u8>()
            && t < self.tiers
        {
            return Ok(Place::Tier(TierId(t)));
        }
        if let Ok((word, s)) = answer.extract::<(String, u32)>()
            && word == "slot"
            && s < self.slots
        {
            return Ok(Place::At(Slot(s).into()));
        }
        Err(failed(format!(
            "first_touch returned {}: a tier from 0 to {}, (\"slot\", number below {}), or None",
            answer.repr()?,
            self.tiers.saturating_sub(1),
            self.slots
        )))
    }
}

/// Arguments of a call, as Python takes them.
trait Arguments<'py> {
    fn tuple(self, py: Python<'py>, view: &Bound<'py, View>) -> PyResult<Bound<'py, PyTuple>>;
}

/// `(view)`.
struct OnlyView;
/// `(view, access)`.
struct OfAccess(Access);
/// `(view, extent)`.
struct OfExtent(u32);
/// `(view, extent, slot)`.
struct OfSlot(u32, u32);
/// `(view, action, outcome)`.
struct OfOutcome(Action, &'static str);

impl<'py> Arguments<'py> for OnlyView {
    fn tuple(self, py: Python<'py>, view: &Bound<'py, View>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, [view])
    }
}
impl<'py> Arguments<'py> for OfAccess {
    fn tuple(self, py: Python<'py>, view: &Bound<'py, View>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, [view.as_any(), self.0.into_bound_py_any(py)?.as_any()])
    }
}
impl<'py> Arguments<'py> for OfExtent {
    fn tuple(self, py: Python<'py>, view: &Bound<'py, View>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, [view.as_any(), self.0.into_bound_py_any(py)?.as_any()])
    }
}
impl<'py> Arguments<'py> for OfSlot {
    fn tuple(self, py: Python<'py>, view: &Bound<'py, View>) -> PyResult<Bound<'py, PyTuple>> {
        let (e, s) = (self.0.into_bound_py_any(py)?, self.1.into_bound_py_any(py)?);
        PyTuple::new(py, [view.as_any(), &e, &s])
    }
}
impl<'py> Arguments<'py> for OfOutcome {
    fn tuple(self, py: Python<'py>, view: &Bound<'py, View>) -> PyResult<Bound<'py, PyTuple>> {
        let (a, o) = (self.0.into_bound_py_any(py)?, self.1.into_bound_py_any(py)?);
        PyTuple::new(py, [view.as_any(), &a, &o])
    }
}

#[expect(
    clippy::unnecessary_wraps,
    reason = "the shape of an answer that is understood"
)]
fn nothing(_: &Bound<'_, PyAny>) -> PyResult<()> {
    Ok(())
}

impl Policy for PythonPolicy {
    fn name(&self) -> &'static str {
        "python"
    }
    fn uses(&self) -> Uses {
        self.uses
    }
    fn minds_gaps(&self) -> bool {
        self.minds_gaps
    }
    fn attach(&mut self, view: &mut CoreView<'_>) {
        (self.extents, self.slots, self.tiers) = (view.units(), view::slots(view), view.tiers());
        self.call(self.methods.attach.as_ref(), view, |_| OnlyView, nothing);
    }
    fn make_room(
        &mut self,
        view: &mut CoreView<'_>,
        a: &CoreAccess,
        wanted: &mut Vec<core::Action>,
    ) {
        let method = self.methods.make_room.as_ref();
        self.wants(method, view, |v| OfAccess(Access::new(v, a)), wanted);
    }
    fn first_touch(&mut self, view: &mut CoreView<'_>, e: ExtentId) -> Place {
        let method = self.methods.first_touch.as_ref();
        self.call(method, view, |_| OfExtent(e.0), |v| self.place(v))
            .unwrap_or_else(|| self.usual_place())
    }
    fn on_placed(&mut self, view: &mut CoreView<'_>, e: ExtentId, s: Position) {
        let method = self.methods.on_placed.as_ref();
        self.call(method, view, |_| OfSlot(e.0, s.index()), nothing);
    }
    fn on_discarded(&mut self, view: &mut CoreView<'_>, e: ExtentId, s: Position) {
        let method = self.methods.on_discarded.as_ref();
        self.call(method, view, |_| OfSlot(e.0, s.index()), nothing);
    }
    fn on_access(
        &mut self,
        view: &mut CoreView<'_>,
        a: &CoreAccess,
        wanted: &mut Vec<core::Action>,
    ) {
        let method = self.methods.on_access.as_ref();
        self.wants(method, view, |v| OfAccess(Access::new(v, a)), wanted);
    }
    fn on_copied(&mut self, view: &mut CoreView<'_>, e: ExtentId, s: Position) {
        let method = self.methods.on_copied.as_ref();
        self.call(method, view, |_| OfSlot(e.0, s.index()), nothing);
    }
    fn on_uncopied(&mut self, view: &mut CoreView<'_>, e: ExtentId, s: Position) {
        let method = self.methods.on_uncopied.as_ref();
        self.call(method, view, |_| OfSlot(e.0, s.index()), nothing);
    }
    fn write_to(&mut self, view: &mut CoreView<'_>, a: &CoreAccess) -> WriteTo {
        let method = self.methods.write_to.as_ref();
        let answer = |v: &Bound<'_, PyAny>| match v.extract::<String>().as_deref() {
            Ok("copy") => Ok(WriteTo::Copy),
            Ok("both") => Ok(WriteTo::Both),
            Ok("home") => Ok(WriteTo::Home),
            _ => Err(failed(format!(
                "write_to returned {}: \"copy\", \"both\" or \"home\"",
                v.repr()?
            ))),
        };
        self.call(method, view, |v| OfAccess(Access::new(v, a)), answer)
            .unwrap_or(WriteTo::Copy)
    }
    fn on_settled(
        &mut self,
        view: &mut CoreView<'_>,
        action: core::Action,
        how: Outcome,
        wanted: &mut Vec<core::Action>,
    ) {
        let how = match how {
            Outcome::Done => "done",
            Outcome::Refused(r) => REFUSALS[r as usize],
            Outcome::Stale => "stale",
            Outcome::Failed => "failed",
        };
        let method = self.methods.on_settled.as_ref();
        self.wants(method, view, |_| OfOutcome(Action::of(action), how), wanted);
    }
    fn tick(&mut self, view: &mut CoreView<'_>, wanted: &mut Vec<core::Action>) {
        self.wants(self.methods.tick.as_ref(), view, |_| OnlyView, wanted);
    }
    fn next_wake(&self) -> Option<Nanos> {
        let method = self.methods.next_wake_ns.as_ref()?;
        if self.is_over() {
            return None;
        }
        Python::attach(|py| {
            let asked = method.bind(py).call0().and_then(|v| v.extract());
            asked.map_err(|e| self.fail(e)).ok().flatten().map(Nanos)
        })
    }
    fn move_rules(&self) -> MoveRules {
        self.rules
    }
    fn set(&mut self, _key: &str, _value: f64) -> Result<(), ParamError> {
        Err(ParamError::Unknown(String::from(
            "(a policy in Python takes its parameters when it is made)",
        )))
    }
    fn params(&self) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
    fn explain(&self, view: &CoreView<'_>, extent: ExtentId) -> String {
        match view.copy(extent).or(view.home(extent)) {
            Some(s) => format!("a policy in Python left it on tier {}", view.tier_of(s).0),
            None => "it was not touched yet".to_owned(),
        }
    }
}
