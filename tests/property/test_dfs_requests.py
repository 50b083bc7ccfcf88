"""For all requests of clients, however odd their fields: the brain answers or refuses, and stays
what it says it is. Whatever else it raised would end the master for everybody."""

from __future__ import annotations

import contextlib
from typing import Any, get_type_hints

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mrstream.cluster.errors import ClusterError
from mrstream.cluster.wire.messages import Request, pack, unpack
from mrstream.dfs import protocol as p
from mrstream.dfs.metadata.image import load_image, pack_image
from tests.support.dfs_model import CHUNK, Model

OF_SERVERS = {p.Register, p.ReportChunks, p.Heartbeat, p.CommandDone}
KINDS = [
    kind
    for kind in dict.fromkeys([*Model(0).brain.calls, *Model(0).brain.queries])
    if kind not in OF_SERVERS
]
PATHS = st.sampled_from(
    ["/", "/a", "/a/b", "/a/b/c", "/f", "/g", "/.trash", "/.mrstream-x", "/a//b/", "", "a", "/..",
     "/\0", "/" + "x" * 256, "/é", "/*", "/{a,f}", "0000000000000001"]
)  # fmt: skip
NUMBERS = st.sampled_from(
    [0, 1, 2, 3, 4, 5, -1, -2, 64, 65, 1 << 16, CHUNK, 1 << 31, 1 << 32, (1 << 63) - 1, 1 << 63,
     (1 << 64) - 1, -(1 << 63)]
)  # fmt: skip
TIMES = st.sampled_from(
    [0.0, -1.0, -2.0, 0.5, 1.7e9, 1e12, 1e300, float("inf"), float("-inf"), float("nan")]
)
WORDS = st.sampled_from(["me", "", "r", "rw", "k", "MR" + "A" * 18, "x" * 300, "a:b", "/a"])
OTHERS: dict[Any, st.SearchStrategy[Any]] = {
    int: NUMBERS,
    float: TIMES,
    bool: st.booleans(),
    str: st.one_of(PATHS, WORDS),
    bytes: st.binary(max_size=8),
}


def values(hint: Any) -> st.SearchStrategy[Any]:
    hint = getattr(hint, "__supertype__", hint)  # a NewType is what it is made of
    if hint in OTHERS:
        return OTHERS[hint]
    if hint == tuple[str, int]:
        return st.one_of(st.just(("", 0)), st.tuples(st.sampled_from(["l", ""]), NUMBERS))
    if hint in (dict[str, bytes], dict[str, bytes | None]):
        value = st.binary(max_size=5) if hint == dict[str, bytes] else st.none() | st.binary()
        return st.dictionaries(WORDS, value, max_size=3)
    inner = hint.__args__[0]  # tuple[X, ...]
    return st.lists(values(inner), max_size=3).map(tuple)


@st.composite
def requests(draw: st.DrawFn) -> Request:
    kind = draw(st.sampled_from(KINDS))
    hints = get_type_hints(kind)
    fields = {name: draw(values(hints[name])) for name in kind.__struct_fields__}
    for name in ("path", "source", "target", "root", "rename_to"):
        if name in fields:
            fields[name] = draw(PATHS)
    made: Request = kind(**fields)
    return made


@settings(
    max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(st.lists(st.tuples(requests(), st.integers(0, 5)), min_size=5, max_size=40))
def test_no_request_ends_the_brain(asked: list[tuple[Request, int]]) -> None:
    model = Model(2)
    model.put("/f", CHUNK, replication=1)
    model.put("/a/b/c", 5, replication=2)
    model.create("/g", first_chunk=True)

    for request, number in asked:
        request = unpack(pack(request), type(request))  # as it comes from the wire
        call = model.begin(request, (7, number) if number else (0, 0))
        if model.is_answered(call):
            with contextlib.suppress(ClusterError):
                model.answer(call)
    model.crash()
    model.brain.check_invariants(everything=True)

    image = b"".join(pack_image(model.brain))
    loaded = model._new_brain()
    load_image(loaded, [image])
    assert b"".join(pack_image(loaded)) == image
