"""The files of the demonstration: a small tree in memory, so that every page has something to show.

Changes work and are forgotten with the process. Holds at most `BYTES_MAX` of what a user brings.
"""

from __future__ import annotations

import gzip
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mrstream.cluster.errors import UserError
from mrstream.view.picture import ChunkPlace, Download, FileEntry, Trash, Upload
from mrstream.view.preview import PREVIEW_BYTES, plain_head, preview_text

BYTES_MAX = 64 << 20
CHUNK_BYTES = 64 << 20
PIECE_BYTES = 1 << 20
MADE_AT_S = 1_071_000_000.0
"""Of the files that are there from the start: about when the paper's cluster was."""
COPIES = 3

_README = """\
The files of this demonstration are in memory: try everything, nothing outlives it.

/input     the records to be sorted
/sorted    where the simulated sort would leave them
/examples  a log, words, and names that must stay names
"""


@dataclass(frozen=True, slots=True)
class _Deleted:
    """What went to the trash in one piece."""

    top: str
    nodes: tuple[tuple[str, FileEntry, bytes], ...]


class DemoFiles:
    """A tree of files by path; directories are entries too. What `Source` asks of files."""

    def __init__(self) -> None:
        self._tree_lock = threading.RLock()
        self._entries: dict[str, FileEntry] = {"/": _entry("/", None)}
        self._bytes: dict[str, bytes] = {}
        self._trash: dict[str, _Deleted] = {}
        for path in ("/input", "/sorted", "/examples"):
            self._entries[path] = _entry(path, None)
        for path, data in _first_files().items():
            self.put(path, data, at_s=MADE_AT_S)

    # --- looking

    def stat(self, path: str) -> FileEntry:
        with self._tree_lock:
            found = self._entries.get(path)
        if found is None:
            raise UserError(f"{path}: no such file or directory in the demonstration")
        return found

    def bytes_of(self, path: str) -> bytes:
        if self.stat(path).is_directory:
            raise UserError(f"{path}: a directory of the demonstration, and no file")
        return self._bytes[path]

    def list_directory(self, path: str) -> list[FileEntry]:
        if not self.stat(path).is_directory:
            raise UserError(f"{path}: no directory of the demonstration")
        with self._tree_lock:
            return [entry for key, entry in sorted(self._entries.items()) if _parent(key) == path]

    def usage(self, path: str) -> list[tuple[str, int]]:
        with self._tree_lock:
            sums = [
                (entry.path, self._bytes_below(entry.path)) for entry in self.list_directory(path)
            ]
        return sorted(sums, key=lambda pair: -pair[1])

    def _bytes_below(self, top: str) -> int:
        return sum(len(data) for path, data in self._bytes.items() if _is_below(path, top))

    def preview(self, path: str) -> str:
        return preview_text(path, self.bytes_of(path)[:PREVIEW_BYTES])

    def head(self, path: str) -> bytes:
        return plain_head(path, self.bytes_of(path)[:PREVIEW_BYTES])

    def story(self, path: str) -> list[tuple[float, str]]:
        entry = self.stat(path)
        return [(entry.modified_at_s, f"{path} was made by {entry.owner}")]

    def chunks_on(self, path: str, hosts: Sequence[str]) -> list[ChunkPlace]:
        """Return where its chunks are, if these hosts hold them."""
        length, goal = len(self.bytes_of(path)), self.stat(path).replication
        places = []
        for index, start in enumerate(range(0, length, CHUNK_BYTES)):
            handle = zlib.crc32(f"{path} {index}".encode())
            where = sorted(hosts, key=lambda host: zlib.crc32(f"{handle} {host}".encode()))[:goal]
            state = "good" if len(where) == goal else "under-replicated" if where else "missing"
            size = min(CHUNK_BYTES, length - start)
            places.append(ChunkPlace(index, handle, 1, size, tuple(where), state))
        return places

    def trash(self) -> Trash:
        with self._tree_lock:
            return Trash(tuple(deleted.nodes[0][1] for deleted in self._trash.values()))

    def download(self, path: str) -> Download:
        data = self.bytes_of(path)
        starts = range(0, len(data), PIECE_BYTES)
        pieces: Iterator[bytes] = (data[start : start + PIECE_BYTES] for start in starts)
        return Download(len(data), pieces)

    # --- changing

    def put(self, path: str, data: bytes, *, at_s: float) -> None:
        with self._tree_lock:
            self._directory_of(path)
            if path in self._entries and self._entries[path].is_directory:
                raise UserError(f"{path}: there is a directory of this name")
            self._entries[path] = _entry(path, len(data), at_s)
            self._bytes[path] = data

    def check_new(self, path: str, *, replace: bool) -> None:
        """Refuse a name that a file cannot have."""
        with self._tree_lock:
            self._directory_of(path)
            if not replace:
                self._vacant(path)

    def make_directory(self, path: str) -> str:
        with self._tree_lock:
            self._directory_of(path)
            self._vacant(path)
            self._entries[path] = _entry(path, None, time.time())
        return f"made {path}"

    def rename(self, path: str, target: str) -> str:
        with self._tree_lock:
            self.stat(path)
            self._directory_of(target)
            self._vacant(target)
            if _is_below(target, path) or path == "/":
                raise UserError(f"{path} cannot become {target}: that is inside of it")
            for key in [key for key in self._entries if _is_below(key, path)]:
                moved = target + key[len(path) :]
                self._entries[moved] = replace(self._entries.pop(key), path=moved)
                if key in self._bytes:
                    self._bytes[moved] = self._bytes.pop(key)
        return f"{path} is now {target}"

    def delete(self, path: str) -> str:
        with self._tree_lock:
            self.stat(path)
            if path == "/":
                raise UserError("/ cannot be deleted")
            keys = sorted(key for key in self._entries if _is_below(key, path))
            nodes = tuple((key, self._entries.pop(key), self._bytes.pop(key, b"")) for key in keys)
            self._trash[path] = _Deleted(path, nodes)
        return f"{path} is in the trash"

    def undelete(self, path: str) -> str:
        with self._tree_lock:
            if path not in self._trash:
                raise UserError(f"{path} is not in the trash of the demonstration")
            self._directory_of(path)
            self._vacant(path)
            for key, entry, data in self._trash.pop(path).nodes:
                self._entries[key] = entry
                if not entry.is_directory:
                    self._bytes[key] = data
        return f"{path} is back"

    def set_replication(self, path: str, replication: int) -> str:
        self.bytes_of(path)
        with self._tree_lock:
            self._entries[path] = replace(self._entries[path], replication=replication)
        return f"{path}: {replication} copies wanted"

    def upload(self, path: str, *, replace: bool = False) -> Upload:
        return DemoUpload(self, path, time.time(), replace=replace)

    def room(self) -> int:
        """How many more bytes may be brought."""
        with self._tree_lock:
            kept = sum(len(data) for data in self._bytes.values())
            kept += sum(len(node[2]) for gone in self._trash.values() for node in gone.nodes)
        return BYTES_MAX - kept

    def _directory_of(self, path: str) -> None:
        if not self.stat(_parent(path)).is_directory:
            raise UserError(f"{_parent(path)}: no directory of the demonstration")

    def _vacant(self, path: str) -> None:
        if path in self._entries:
            raise UserError(f"{path}: it is there already")


