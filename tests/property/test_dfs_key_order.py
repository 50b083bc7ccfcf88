"""For all trees, prefixes and places to begin: keys come in byte order, each once, page by page.

The oracle is a sorted list of the keys that there are.
"""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from mrstream.dfs import protocol as p
from mrstream.dfs.metadata import operations as op
from mrstream.dfs.metadata.metadata import Metadata
from mrstream.dfs.metadata.settings import Settings
from tests.support.examples import examples

NAMES = st.text(alphabet="a-./0b".replace("/", "") + "é", min_size=1, max_size=3).filter(
    lambda name: name not in (".", "..")
)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
KEYS = st.text(alphabet="a-./0bé", max_size=6)


def tree(files: list[str], markers: list[str]) -> tuple[Metadata, list[str], list[str]]:
    """A brain with these files and directories below /r; return what of it there could be."""
    brain = Metadata(Settings(), random.Random(1))
    nodes = brain.space.nodes

    def directory(path: str, implicit: bool) -> None:
        made = op.DirectoryMade(path, nodes.next_id(), "me", "g", 0o755, 1.0, implicit=implicit)
        brain.apply(made)

    def room_for(path: str) -> bool:
        parts = path.split("/")
        for end in range(1, len(parts)):
            above = "/r/" + "/".join(parts[:end])
            row = nodes.lookup(tuple(above[1:].encode().split(b"/")))
            if row is None:
                directory(above, implicit=True)
            elif nodes.kind[row] != 2:
                return False
        return nodes.lookup(tuple(f"r/{path}".encode().split(b"/"))) is None

    directory("/r", implicit=False)
    keys: list[str] = []
    prefixes: list[str] = []
    for path in files:
        if room_for(path):
            brain.apply(
                op.FileCreated(
                    f"/r/{path}", nodes.next_id(), brain.space.next_epoch, "c", "me", "g",  # type: ignore[arg-type]
                    0o644, 1, 1 << 20, 1.0,
                )
            )  # fmt: skip
            keys.append(path)
    for path in markers:
        if room_for(path):
            directory(f"/r/{path}", implicit=False)
            row = brain.space.row(f"/r/{path}")
            brain.apply(op.AttributesSet(nodes.id_of(row), {"m": b"1"}, 1.0))
            keys.append(path + "/")
    for key in keys:
        parts = key.rstrip("/").split("/")
        prefixes += ["/".join(parts[:end]) + "/" for end in range(1, len(parts))]
    return brain, sorted(keys, key=str.encode), prefixes


def expected(keys: list[str], prefix: str, after: str, by_directory: bool) -> list[str]:
    found = []
    for key in keys:
        if not key.startswith(prefix):
            continue
        if by_directory and "/" in key[len(prefix) :]:
            key = prefix + key[len(prefix) :].partition("/")[0] + "/"
        if key.encode() > after.encode() and key not in found:
            found.append(key)
    return found


@settings(max_examples=examples(135), deadline=None, derandomize=True)
@given(
    st.lists(PATHS, max_size=12), st.lists(PATHS, max_size=4), KEYS, KEYS,
    st.booleans(), st.integers(1, 4), st.data(),
)  # fmt: skip
def test_keys_are_those_that_there_are_in_byte_order(
    files: list[str],
    markers: list[str],
    prefix: str,
    after: str,
    by_directory: bool,
    limit: int,
    data: st.DataObject,
) -> None:
    brain, keys, prefixes = tree(files, markers)
    likely = [*keys, *prefixes]
    if likely and data.draw(st.booleans()):
        whole = data.draw(st.sampled_from(likely))
        prefix = whole[: data.draw(st.integers(0, len(whole)))]
    if likely and data.draw(st.booleans()):
        after = data.draw(st.sampled_from(likely))
    wanted = expected(keys, prefix, after, by_directory)

    found: list[p.KeyEntry] = []
    for _ in range(100):
        page = brain.query(p.FindKeys("/r", prefix, after, by_directory, limit), 1.0)
        found += page.entries
        if not page.next:
            break
        assert page.next.encode() > after.encode(), "a listing that goes on for ever"
        after = page.next

    assert [entry.key for entry in found] == wanted
    for entry in found:
        assert entry.is_prefix == (by_directory and "/" in entry.key[len(prefix) :])
