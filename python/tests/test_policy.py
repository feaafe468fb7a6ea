"""Policies written in Python."""

import random

import pytest

import isotherm
from isotherm import Action

SMALL = {"fast_size": "10%", "limit": 3000}


class Linear:
    """The preset `linear`, again: extent e lives in slot e."""

    minds_gaps = False

    def first_touch(self, view, extent):
        return ("slot", extent)

    def on_access(self, view, access):
        return None


class Cache:
    """Every miss makes a copy; the one that was copied first goes."""

    uses = "copies"

    def __init__(self):
        self.copied, self.settled = [], []

    def attach(self, view):
        self.capacity = len(view.slots(0))
        assert view.tiers == 2 and view.extent_bytes in (4096, 65536)

    def on_access(self, view, access):
        assert access.now_ns == view.now_ns
        assert access.copy == view.copy(access.extent)
        # At the first touch the access says how it was before, the view how it is now.
        assert access.tier == (None if access.home is None else view.tier(access.extent))
        if access.copy is not None or access.home is None:
            return []
        wanted = [Action.evict(self.copied[0])] if len(self.copied) >= self.capacity else []
        return [*wanted, Action.fetch(access.extent, 0)]

    def on_copied(self, view, extent, slot):
        assert view.tier_of(slot) == 0 and view.owner(slot) == extent
        self.copied.append(extent)

    def on_uncopied(self, view, extent, slot):
        self.copied.remove(extent)

    def write_to(self, view, access):
        return "both"

    def on_settled(self, view, action, outcome):
        self.settled.append((action.kind, outcome))


def test_the_same_decisions_give_the_same_digest(tmp_path):
    # Every extent in a range, in a seeded order: here the lab lays out `linear` by address as it does all others.
    extents = [*range(64, 576)] * 4
    random.Random(1).shuffle(extents)
    lines = (f"{i * 1000},0,{'write' if i % 3 else 'read'},{e * 4096},4096" for i, e in enumerate(extents))
    trace = tmp_path / "dense.csv"
    trace.write_text("time_ns,device,op,offset,length\n" + "\n".join(lines) + "\n")
    for hit_only in (False, True):
        ours, preset = (isotherm.sim(trace, p, fast_size="25%", hit_only=hit_only) for p in (Linear(), "linear"))
        assert ours["fast_hit_ratio"] == preset["fast_hit_ratio"] > 0
        assert hit_only or ours["digest"] == preset["digest"]
    assert ours["policy"] == "python:Linear"


@pytest.mark.parametrize("hit_only", [True, False])
def test_a_cache_in_python_caches(mysql, hit_only):
    cache = Cache()
    run = isotherm.sim(mysql, cache, hit_only=hit_only, **SMALL)
    slots = run["fast_bytes"] // run["extent_bytes"]
    assert run["fetches"] > slots and run["evictions"] > 0 and run["writebacks"] == 0
    assert run["fast_hit_ratio"] > 0 and 0 < len(cache.copied) <= slots
    done = cache.settled.count(("fetch", "done"))
    assert (done == run["fetches"]) if hit_only else (done >= run["fetches"] > 0)
    assert run["digest"] == isotherm.sim(mysql, Cache(), hit_only=hit_only, **SMALL)["digest"]


class Parts(Cache):
    """Caches the first 4 KiB of each extent, and no more."""

    def on_access(self, view, access):
        wanted = super().on_access(view, access)
        return [Action.fetch_part(a.extent, 0, 0, 4096) if a.kind == "fetch" else a for a in wanted]


def test_a_part_is_fetched_alone(mysql):
    parts, whole = Parts(), Cache()
    some, all_ = (isotherm.sim(mysql, p, extent="64K", **SMALL) for p in (parts, whole))
    assert parts.settled.count(("fetch_part", "done")) > 0 and whole.settled.count(("fetch", "done")) > 0
    written = [run["usage"]["members"]["fast"]["move_bytes_written"] / run["fetches"] for run in (some, all_)]
    assert written[0] < written[1] / 2
    action = Action.fetch_part(3, 0, 4096, 512)
    assert action.part == (4096, 512) and repr(action) == "Action.fetch_part(3, 0, 4096, 512)"
    assert Action.fetch(3, 0).part is None and action != Action.fetch_part(3, 0, 0, 512)


