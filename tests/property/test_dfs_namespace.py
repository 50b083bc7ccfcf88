"""For all sequences of changes by several clients: the master agrees with a dict, restarts or not.

The dict maps paths to file contents' lengths, or to None for directories; another one their
attributes, a third the limits of directories. Every step is done to both; a refusal by one must be
a refusal by the other.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mrstream.cluster.errors import UserError
from mrstream.dfs import protocol as p
from mrstream.dfs.metadata.image import load_image, pack_image
from tests.support.dfs_model import CHUNK, Model

NAMES = st.sampled_from(["a", "b"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda names: "/" + "/".join(names))
VALUES = st.dictionaries(st.sampled_from(["x", "y"]), st.binary(max_size=3), max_size=2)
LENGTHS = st.sampled_from([0, 1, CHUNK, CHUNK + 1, 3 * CHUNK])


def parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


class NamespaceMachine(RuleBasedStateMachine):
    """The master and a dict, side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.model = Model(servers=4)
        self.expected: dict[str, int | None] = {"/": None}
        self.told: dict[str, dict[str, bytes]] = {}
        self.limits: dict[str, int] = {}
        self.generation = 0

    # --- the dict's side

    def below(self, path: str) -> list[str]:
        if path == "/":
            return list(self.expected)
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

    def fits(self, path: str, more: int) -> bool:
        """May so many names more be at and above a directory?"""
        return all(
            len(self.below(above)) + more <= limit
            for above, limit in self.limits.items()
            if above == path or above == "/" or path.startswith(above + "/")
        )

    def missing(self, path: str) -> tuple[str, int]:
        """The nearest directory above a path, and how many are missing below it."""
        above, count = parent(path), 0
        while above not in self.expected:
            above, count = parent(above), count + 1
        return above, count

    def has_room(self, path: str) -> bool:
        """Is there room for something new, with the directories that it takes?"""
        above, count = self.missing(path)
        return path in self.expected or self.fits(above, count + 1)

    def forget(self, paths: list[str]) -> None:
        for path in paths:
            del self.expected[path]
            self.told.pop(path, None)
            self.limits.pop(path, None)

    def moved(self, source: str, to: str) -> None:
        for path in self.below(source):
            new = to + path[len(source) :]
            self.expected[new] = self.expected.pop(path)
            for table in (self.told, self.limits):
                if path in table:
                    table[new] = table.pop(path)  # type: ignore[attr-defined]

    # --- steps

    @rule(path=PATHS, length=LENGTHS, overwrite=st.booleans())
    def put(self, path: str, length: int, overwrite: bool) -> None:
        old = self.expected.get(path, "none")
        allowed = (
            self.can_hold(path, make=True)
            and (old == "none" or (old is not None and overwrite))
            and self.has_room(path)
        )
        try:
            self.model.put(path, length, overwrite=overwrite)
        except UserError as refusal:
            assert not allowed, f"put {path} was refused: {refusal}"
            return
        assert allowed, f"put {path} should have been refused"
        self.make_parents(path)
        self.expected[path] = length
        self.told.pop(path, None)

    @rule(path=PATHS, replaces=st.sampled_from(["any", "none", "this", "other"]), told=VALUES)
    def put_whole(self, path: str, replaces: str, told: dict[str, bytes]) -> None:
        """Hidden until its end, which comes with conditions and attributes."""
        old = self.expected.get(path, "none")
        above, missing = self.missing(path)
        held = self.can_hold(path, make=True) and old is not None
        if not held or not self.fits(above, 1):
            return
        opened = self.model.create(path, hidden=True, overwrite=True)
        found = 0 if old == "none" else self.model.call(p.Stat(path)).file_id
        condition = {"any": -1, "none": 0, "this": found or 1 << 40, "other": 1 << 40}[replaces]
        allowed = (
            replaces == "any"
            or (replaces == "none" and old == "none")
            or (replaces == "this" and old != "none")
        ) and (old != "none" or self.fits(above, missing + 1))
        file_id, epoch = opened.status.file_id, opened.epoch
        ask = p.CloseFile(
            file_id,
            epoch,
            0,
            path,
            True,
            True,
            condition,
            attributes=told,  # type: ignore[arg-type]
        )
        if self.asked(ask, allowed):
            self.make_parents(path)
            self.expected[path] = 0
            self.told[path] = told
        else:
            self.model.call(p.AbandonFile(file_id, epoch))

    @rule(sources=st.lists(PATHS, min_size=1, max_size=3, unique=True), to=PATHS)
    def join(self, sources: list[str], to: str) -> None:
        lengths = [self.expected.get(path) for path in sources]
        if None in lengths:
            return
        filled = [length for length in lengths if length]
        allowed = (
            self.can_hold(to, make=False)
            and (to not in self.expected or self.expected[to] is not None)
            and all(length % CHUNK == 0 for length in filled[:-1])
        )
        ids = tuple(self.model.call(p.Stat(path)).file_id for path in sources)
        gone = [*sources, *([to] if to in self.expected else [])]
        before = {path: len(self.below(path)) for path in self.limits}
        for path in dict.fromkeys(gone) if allowed else ():
            kept = self.expected.pop(path)
            self.expected[f"?{path}"] = kept
        fits = (
            not allowed
            or to in gone
            or all(
                len(self.below(path)) + 1 <= limit or len(self.below(path)) + 1 <= before[path]
                for path, limit in self.limits.items()
                if path == "/" or to.startswith(path + "/")
            )
        )
        for path in dict.fromkeys(gone) if allowed else ():
            self.expected[path] = self.expected.pop(f"?{path}")
        if self.asked(p.JoinFiles(to, ids, "me", overwrite=True), allowed and fits):
            whole = sum(length for length in lengths if length)
            self.forget(list(dict.fromkeys(gone)))
            self.expected[to] = whole

    @rule(path=PATHS, told=VALUES, replace_all=st.booleans())
    def set_attributes(self, path: str, told: dict[str, bytes], replace_all: bool) -> None:
        allowed = path in self.expected
        ask = p.SetAttributes(path, dict(told), "me", replace_all)
        if self.asked(ask, allowed):
            self.told[path] = {**({} if replace_all else self.told.get(path, {})), **told}

    @rule(path=PATHS, names=st.integers(1, 4))
    def set_quota(self, path: str, names: int) -> None:
        if self.asked(p.SetQuota(path, "me", names), self.expected.get(path, 0) is None):
            self.limits[path] = names

    @rule(generation=st.integers(0, 4), path=PATHS)
    def under_a_fence(self, generation: int, path: str) -> None:
        allowed = generation >= self.generation
        self.asked(p.RaiseFence(("lock", generation)), allowed)
        self.generation = max(self.generation, generation)

    @rule(path=PATHS, parents=st.booleans())
    def make_directory(self, path: str, parents: bool) -> None:
        if path in self.expected:
            allowed = parents and self.expected[path] is None
        else:
            allowed = self.can_hold(path, make=parents) and self.has_room(path)
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
                and self.may_move(source, to)
            )
        )
        if self.asked(p.Rename(source, to, "me", overwrite), allowed) and source != to:
            self.forget([to] if to in self.expected else [])
            self.moved(source, to)

    def may_move(self, source: str, to: str) -> bool:
        """Is there room, where the tree was not before, in the place of what is replaced?"""
        count, gone = len(self.below(source)), len(self.below(to)) if to in self.expected else 0
        for above, limit in self.limits.items():
            holds_source = source != above and source.startswith(above + "/")
            holds_target = to != above and to.startswith(above + "/")
            more = count * (holds_target - holds_source) - gone * holds_target
            if more > 0 and len(self.below(above)) + more > limit:
                return False
        return True

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
            self.forget(self.below(path))

    @rule(source=PATHS, to=PATHS)
    def snapshot(self, source: str, to: str) -> None:
        allowed = (
            source in self.expected
            and to not in self.expected
            and self.can_hold(to, make=False)
            and not to.startswith(source + "/")
            and self.fits(parent(to), len(self.below(source)))
        )
        if self.asked(p.Snapshot(source, to, "me"), allowed):
            for path in self.below(source):
                copy = to + path[len(source) :]
                self.expected[copy] = self.expected[path]
                if path in self.told:
                    self.told[copy] = self.told[path]

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
        loaded.check_invariants(everything=True)

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
        for path in self.expected:
            values = self.model.call(p.GetAttributes(path)).values
            assert values == self.told.get(path, {}), path
        assert self.model.brain.fences.generation("lock") in (self.generation, -1)


TestNamespace = NamespaceMachine.TestCase
TestNamespace.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
