"""A ledger counts kinds of parties: its rows, hashes, tallies and refusals are those of counting one by one."""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privadmm.errors import LedgerError, RefusedError
from privadmm.privacy.accounting import epsilon, printed, spending, totals, worst
from privadmm.privacy.alike import Alike, together
from privadmm.privacy.events import DiscreteGaussian, Event, GammaOutput, Gaussian, NotPrivate, Spent, dump
from privadmm.privacy.ledger import MemoryLedger, Statement, Tick, export
from privadmm.privacy.ledger_file import Identity, connect
from privadmm.privacy.mechanisms import Simulation
from privadmm.privacy.policy import Budget, Policy
from privadmm.privacy.release import Door, events_of
from privadmm.privacy.sqlite_ledger import SqliteLedger
from privadmm.privacy.verification import verify

Events = tuple[Event, ...]
Rows = list[list[Events]]  # of each round, of each release, the event of each party


class OneByOne:
    """The same ledger as a plain list of rows, with dictionaries by party and a loop wherever there are parties."""

    def __init__(self, ids: list[int], policy: Policy, start: str) -> None:
        self.ids, self.policy, self.head = ids, policy, start
        self.rows: list[tuple[Any, ...]] = []
        self.jobs: dict[str, dict[str, Any]] = {}
        self.accounts: dict[tuple[int, str], str] = {}  # after a row of a job

    def job(self, job: str) -> dict[str, Any]:
        return self.jobs.setdefault(job, {"spent": {}, "reserved": None, "over": False, "last": None})

    def counts(self, job: str, party: int) -> Spent:
        account = self.job(job)
        counted: Spent = (account["spent"] if account["reserved"] is None else account["reserved"]).get(party, ())
        return counted

    def pay(self, job: str, party: int, charge: Spent) -> None:
        budget, mine = self.policy.budget, self.job(job)["spent"].get(party, ())
        if budget is None:
            return
        others = tally(*(self.counts(name, party) for name in self.jobs if name != job))
        spans = [(tally(others, mine), budget.epsilon, "in all"), (mine, self.policy.per_job, "for one job")]
        for before, limit, span in spans:
            if limit is not None and (after := epsilon(tally(before, charge), budget.delta)) > limit:
                spent, asked = (printed(epsilon(one, budget.delta), ".6g") for one in (before, charge))
                raise RefusedError(
                    f"party {party} may spend epsilon = {limit:.6g} {span} at delta = {budget.delta:g}; "
                    f"{spent} is spent or set aside, and this asks for {asked}, which would bring it to "
                    f"{printed(after, '.6g')}. Nothing more was released: "
                    f"{'ask for a smaller epsilon, or ask' if float(spent) < limit else 'the budget is spent; ask'} "
                    "the party's steward for a larger budget (`privadmm ledger amend`; in a federation: a larger "
                    "epsilon in party.toml, then `privadmm federation ledger DIR --amend`)"
                )

    def reserve(self, job: str, charges: Mapping[int, Spent], path: Path) -> None:
        account = self.job(job)
        if account["reserved"] is None:
            for party, charge in charges.items():
                self.pay(job, party, charge)
            account["reserved"] = dict(charges)
            self.append("reserve", job, (-1, -1), "", charges)
        elif account["reserved"] != charges or account["over"]:
            raise RefusedError(
                f"{path}: job {job} failed or was closed here, or reserved something else at its start: start a new run"
            )

    def permit(self, job: str, charges: Mapping[int, Events]) -> None:
        account = self.job(job)
        if account["over"]:
            raise RefusedError(f"job {job} was closed, and is over here. Nothing more was released")
        for party, events in charges.items():
            after = tally(account["spent"].get(party, ()), [(event, 1) for event in events])
            if account["reserved"] is None:
                self.pay(job, party, tally([(event, 1) for event in events]))
            elif Counter(dict(after)) - Counter(dict(account["reserved"].get(party, ()))):
                raise RefusedError(
                    f"job {job} asks party {party} for more than is set aside for it. Nothing more was released"
                )

    def commit(self, tick: Tick, inbox: str, charges: Mapping[int, Events], outbox: bytes, state: bytes) -> None:
        account, kept = self.job(tick.job), sha(state)
        cost = {party: tally([(event, 1) for event in events]) for party, events in charges.items()}
        for party, charge in cost.items():
            account["spent"][party] = tally(account["spent"].get(party, ()), charge)
        account["last"] = (tick.round, tick.phase, kept)
        self.append("tick", tick.job, (tick.round, tick.phase), inbox, cost, outbox, kept)

    def close_job(self, job: str) -> None:
        account = self.job(job)
        if account["reserved"] not in (None, account["spent"]) and not account["over"]:
            account["reserved"], account["over"] = dict(account["spent"]), True
            self.append("close", job, (-1, -1), "", {})

    def append(
        self,
        kind: str,
        job: str,
        at: tuple[int, int],
        inbox: str,
        cost: Mapping[int, Spent],
        out: bytes = b"",
        state: str = "",
    ) -> None:
        facts = (len(self.rows) + 1, kind, job, *at, inbox, packed(cost))
        self.head = sha(self.head.encode(), json.dumps(facts).encode(), out, state.encode())
        self.rows.append((*facts, out, state, self.head))
        account = self.job(job)
        aside = None if account["reserved"] is None else packed(account["reserved"])
        facts_of = [packed(account["spent"]), aside, account["over"], account["last"], 0]
        self.accounts[len(self.rows), job] = json.dumps(facts_of)


