"""For all sequences of changes by several clients: the master agrees with a dict, restarts or not.

The dict maps paths to file contents' lengths, or to None for directories. Every step is done to
both; a refusal by one must be a refusal by the other.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mrstream.cluster.errors import UserError
from mrstream.dfs import protocol as p
from mrstream.dfs.metadata.image import load_image, pack_image
from tests.dfs_model import CHUNK, Model

NAMES = st.sampled_from(["a", "b", "c"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda names: "/" + "/".join(names))
LENGTHS = st.sampled_from([0, 1, CHUNK, CHUNK + 1, 3 * CHUNK])


def parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class NamespaceMachine(RuleBasedStateMachine):
    """The master and a dict, side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model(servers=4)
        self.expected: dict[str, int | None] = {"/": None}

    # --- the dict's side

    def below(self, path: str) -> list[str]:
        return [other for other in self.expected if other == path or other.startswith(path + "/")]

    def can_hold(self, path: str, make: bool) -> bool:
        """May something be put at this path?"""
        above = parent(path)
        while above not in self.expected:
            if not make:
                return False
            above = parent(above)
        return self.expected[above] is None

    def make_parents(self, path: str) -> None:
        above = parent(path)
        while above not in self.expected:
            self.expected[above] = None
            above = parent(above)

    def asked(self, request: object, allowed: bool) -> bool:
        """Ask the master; both must agree on whether it may be."""
        try:
            self.model.call(request)  # type: ignore[arg-type]
        except UserError as refusal:
            assert not allowed, f"{request} was refused: {refusal}"
            return False
        assert allowed, f"{request} should have been refused"
        return True

    # --- steps

    @rule(path=PATHS, length=LENGTHS, overwrite=st.booleans())
    def put(self, path: str, length: int, overwrite: bool) -> None:
        old = self.expected.get(path, "none")
        allowed = self.can_hold(path, make=True) and (
            old == "none" or (old is not None and overwrite)
        )
        try:
            self.model.put(path, length, overwrite=overwrite)
        except UserError as refusal:
            assert not allowed, f"put {path} was refused: {refusal}"
            return
        assert allowed, f"put {path} should have been refused"
        self.make_parents(path)
        self.expected[path] = length

    @rule(path=PATHS, parents=st.booleans())
    def make_directory(self, path: str, parents: bool) -> None:
        if path in self.expected:
            allowed = parents and self.expected[path] is None
        else:
            allowed = self.can_hold(path, make=parents)
        if self.asked(p.MakeDirectory(path, "me", parents=parents), allowed):
            self.make_parents(path)
            self.expected[path] = None

    @rule(source=PATHS, to=PATHS, overwrite=st.booleans())
    def rename(self, source: str, to: str, overwrite: bool) -> None:
        allowed = source in self.expected and (
            source == to
            or (
                self.can_hold(to, make=False)
                and not to.startswith(source + "/")
                and self.may_replace(source, to, overwrite)
            )
        )
        if self.asked(p.Rename(source, to, "me", overwrite), allowed) and source != to:
            self.expected.pop(to, None)
            for path in self.below(source):
                self.expected[to + path[len(source) :]] = self.expected.pop(path)

    def may_replace(self, source: str, target: str, overwrite: bool) -> bool:
        if target not in self.expected:
            return True
        old, new = self.expected[target], self.expected[source]
        if not overwrite or (old is None) != (new is None):
            return False
        return old is not None or len(self.below(target)) == 1

    @rule(path=PATHS, recursive=st.booleans(), skip_trash=st.booleans())
    def delete(self, path: str, recursive: bool, skip_trash: bool) -> None:
        allowed = path in self.expected and (recursive or len(self.below(path)) == 1)
        if self.asked(p.Delete(path, "me", recursive, skip_trash), allowed):
            for gone in self.below(path):
                del self.expected[gone]

    @rule(source=PATHS, to=PATHS)
    def snapshot(self, source: str, to: str) -> None:
        allowed = (
            source in self.expected
            and to not in self.expected
            and self.can_hold(to, make=False)
            and not to.startswith(source + "/")
        )
        if self.asked(p.Snapshot(source, to, "me"), allowed):
            for path in self.below(source):
                self.expected[to + path[len(source) :]] = self.expected[path]

    @rule(path=PATHS, length=st.integers(1, CHUNK))
    def append(self, path: str, length: int) -> None:
        before = self.expected.get(path)
        try:
            opened = self.model.call(p.OpenAppend(path, "other", "me"))
        except UserError:
            assert before is None
            return
        assert before is not None and opened.status.length_bytes == before
        index, offset = divmod(before, CHUNK)
        length = min(length, CHUNK - offset)
        file_id, epoch = opened.status.file_id, opened.epoch
        ask = p.FindLease("", index, file_id, epoch) if offset else None
        grant = self.model.call(ask or p.AllocateChunk(file_id, epoch, index))
        self.model.write(grant, offset + length)
        self.model.close(opened, before + length)
        self.expected[path] = before + length

    @rule()
    def restart_the_master(self) -> None:
        self.model.crash()

    @rule()
    def restart_from_a_checkpoint(self) -> None:
        image = b"".join(pack_image(self.model.brain))
        loaded = self.model._new_brain()
        load_image(loaded, [image])
        assert b"".join(pack_image(loaded)) == image

    @rule(number=st.integers(1, 4))
    def restart_a_chunkserver(self, number: int) -> None:
        self.model.kill(f"s{number}")
        self.model.restart(f"s{number}")

    # --- what must hold

    @invariant()
    def they_agree(self) -> None:
        page = self.model.call(p.FindTree("/", limit=10_000))
        found = {
            status.path: None if status.is_directory else status.length_bytes
            for status in page.entries
        }
        assert found == self.expected


TestNamespace = NamespaceMachine.TestCase
TestNamespace.settings = settings(
    max_examples=60,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
