"""The verbs that check: the state of every replica of every file, as the master knows it; and the
story of files and chunks.

With -compare every replica of every chunk is read by its own server, and their checksums are
compared with each other. Ends with `Name: number` lines and a `Status:` line.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field

from mrstream.cluster.errors import Corrupt, Unavailable
from mrstream.dfs.chunk import HIDDEN_NAME, handle_name
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.protocol import ChecksumChunk, ChunkFact, FileFact
from mrstream.dfs.shell.arguments import Arguments
from mrstream.dfs.shell.changing import client_of
from mrstream.dfs.shell.formats import millisecond
from mrstream.dfs.shell.items import Shell

HANDLE = re.compile(r"[0-9a-f]{16}")


@dataclass(slots=True)
class Totals:
    """What the last lines say."""

    length_bytes: int = 0
    directories: int = 0
    files: int = 0
    files_open: int = 0
    files_unfinished: int = 0
    chunks: int = 0
    replicas: int = 0
    under_replicated: int = 0
    over_replicated: int = 0
    corrupt: int = 0
    missing: int = 0
    stale: int = 0
    corrupt_replicas: int = 0
    short_replicas: int = 0
    different: int = 0
    troubles: list[str] = field(default_factory=list)
    """In words; kept for the JSON form only."""

    def is_healthy(self) -> bool:
        """Is every chunk there, and none of its copies known to be bad?"""
        return not (self.missing or self.corrupt or self.different)


def fsck(shell: Shell, said: Arguments) -> None:
    """Check files at and below paths; exit status 1 if anything is corrupt or missing."""
    totals = Totals()
    client: DfsClient | None = None
    for item in shell.each(said.rest or ("/",)):
        with shell.reported(item.shown):
            client = client_of(item)
            for page in client.fsck(item.path):
                totals.directories += page.directory_count
                for fact in page.files:
                    _check_file(shell, client, fact, said, totals)
    if client is None:
        return
    report = client.report()
    live = sum(1 for server in report.servers if server.state == "up")
    if "json" in said:
        document = {
            "healthy": totals.is_healthy(),
            "chunkservers": live,
            "safe_mode": report.safe_mode,
            **asdict(totals),
        }
        shell.print(json.dumps(document, indent=2))
        shell.status = 0 if totals.is_healthy() else 1
        return
    if report.safe_mode:
        shell.print(f"The master is in safe mode: {report.safe_mode}")
    _print_totals(shell, totals, live, len({s.address.rack for s in report.servers}))
    if not totals.is_healthy():
        shell.status = 1


def _print_totals(shell: Shell, totals: Totals, live: int, racks: int) -> None:
    average = totals.replicas / totals.chunks if totals.chunks else 0.0
    for name, value in (
        ("Number of chunkservers", live),
        ("Number of racks", racks),
        ("Total size", totals.length_bytes),
        ("Total directories", totals.directories),
        ("Total files", totals.files),
        ("Open files", totals.files_open),
        ("Unfinished files", totals.files_unfinished),
        ("Total chunks", totals.chunks),
        ("Average replication", f"{average:.2f}"),
        ("Over-replicated chunks", totals.over_replicated),
        ("Under-replicated chunks", totals.under_replicated),
        ("Stale replicas", totals.stale),
        ("Short replicas", totals.short_replicas),
        ("Corrupt replicas", totals.corrupt_replicas),
        ("Differing chunks", totals.different),
        ("Corrupt chunks", totals.corrupt),
        ("Missing chunks", totals.missing),
    ):
        shell.print(f"{name}: {value}")
    shell.print(f"Status: {'HEALTHY' if totals.is_healthy() else 'CORRUPT'}")


def _check_file(
    shell: Shell, client: DfsClient, fact: FileFact, said: Arguments, totals: Totals
) -> None:
    status = fact.status
    totals.files += 1
    totals.files_open += status.is_open
    totals.files_unfinished += f"/{HIDDEN_NAME}" in status.path
    totals.length_bytes += status.length_bytes
    troubles = [
        trouble
        for chunk in fact.chunks
        for trouble in _check_chunk(client, status.path, chunk, said, totals)
    ]
    if "json" not in said and ("files" in said or "chunks" in said or "locations" in said):
        state = "OK" if not troubles else "BAD"
        if status.is_open:
            state += ", OPENFORWRITE"
        shell.print(
            f"{status.path} {status.length_bytes} bytes, replication={status.replication}, "
            f"{len(fact.chunks)} chunk(s):  {state}"
        )
    if "json" in said:
        totals.troubles += [f"{status.path}: {trouble}" for trouble in troubles]
        return
    for trouble in troubles:
        shell.print(f"{status.path}: {trouble}")
    if "chunks" in said or "locations" in said:
        for chunk in fact.chunks:
            _print_chunk(shell, chunk, said)


def _print_chunk(shell: Shell, chunk: ChunkFact, said: Arguments) -> None:
    good = sum(1 for replica in chunk.replicas if replica.state == "good")
    line = (
        f"{chunk.index}. {handle_name(chunk.handle)} version={chunk.version} "
        f"len={chunk.length_bytes} Live_repl={good}"
    )
    if "locations" in said or "racks" in said:
        places = ", ".join(
            (f"/{one.rack or 'default-rack'}/" if "racks" in said else "")
            + one.server
            + ("" if one.state == "good" else f" ({one.state}, version {one.version})")
            for one in chunk.replicas
        )
        line += f"  [{places}]"
    shell.print(line)


def _check_chunk(
    client: DfsClient, path: str, chunk: ChunkFact, said: Arguments, totals: Totals
) -> list[str]:
    """Count what is wrong with a chunk, and name it."""
    by_state: dict[str, list[str]] = {}
    for replica in chunk.replicas:
        by_state.setdefault(replica.state, []).append(replica.server)
    good = len(by_state.get("good", ()))
    totals.chunks += 1
    totals.replicas += good
    totals.stale += len(by_state.get("stale", ()))
    totals.short_replicas += len(by_state.get("short", ()))
    totals.corrupt_replicas += len(by_state.get("corrupt", ()))
    name = f"chunk {chunk.index} ({handle_name(chunk.handle)})"
    troubles = []
    if good == 0:
        totals.missing += 1
        troubles.append(f"{name}: MISSING: no server that is up has a good replica")
    elif good < chunk.goal:
        totals.under_replicated += 1
        troubles.append(f"{name}: under-replicated: {good} of {chunk.goal} replicas")
    elif good > chunk.goal:
        totals.over_replicated += 1
    if by_state.get("corrupt"):
        totals.corrupt += 1
        troubles.append(f"{name}: CORRUPT at {', '.join(by_state['corrupt'])}")
    for state in ("stale", "short"):
        if by_state.get(state):
            troubles.append(f"{name}: {state} at {', '.join(by_state[state])}")
    if "compare" in said and good:
        different = _compare(client, path, chunk)
        if different:
            totals.different += 1
            troubles.append(f"{name}: {different}")
    return troubles


def _compare(client: DfsClient, path: str, chunk: ChunkFact) -> str:
    """Have each server read its replica; return how they differ, empty if they do not."""
    sums: dict[str, str] = {}
    for located in client.locate(path, chunk.index, 1).chunks:
        for server in located.replicas:
            request = ChecksumChunk(chunk.handle, chunk.version, chunk.length_bytes)
            address = client.pool.address_of(server)
            try:
                sums[server.server] = client.pool.call(address, request).packed.hex()
            except (Unavailable, Corrupt) as error:
                sums[server.server] = f"error: {error}"
    if len(set(sums.values())) <= 1 and not any(one.startswith("error") for one in sums.values()):
        return ""
    errors = [f"{server}: {one}" for server, one in sums.items() if one.startswith("error")]
    return "replicas DIFFER: " + ("; ".join(errors) or ", ".join(sorted(sums)))


def story(shell: Shell, said: Arguments) -> None:
    """Say what happened lately to files, or to chunks, which are named by their handle."""
    for word in said.rest:
        is_chunk = HANDLE.fullmatch(word) is not None
        with shell.reported(word):
            item = shell.resolve("/" if is_chunk else word)
            item.known()
            for line in client_of(item).story(word if is_chunk else item.path):
                shell.print(f"{millisecond(line.at_s)} {line.text}")