class DemoUpload:
    """A file being brought; it is there when it is closed."""

    def __init__(self, files: DemoFiles, path: str, at_s: float, *, replace: bool = False) -> None:
        self._files, self._path, self._at_s = files, path, at_s
        self._held = bytearray()
        files.check_new(path, replace=replace)

    def write(self, data: bytes, /) -> int:
        if len(self._held) + len(data) > self._files.room():
            raise UserError(f"the demonstration keeps {BYTES_MAX >> 20} MiB of files and no more")
        self._held += data
        return len(data)

    def close(self) -> None:
        self._files.put(self._path, bytes(self._held), at_s=self._at_s)

    def abandon(self) -> None:
        self._held.clear()


def _entry(path: str, length: int | None, at_s: float = MADE_AT_S) -> FileEntry:
    if length is None:
        return FileEntry(path, True, 0, 0, "you", "paper", 0o755, at_s)
    return FileEntry(path, False, length, COPIES, "you", "paper", 0o644, at_s)


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/" if path != "/" else ""


def _is_below(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")


def _first_files() -> dict[str, bytes]:
    records = b"".join(b"%010d%s\r\n" % (zlib.crc32(b"%d" % n), b"." * 88) for n in range(2000))
    lines = b"".join(
        b'10.0.0.%d - - [09/Dec/2003:20:%02d:%02d] "GET /page/%d" 200 %d\n'
        % (n % 250, n // 60 % 60, n % 60, n * 7 % 900, n * 37 % 5000)
        for n in range(1500)
    )
    words = " ".join(_README.split()).encode() + b"\n"
    return {
        "/README.txt": _README.encode(),
        "/input/part-00000": records,
        "/examples/web.log": lines,
        "/examples/words.txt.gz": gzip.compress(words, mtime=0),
        "/examples/bytes.bin": bytes(range(256)) * 8,
        "/examples/<b>not bold & <script>alert(1)": b"<script>alert(2)</script>\n",
    }