def tally(*parts: Iterable[tuple[Event, int]]) -> Spent:
    counts: dict[Event, int] = {}
    for event, count in (item for part in parts for item in part):
        counts[event] = counts.get(event, 0) + count
    return tuple(sorted(counts.items(), key=lambda item: dump(item[0])))


def packed(cost: Mapping[int, Spent]) -> str:
    groups: dict[Spent, list[int]] = {}
    for party in sorted(cost):
        groups.setdefault(cost[party], []).append(party)
    return json.dumps([[parties, [[dump(event), n] for event, n in cost]] for cost, parties in groups.items()])


def sha(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(len(part).to_bytes(8, "little") + part for part in parts)).hexdigest()


def asked(rows: list[Events], here: list[int], place: dict[int, int]) -> dict[int, Events]:
    """What a tick charges, party by party."""
    return {party: tuple(row[place[party]] for row in rows) for party in here}


def said(act: Callable[[], object]) -> str | None:
    """The words of a refusal; None if there was none."""
    try:
        act()
    except RefusedError as error:
        return str(error)
    return None


# Equal events that are not one object, and laws that do not mix.
KINDS: list[Callable[[], Event]] = [
    lambda: Gaussian(9.0),
    lambda: Gaussian(20.0),
    lambda: DiscreteGaussian(12.0),
    lambda: GammaOutput(30.0),
    lambda: NotPrivate("in the clear"),
]
SHARED = [make() for make in KINDS]


@st.composite
def row(draw: Any, parties: int) -> Events:
    """Of one release, an event for each party: most of them alike, some equal, some others."""
    law = draw(st.sampled_from([(0,), (0, 1), (0, 1), (0, 1, 2, 3), tuple(range(5))]))
    kinds = draw(st.lists(st.tuples(st.sampled_from(law), st.booleans()), min_size=parties, max_size=parties))
    return tuple(SHARED[kind] if same else KINDS[kind]() for kind, same in kinds)


@st.composite
def plans(draw: Any) -> tuple[list[int], Rows]:
    """Parties in any order, and a plan for them in which rounds repeat."""
    ids = draw(st.lists(st.integers(0, 40), min_size=1, max_size=7, unique=True))
    ticks = draw(st.lists(st.lists(row(len(ids)), min_size=0, max_size=2), min_size=1, max_size=3))
    return ids, [ticks[number] for number in draw(st.lists(st.integers(0, len(ticks) - 1), min_size=1, max_size=5))]


BUDGETS = st.sampled_from([None, (0.3, None), (0.8, 0.6), (2.0, None), (50.0, 1.0), (1e9, None)])
STEPS = st.lists(
    st.sampled_from(["go", "go", "go", "go", "leave", "close", "other job", "reopen", "again", "unknown party"]),
    min_size=1,
    max_size=12,
)


@settings(max_examples=150, deadline=None)
@given(plans(), BUDGETS, st.sampled_from(["all", "less", "none"]), STEPS, st.integers(0, 2**32))
def test_the_database_is_that_of_counting_one_by_one(
    plan: tuple[list[int], Rows], limits: Any, reserves: str, steps: list[str], seed: int
) -> None:
    drive(plan, limits, reserves, steps, seed)


