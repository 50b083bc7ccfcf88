"""Records, checkpoints, messages and sequencers: they come back as they were, and whatever else
comes is refused as what it is (docs/formats/lock.md)."""

from __future__ import annotations

import contextlib
from random import Random
from typing import Any

import hypothesis.strategies as st
import msgspec.inspect
import pytest
from hypothesis import given, settings

from mrstream.cluster.errors import Corrupt, NewerFormat
from mrstream.cluster.wire.messages import pack, union_of, unpack
from mrstream.dfs.client.fence import parse_fence
from mrstream.lock import protocol as p
from mrstream.lock.cell import records as r
from mrstream.lock.cell.cell import Cell
from mrstream.lock.cell.image import load_image, pack_image
from mrstream.lock.cell.nodes import State
from mrstream.lock.cell.records import AnyRecord, decode_record, encode_record
from mrstream.lock.cell.settings import Settings
from mrstream.lock.errors import BadNodePath, SequencerInvalid
from mrstream.lock.paths import ROOT, canonical
from mrstream.lock.sequencer import Sequencer, fences_within, parse
from tests.property.fuzz.hostile import value_of
from tests.support.examples import examples
from tests.support.lock_model import SECRET, Client, Model, settle

NAMES = st.sampled_from(["a", "b", "c", "é", "long" * 8])
NUMBERS = st.integers(0, 2**63 - 1)
TIMES = st.floats(0.0, 1e10)
ACLS = st.builds(p.Acl, NAMES, NAMES, NAMES)
RECORDS: st.SearchStrategy[AnyRecord] = st.one_of(
    st.builds(r.NodeMade, NAMES, st.booleans(), st.booleans(), st.binary(), ACLS, TIMES, NUMBERS),
    st.builds(r.NodeRemoved, NAMES, NUMBERS, NUMBERS),
    st.builds(r.ContentsSet, NAMES, st.binary(), TIMES, NUMBERS, NUMBERS),
    st.builds(r.AclSet, NAMES, ACLS, NUMBERS, NUMBERS),
    st.builds(r.SessionOpened, NUMBERS, NUMBERS, NAMES, NAMES, NAMES, TIMES),
    st.builds(r.SessionEnded, NUMBERS, st.booleans()),
    st.builds(r.LockTaken, NAMES, NUMBERS, st.tuples(NUMBERS, NUMBERS), st.booleans(), TIMES),
    st.builds(r.LockFreed, NAMES, NUMBERS, st.tuples(NUMBERS, NUMBERS), NUMBERS),
    st.builds(r.DelayOver, NAMES),
    st.builds(r.LeaseSet, TIMES),
)


@given(RECORDS)
def test_a_record_comes_back_as_it_was(record: AnyRecord) -> None:
    assert decode_record(encode_record(record)) == record


@given(st.binary(max_size=200))
def test_what_is_no_record_is_refused_as_damage_or_as_newer(payload: bytes) -> None:
    with contextlib.suppress(Corrupt, NewerFormat):
        decode_record(payload)


def test_a_record_of_a_kind_that_is_not_known_here_is_of_a_newer_version() -> None:
    with pytest.raises(NewerFormat):
        decode_record(msgspec.msgpack.encode(["NodeRenamed", "/ls/local/a"]))


def test_a_field_that_a_newer_version_added_at_the_end_does_no_harm() -> None:
    payload = msgspec.msgpack.encode(["DelayOver", "/ls/local/a", 7, "more"])

    assert decode_record(payload) == r.DelayOver("/ls/local/a")


