"""What gateways and lock holders do in the simulator: whole objects under conditions, joins,
attributes, changes under fences, quotas, keys.

Each is a program of a client, as those in `client`. What is noted in `Book` here: which file was
replaced by whom (at most once each), and which requests were made under which fences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mrstream.cluster.errors import UserError
from mrstream.dfs import protocol as p
from mrstream.dfs.chunk import FileId
from mrstream.dfs.errors import NoSuchFile
from tests.simulation.dfs.book import Truth

if TYPE_CHECKING:
    from tests.simulation.dfs.client import Program, SimClient

KEY = "/objects/deep/key"
LOCKS = (("lock",), ("flow",), ("lock", "flow"), ("flow", "lock"))
"""What takers have in turn: both may lose either."""
CHUNK = 2 * 65536


def act(client: SimClient, mine: dict[str, int], count: int) -> Program:
    """One of them."""
    kind = client.chance.randrange(-1, 10)
    if kind < 2:
        yield from put_object(client)
    elif kind == 2:
        yield from look_at_object(client)
    elif kind == 3:
        yield from join(client, mine, count)
    elif kind == 4:
        yield from set_attributes(client, mine)
    elif kind == 5:
        yield from under_a_fence(client)
    elif kind == 6:
        yield from set_quota(client)
    elif kind == 7:
        yield from keys(client, count)
    elif kind == 8:
        hidden = client.chance.random() < 0.5
        yield from client.call(p.Delete(KEY, "me", skip_trash=hidden, prune_to="/objects"))
    else:
        yield from attributes_of_mine(client, mine)


def put_object(client: SimClient) -> Program:
    """Write an object that appears whole, in the place of the one that was read, or of any."""
    seen = p.NO_FILE
    try:
        status = yield from client.call(p.Stat(KEY))
        seen = status.file_id
    except NoSuchFile:
        pass
    yield client._pause(client.chance.uniform(0, 10))  # others do the same meanwhile
    length = client.chance.choice([0, 10, 70_000, CHUNK + 5])
    opened = yield from client.call(
        p.CreateFile(KEY, client.name, "me", overwrite=True, first_chunk=length > 0, hidden=True)
    )
    truth = client.book.files[opened.status.file_id] = Truth()
    compares = client.chance.random() < 0.6
    ending: dict[str, Any] = {
        "rename_to": KEY, "parents": True, "keep_replaced": client.chance.random() < 0.5,
        "attributes": {"length": str(length).encode(), "by": client.name.encode()},
        "overwrite": not compares, "replaces": seen if compares else p.ANY_FILE,
    }  # fmt: skip
    try:
        yield from client._extend(opened, truth, length, opened.grant, ending)
    except UserError:
        yield from client.call(p.AbandonFile(opened.status.file_id, opened.epoch))
        return
    if compares and seen != p.NO_FILE:
        if seen in client.book.replaced:
            client.book.wrong.append(f"file {seen:x} was compared and swapped twice")
        client.book.replaced[seen] = opened.status.file_id


def look_at_object(client: SimClient) -> Program:
    """An object is whole, with the attributes that came with it, or not there (G1)."""
    reply = yield from client.call(p.GetAttributes(KEY))
    told = int(reply.values.get("length", b"-1"))
    if told != reply.status.length_bytes or reply.status.is_open:
        client.book.wrong.append(f"{KEY} has {reply.status.length_bytes} bytes, should have {told}")
    page = yield from client.call(p.FindKeys("/objects", attributes=("length",)))
    for entry in page.entries:
        if ".mrstream-" in entry.key or entry.attributes["length"] != b"%d" % entry.length_bytes:
            client.book.wrong.append(f"{entry} is not an object")


def join(client: SimClient, mine: dict[str, int], count: int) -> Program:
    """Write parts, of which one may not fill its chunk, and make one file of them."""
    ids = []
    for number in range(client.chance.randint(1, 3)):
        length = client.chance.choice([CHUNK, CHUNK, 2 * CHUNK, 10])
        path = f"/{client.name}/u{count}/{number}"
        ids.append((yield from client.write_file(path, length)))
    truths = [client.book.files[file_id] for file_id in ids]
    whole = bytearray(b"".join(bytes(truth.data) for truth in truths))
    target = f"/{client.name}/j{count}"
    first = truths[0]
    first.instead = whole
    status = yield from client.call(
        p.JoinFiles(target, tuple(map(FileId, ids)), "me", attributes={"parts": b"%d" % len(ids)})
    )
    first.data, first.acked, first.instead = whole, len(whole), None
    if status.length_bytes != len(whole):
        client.book.wrong.append(f"{target}: joined to {status.length_bytes}, not {len(whole)}")
    for file_id in ids[1:]:
        client.book.files.pop(file_id)
    mine[target] = ids[0]


def set_attributes(client: SimClient, mine: dict[str, int]) -> Program:
    """Count something up, one owner each."""
    path = client.chance.choice(sorted(mine))
    client.book.told[mine[path]] = count = client.book.told.get(mine[path], 0) + 1
    changed: dict[str, bytes | None] = {"count": b"%d" % count, "old": None}
    yield from client.call(p.SetAttributes(path, changed, "me", file_id=FileId(mine[path])))


def attributes_of_mine(client: SimClient, mine: dict[str, int]) -> Program:
    """They are never older than the last that was acknowledged, nor made up."""
    path = client.chance.choice(sorted(mine))
    reply = yield from client.call(p.GetAttributes(path))
    told = int(reply.values.get("count", b"0"))
    if told > client.book.told.get(reply.status.file_id, 0):
        client.book.wrong.append(f"{path}: count {told} was never set")


def under_a_fence(client: SimClient) -> Program:
    """Take a lock or two (from whoever has them), and do a few things under them; slowly."""
    book = client.book
    book.generation += 1
    fences = tuple((name, book.generation) for name in LOCKS[book.generation % len(LOCKS)])
    under: Any = {"fence": fences[0], "more_fences": fences[1:]}
    for step in range(client.chance.randint(1, 3)):
        path = f"/locked/{client.name}-{fences[0][1]}-{step}"
        if client.chance.random() < 0.3:
            request: Any = p.CreateFile(path, client.name, "me", **under)
        else:
            request = p.MakeDirectory(path, "me", parents=True, **under)
        book.under[client.next_id] = fences
        answer = yield from client.call(request)
        if isinstance(answer, p.OpenFile):
            client.book.files[answer.status.file_id] = Truth()
        yield client._pause(client.chance.uniform(0, 4))


def set_quota(client: SimClient) -> Program:
    """Limit the client's own directory, or all of it, or no longer."""
    path = client.chance.choice([f"/{client.name}", "/", "/objects"])
    if client.chance.random() < 0.6:
        names = client.chance.choice([-1, 12, 60])
        space = client.chance.choice([-1, 40 * 3 * CHUNK, 400 * 3 * CHUNK])
        yield from client.call(p.SetQuota(path, "me", names, space))
    else:
        yield from client.call(p.ClearQuota(path, "me", names=True, space=True))


def keys(client: SimClient, count: int) -> Program:
    """Make a key and revoke it; links are spent once."""
    letter = "ABCDEFGH"[client.number]
    key = f"MR{letter}{count:017}".translate(str.maketrans("0189", "QWXY"))
    yield from client.call(p.MakeKey(key, f"k-{client.name}-{count}", "me"))
    if client.chance.random() < 0.5:
        yield from client.call(p.RevokeKey(key))
    nonce = f"{client.name}-{count}"
    yield from client.call(p.SpendLink(nonce, client.master.clock.wall_s() + 5000.0))