def drive(plan: tuple[list[int], Rows], limits: Any, reserves: str, steps: list[str], seed: int) -> None:
    """Ask both ledgers for the same, and compare every answer, and the files at the end."""
    ids, rows = plan
    rng, place = np.random.default_rng(seed), {party: number for number, party in enumerate(ids)}
    policy = Policy(None if limits is None else Budget(limits[0], 1e-5), None if limits is None else limits[1])
    with TemporaryDirectory() as folder:
        path = Path(folder) / "ledger"
        found = SqliteLedger(path, ids, policy, "simulation")
        plain = OneByOne(ids, policy, Identity("simulation", tuple(ids), found.policy).hash)
        here, job, t = list(ids), "one", {"one": 0, "two": 0}
        for step in ["reserve", *steps]:
            if step == "reopen":
                found.close()
                found = SqliteLedger(path, ids, policy, "simulation")
            elif step == "leave" and len(here) > 1:
                here.remove(here[int(rng.integers(len(here)))])
            elif step == "close":
                assert said(lambda: found.close_job(job)) == said(lambda: plain.close_job(job))  # noqa: B023
            elif step in ("reserve", "again", "other job"):
                job = "two" if step == "other job" else job
                whole = {party: tally(*([(tick[place[party]], 1)] for row in rows for tick in row)) for party in ids}
                if reserves == "less":
                    whole[ids[-1]] = ()
                if reserves != "none":
                    words = said(lambda: found.reserve(job, whole))  # noqa: B023
                    assert words == said(lambda: plain.reserve(job, whole, path))  # noqa: B023
            else:
                tick, releases = Tick(job, t[job], 0), rows[t[job] % len(rows)]
                charges, parties = asked(releases, here, place), np.array(here)
                events = [Alike.listed(parties, [release[place[one]] for one in here]) for release in releases]
                compact = together(Alike.same(parties, ()), *events).map(lambda kinds: kinds[1:])
                if step == "unknown party":
                    charges[99] = (SHARED[0],)
                    compact = Alike.of(charges)
                assert compact == charges
                with found.transaction():
                    words = said(lambda: found.permit(job, compact))  # noqa: B023
                    assert words == said(lambda: plain.permit(job, charges))  # noqa: B023
                    if words is None:
                        found.commit(tick, f"inbox {t[job]}", compact, b"out", b"state")
                        plain.commit(tick, f"inbox {t[job]}", charges, b"out", b"state")
                        t[job] += 1
        with closing(found), found.transaction():
            for party in ids:
                assert found.spent(party) == tally(*(one["spent"].get(party, ()) for one in plain.jobs.values()))
                apart = [plain.counts(name, party) for name in plain.jobs if name != "one"]
                assert found.others(party, "one") == tally(*apart)
        with closing(connect(path, read_only=True)) as db:
            columns = "seq, kind, job, round, phase, inbox, charges, outbox, state, hash"
            assert db.execute(f"SELECT {columns} FROM ticks ORDER BY seq").fetchall() == plain.rows
            for seq, name, account in db.execute("SELECT seq, job, account FROM summaries"):
                assert plain.accounts[seq, name] == account
        assert verify(path).problems == ()