class Driver:
    """Draws a history of calls, and lets the model live it."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.model = Model()
        self.clients = [Client(self.model, user) for user in ("ada", "bob")]
        self.handles: list[tuple[Client, p.Handle]] = []

    def step(self) -> None:
        draw = self.data.draw
        client = draw(st.sampled_from(self.clients))
        path = draw(st.sampled_from([f"{ROOT}/x", f"{ROOT}/d", f"{ROOT}/d/y"]))
        what = draw(st.integers(0, 7))
        if what <= 2 or not self.handles:
            self.begin(
                client.opening(
                    path, 7, create=p.MAY_CREATE, is_directory=path.endswith("d"),
                    is_ephemeral=what == 1, lock_delay_s=float(what),
                )
            )  # fmt: skip
            return
        owner, handle = draw(st.sampled_from(self.handles))
        kinds: dict[int, tuple[type[p.HandleCall], dict[str, Any]]] = {
            3: (p.SetContents, {"contents": draw(st.binary(max_size=9))}),
            4: (p.AcquireLock, {"is_shared": draw(st.booleans()), "wait_s": 2.0}),
            5: (p.DeleteNode, {}),
            6: (p.SetAcl, {"acl": p.Acl("r", "", "")}),
            7: (p.CloseNode, {}),
        }
        kind, fields = kinds[what]
        self.begin(owner.on(kind, handle, **fields))

    def begin(self, request: Any) -> None:
        client = next(c for c in self.clients if c.session == request.session)
        call = self.model.begin(request)
        settle(*self.clients)
        answer = self.model.answers.get(call)
        if isinstance(answer, p.Opened):
            self.handles.append((client, answer.handle))


def the_state(state: State) -> Any:
    nodes = [
        (n.path, n.instance, n.is_directory, n.is_ephemeral, n.contents, n.content_generation,
         n.lock_generation, n.acl_generation, n.acl, n.modified_at_s, n.checksum, n.is_shared,
         [(h.session, h.handle, h.delay_s) for h in n.holders], n.delay_s, sorted(n.children))
        for _, n in sorted(state.nodes.items())
    ]  # fmt: skip
    sessions = [
        (s.session, s.nonce, s.user, s.host, s.program, s.opened_at_s, s.done, s.forgotten)
        for s in state.sessions.values()
    ]
    held = {session: sorted(paths) for session, paths in state.held.items() if paths}
    return (nodes, sessions, held, state.contents_bytes, state.next_session, state.next_instance,
            state.floor, state.lease_s)  # fmt: skip


@settings(max_examples=examples(25), deadline=None)
@given(st.data())
def test_log_and_checkpoint_give_back_exactly_the_state(data: st.DataObject) -> None:
    """L7: the fold of the log is the state, wherever a checkpoint cuts it."""
    driver = Driver(data)
    model = driver.model
    image, at = b"".join(pack_image(model.cell)), len(model.log)
    for _ in range(data.draw(st.integers(0, 25))):
        driver.step()
        if data.draw(st.integers(0, 5)) == 0:
            image, at = b"".join(pack_image(model.cell)), len(model.log)
    if data.draw(st.booleans()):
        model.wait(13.0)

    from_log = Cell(Settings(), SECRET, "demo")
    for payload in model.log:
        from_log.apply(decode_record(payload))
    from_image = Cell(Settings(), SECRET, "demo")
    load_image(from_image, [image[:7], image[7:]])
    for payload in model.log[at:]:
        from_image.apply(decode_record(payload))

    assert the_state(from_log.state) == the_state(model.cell.state)
    assert the_state(from_image.state) == the_state(model.cell.state)


def an_image() -> bytes:
    model = Model()
    client = Client(model)
    client.make(f"{ROOT}/d", is_directory=True)
    client.acquire(client.make(f"{ROOT}/d/f", b"contents"))
    return b"".join(pack_image(model.cell))


IMAGE = an_image()


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, len(IMAGE) - 1), st.binary(max_size=8), st.integers(0, 8))
def test_a_damaged_checkpoint_is_damage_or_another_state_and_never_a_bug(
    at: int, instead: bytes, width: int
) -> None:
    damaged = IMAGE[:at] + instead + IMAGE[at + width :]
    cell = Cell(Settings(), SECRET, "demo")
    try:
        load_image(cell, [damaged])
    except (Corrupt, NewerFormat):
        return
    b"".join(pack_image(cell))


@given(st.integers(0, len(IMAGE) - 1))
def test_a_checkpoint_that_ends_early_is_damage(length: int) -> None:
    with pytest.raises(Corrupt):
        load_image(Cell(Settings(), SECRET, "demo"), [IMAGE[:length]])


ODD_TEXTS = (
    "", ROOT, f"{ROOT}/f", f"{ROOT}/d", f"{ROOT}/d/x", f"{ROOT}/acl/x", "/ls/local/../x", "x",
    f"{ROOT}/f:1:exclusive", "\x1b[31m", "x" * 300,
)  # fmt: skip


@pytest.mark.parametrize("seed", range(examples(40)))
def test_no_history_of_odd_requests_can_harm_the_cell(seed: int) -> None:
    """Whatever decodes to a request is answered or refused, every invariant holds, and nobody takes
    a lock from its holder. Most requests are right but for a field or two: what is wrong from its
    first field on is refused before anything is tried."""
    rng = Random(seed)
    model = Model()
    honest, other = Client(model), Client(model, "bob")
    handles = [honest.make(f"{ROOT}/f", b"x")]
    honest.acquire(handles[0])
    for _ in range(40):
        request = _odd_request(rng, model, other, handles)
        call = model.begin(request)
        answer = model.answers.get(call)
        if isinstance(answer, p.Opened):
            handles.append(answer.handle)
        if rng.random() < 0.1:
            model.wait(rng.choice((0.25, 1.0, 5.0)))
        settle(honest)
        if other.session not in model.cell.sessions.live:
            other = Client(model, "cy")
        assert model.cell.state.nodes[f"{ROOT}/f"].holders
    model.through_an_image()


def _odd_request(rng: Random, model: Model, client: Client, handles: list[p.Handle]) -> Any:
    kinds = model.cell.calls
    kind = rng.choice(kinds)
    _, *fields = value_of(msgspec.inspect.type_info(kind), rng, ODD_TEXTS)
    likely: dict[str, Any] = {
        "session": client.session,
        "epoch": model.epoch,
        "number": client.number(),
        "handle": rng.choice(handles),
        "create": rng.choice((p.EXISTING, p.MAY_CREATE, p.MUST_CREATE)),
        "mode": rng.choice((0, 1, 3, 7)),
        "lock_delay_s": 1.0,
    }
    fields = [
        # Who says to be another session is believed: all that prove the secret are of one cluster.
        likely[name] if name == "session" or (name in likely and rng.random() < 0.9) else value
        for name, value in zip(kind.__struct_fields__, fields, strict=True)
    ]
    return unpack(msgspec.msgpack.encode([kind.__name__, *fields]), union_of(list(kinds)))


@given(st.lists(NAMES, max_size=5), st.integers(1, 2**63 - 1), st.booleans())
def test_a_sequencer_reads_back_and_gives_its_fence_to_whoever_cuts_it(
    names: list[str], generation: int, is_shared: bool
) -> None:
    """CH-20: a file system that knows nothing of locks reads (name, generation) off it."""
    path = "/".join([ROOT, *names])
    text = str(Sequencer(path, generation, is_shared))

    name, number, *_ = text.split(":")

    assert parse(text) == Sequencer(path, generation, is_shared)
    assert (name, int(number)) == parse(text).fence
    assert parse_fence(parse(text).fence_text) == parse(text).fence
    assert parse(parse(text).fence_text).fence == parse(text).fence


@given(st.text())
def test_any_text_is_a_path_or_none_and_a_sequencer_or_none(text: str) -> None:
    for read, refusal in ((canonical, BadNodePath), (parse, SequencerInvalid)):
        try:
            value = read(text)  # type: ignore[operator]
        except refusal:
            continue
        assert read(str(value)) == value  # type: ignore[operator]
        assert pack(str(value))


def test_a_lock_within_another_adds_its_fence_and_a_later_one_of_the_same_replaces_it() -> None:
    """CH-20: what runs under two locks is fenced by both; the dfs reads one a line."""
    a, b = Sequencer("/ls/local/a", 3, False), Sequencer("/ls/local/a/b", 7, True)

    nested = fences_within(fences_within("", a), b)

    assert nested == "/ls/local/a:3\n/ls/local/a/b:7"
    assert [parse_fence(line) for line in nested.split("\n")] == [a.fence, b.fence]
    assert (
        fences_within(nested, Sequencer("/ls/local/a", 9, False))
        == "/ls/local/a/b:7\n/ls/local/a:9"
    )
    assert fences_within("/ls/local/a:3:exclusive", a) == "/ls/local/a:3"