def test_plans_at_intervals_move_homes(mysql):
    class Planner:
        def __init__(self):
            self.next, self.count = 10**9, {}

        def first_touch(self, view, extent):
            return 1

        def on_access(self, view, access):
            self.count[access.extent] = self.count.get(access.extent, 0) + 1
            view.set_stat(access.extent, min(self.count[access.extent], 65535))

        def next_wake_ns(self):
            return self.next

        def tick(self, view):
            if view.now_ns < self.next:
                return None
            self.next = view.now_ns + 10**9
            hot = sorted(self.count, key=lambda e: (-view.stat(e), e))[: view.free(0)]
            return [Action.move(e, 0) for e in hot if view.tier(e) == 1]

    run = isotherm.sim(mysql, Planner(), **SMALL)
    assert run["promotions"] > 0 and run["fast_hit_ratio"] > 0


def test_an_exception_is_an_error_with_the_traceback(mysql):
    class Broken:
        calls = 0

        def on_access(self, view, access):
            Broken.calls += 1
            return {}[access.extent]

    with pytest.raises(isotherm.Error) as e:
        isotherm.sim(mysql, Broken(), **SMALL)
    assert "test_policy.py" in str(e.value) and "return {}[access.extent]" in str(e.value)
    assert isinstance(e.value.__cause__, KeyError)
    assert Broken.calls == 1, "nothing is asked after an exception"


def answers(method, answer):
    """A policy whose `method` answers `answer`."""

    def on_access(self, view, access):
        return None

    # The homes of a cache volume are where their addresses say.
    uses = "homes" if method == "first_touch" else "copies"
    members = {"uses": uses, "on_access": on_access, method: lambda self, *args: answer}
    return type("Odd", (), members)()


@pytest.mark.parametrize(
    ("policy", "named"),
    [
        (answers("on_access", 7), "7: no action"),
        (answers("on_access", ["x"]), "'x': no action"),
        (answers("on_access", Action.move(2**31, 0)), "extent 2147483648 does not exist"),
        (answers("on_access", Action.fetch(0, 5)), "Action.fetch(0, 5): tier 5 does not exist: there are 2"),
        (answers("first_touch", 2), "first_touch returned 2: a tier from 0 to 1"),
        (answers("first_touch", ("slot", 2**31)), "first_touch returned ('slot', 2147483648)"),
        (answers("next_wake_ns", "soon"), "int"),
        (answers("on_acess", None), "nothing calls `on_acess`; nearest: `on_access`"),
    ],
)
def test_odd_answers_are_refused_in_words(mysql, policy, named):
    with pytest.raises(isotherm.Error) as e:
        isotherm.sim(mysql, policy, **SMALL)
    assert named in str(e.value)


def test_odd_attributes_are_refused_in_words(mysql):
    for name, value in [("uses", "all"), ("minds_gaps", "no"), ("move_limit", -1)]:
        policy = Linear()
        setattr(policy, name, value)
        with pytest.raises(isotherm.Error, match=f"policy Linear: {name}"):
            isotherm.sim(mysql, policy, **SMALL)


def test_views_do_not_outlive_their_call(mysql):
    class Keeps:
        def on_access(self, view, access):
            self.view = view

    policy = Keeps()
    isotherm.sim(mysql, policy, **SMALL)
    with pytest.raises(isotherm.Error, match="valid only during the call"):
        policy.view.free(0)


def test_what_does_not_exist_cannot_be_looked_at(mysql):
    for look in (lambda v: v.home(2**31), lambda v: v.free(2), lambda v: v.tier_of(2**31), lambda v: v.slots(9)):

        class Looks:
            def on_access(self, view, access):
                look(view)

        with pytest.raises(isotherm.Error) as e:
            isotherm.sim(mysql, Looks(), **SMALL)
        assert isinstance(e.value.__cause__, IndexError)


def test_actions_compare_and_print():
    assert Action.move(3, 0) == Action.move(3, 0) != Action.fetch(3, 0)
    assert repr(Action.evict(4)) == "Action.evict(4)" and Action.evict(4).to is None
    assert len({Action.clean(1), Action.clean(1), Action.clean(2)}) == 2