def test_the_comparison_notices_a_wrong_party_charge_or_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted faults: the last party of a kind is named, kinds are in another order, a party is its neighbour."""
    rare, common = Gaussian(1.0), Gaussian(20.0)
    middle: tuple[list[int], Rows] = (
        [4, 2, 7, 0],
        [[(common, rare, rare, common)], [(common, common, Gaussian(20.0), common)]],
    )

    def run() -> None:
        drive(middle, (1e9, None), "all", ["go", "leave", "go", "go"], 0)
        drive(middle, (0.3, None), "none", ["go", "go"], 0)

    run()
    first, group, shift = Alike.firsts, Alike.groups, Alike.over
    faults: dict[str, Any] = {
        "firsts": lambda self: first(Alike(self.ids[::-1], self.which[::-1], self.kinds)),
        "groups": lambda self: group(self)[::-1],
        "over": lambda self, ids, *default: shift(self, np.roll(ids, 1) if len(ids) == 3 else ids, *default),
    }
    for name, fault in faults.items():
        with monkeypatch.context() as patch:
            patch.setattr(Alike, name, fault)
            with pytest.raises((AssertionError, LedgerError)):
                run()


@settings(max_examples=100, deadline=None)
@given(plans(), BUDGETS, st.sampled_from(["all", "less", "none"]), st.data())
def test_a_ledger_in_memory_is_that_of_counting_one_by_one(
    plan: tuple[list[int], Rows], limits: Any, reserves: str, data: Any
) -> None:
    ids, rows = plan
    place = {party: number for number, party in enumerate(ids)}
    policy = Policy(None if limits is None else Budget(limits[0], 1e-5), None if limits is None else limits[1])
    found, plain, here = MemoryLedger(ids, policy), OneByOne(ids, policy, ""), list(ids)
    if reserves != "none":
        whole = {party: tally(*([(release[place[party]], 1)] for tick in rows for release in tick)) for party in ids}
        if reserves == "less":
            whole[ids[-1]] = ()
        assert said(lambda: found.reserve("one", whole)) == said(lambda: plain.reserve("one", whole, Path()))
    for t, releases in enumerate(rows * 2):  # the second time goes beyond what is set aside
        if len(here) > 1 and data.draw(st.booleans()):
            here.remove(data.draw(st.sampled_from(here)))
        charges = asked(releases, here, place)
        words = said(lambda: found.permit("one", charges))  # noqa: B023
        assert words == said(lambda: plain.permit("one", charges))  # noqa: B023
        if words is None:
            found.commit(Tick("one", t, 0), "inbox", charges, b"out", b"state")
            plain.commit(Tick("one", t, 0), "inbox", charges, b"out", b"state")
    spent = {party: plain.job("one")["spent"].get(party, ()) for party in ids}
    assert {party: found.spent(party) for party in ids} == spent
    statement = Statement.of(found, "one")
    assert statement.charged == statement.aside == spent
    for told in export(statement)["parties"]:
        one = spent[told["party"]]
        assert told["events"] == [{**json.loads(dump(event)), "count": count} for event, count in one]
        if policy.budget is not None and np.isfinite(epsilon(one, 1e-5)):
            assert told["epsilon"] == epsilon(one, 1e-5)


def test_a_party_that_is_not_the_ledgers_is_charged_nothing_in_its_name() -> None:
    ledger = MemoryLedger([0, 1], Policy(None))
    with pytest.raises(KeyError, match="7"):
        ledger.permit("job", {0: (SHARED[0],), 7: (SHARED[0],)})
    with pytest.raises(KeyError, match="7"):
        ledger.commit(Tick("job", 0, 0), "inbox", {0: (SHARED[0],), 7: (SHARED[0],)}, b"", b"")
    assert ledger.spent(0) == ()


@settings(max_examples=200, deadline=None)
@given(plans())
def test_a_plan_is_counted_as_one_by_one(plan: tuple[list[int], Rows]) -> None:
    ids, rows = plan
    ticks = {(t, 0): tuple(releases) for t, releases in enumerate(rows)}
    parties = range(len(ids))
    whole = [tally(*([(release[party], 1)] for tick in rows for release in tick)) for party in parties]
    assert totals(ticks, len(ids)) == whole
    assert worst(whole, 1e-5) == max(epsilon(one, 1e-5) for one in whole)
    steps = [(t, list(spent)) for t, spent in spending(ticks, len(ids))]
    for t, spent in steps:
        assert spent == [tally(*([(release[one], 1)] for tick in rows[: t + 1] for release in tick)) for one in parties]


@settings(max_examples=200, deadline=None)
@given(plans())
def test_a_door_charges_what_the_plan_says_and_mixes_no_laws(plan: tuple[list[int], Rows]) -> None:
    ids, rows = plan
    everybody, asked_of = np.array(ids), list[Mapping[int, Events]]()
    for releases in rows:
        by_number = [dict(zip(ids, release, strict=True)) for release in releases]
        events = [events_of(tuple(row.get(party, SHARED[0]) for party in range(41)), everybody) for row in by_number]
        door = Door(everybody, events, Simulation(0), 0, 0, asked_of.append)
        charged: dict[int, Events] = dict.fromkeys(ids, ())
        for row in by_number:
            mixed = len({type(event) for event in row.values()}) > 1
            honoured = all(isinstance(event, Gaussian | GammaOutput | NotPrivate) for event in row.values())
            words = said(lambda: door.output(np.zeros((len(ids), 2)), 1.0))  # noqa: B023
            if mixed:
                assert words is not None
                assert "mixes laws" in words
                break
            charged = {party: (*charged[party], row[party]) for party in ids}
            assert asked_of[-1] == door.charges == charged
            assert (words is None) == honoured
            if words is not None:
                break


MAPS = st.dictionaries(st.integers(-5, 20), st.integers(0, 3).map(lambda n: (n,)), max_size=8)


@settings(max_examples=300, deadline=None)
@given(MAPS, MAPS, st.permutations(range(-5, 21)))
def test_values_held_once_are_the_same_values(one: Any, two: Any, order: list[int]) -> None:
    found, other = Alike.of(one), Alike.of(two)
    ids = np.array(order[:9])
    assert dict(found) == one
    assert found == one
    assert list(found) == list(one)
    assert (found == other) == (one == two)
    assert (found == two) == (one == two)
    assert dict(found.over(ids, (9,))) == {party: one.get(party, (9,)) for party in order[:9]}
    assert dict(found.map(sum)) == {party: sum(value) for party, value in one.items()}
    assert found.listing() == list(one.values())
    for first, kind, group in zip(found.firsts(), found.kinds, found.groups() if one else [], strict=True):
        assert first == group[0]
        assert all(one[party] == kind for party in group.tolist())
    assert sorted(party for group in found.groups() for party in group.tolist()) == sorted(one)
    wide = together(found, other.over(found.ids, ()), found.over(found.ids))
    assert dict(wide) == {party: (value, two.get(party, ()), value) for party, value in one.items()}
    if set(one) - set(two):
        with pytest.raises(KeyError):
            together(found, other)


def test_parties_are_whole_numbers() -> None:
    for damaged in ({0.5: ()}, {"a": ()}, {True: ()}, {2**70: ()}):
        with pytest.raises(TypeError):
            Alike.of(damaged)  # type: ignore[arg-type]
