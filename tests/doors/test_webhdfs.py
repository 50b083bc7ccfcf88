"""WebHDFS at the level of requests: every operation, its shape, and how it fails (doors §4)."""

from __future__ import annotations

import base64
import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import crc32c
import pytest
import requests

from mrstream.web.webhdfs.door import OPERATIONS, UNSUPPORTED
from tests.cluster.local import wait_for
from tests.doors.gateway_cluster import GatewayCluster, Secret

OWN_ADDRESS = "127.0.0.77"
"""Wrong guesses of others at keys that nobody has are not this one's."""
STATUS_KEYS = [
    "accessTime", "blockSize", "childrenNum", "fileId", "group", "length", "modificationTime",
    "owner", "pathSuffix", "permission", "replication", "storagePolicy", "type",
]  # fmt: skip


class Hdfs:
    """`op=…` on a path."""

    def __init__(self, doors: GatewayCluster, session: requests.Session) -> None:
        self.doors = doors
        self.session = session

    def __call__(
        self, method: str, path: str, op: str, status: int = 200, data: Any = None, **more: Any
    ) -> requests.Response:
        answer = self.session.request(
            method, self.doors.url(path), params={"op": op, **more}, data=data,
            allow_redirects=False,
        )  # fmt: skip
        assert answer.status_code == status, answer.text
        return answer

    def refused(
        self, method: str, path: str, op: str, status: int, exception: str, **more: Any
    ) -> str:
        """Expect Hadoop's exception; return its message."""
        answer = self(method, path, op, status, **more)
        assert answer.headers["content-type"] == "application/json"
        found = answer.json()["RemoteException"]
        assert found["exception"] == exception
        assert found["javaClassName"].endswith(f".{exception}")
        assert "Traceback" not in found["message"]
        return str(found["message"])

    def put(self, path: str, data: bytes, **more: Any) -> None:
        """Make a file in one request; `data=true` lets it be empty."""
        self("PUT", f"{path}?data=true", "CREATE", 201, data=data, **more)

    def get(self, path: str, **more: Any) -> bytes:
        return self("GET", path, "OPEN", **more).content


@pytest.fixture
def hdfs(doors: GatewayCluster, session: requests.Session) -> Hdfs:
    return Hdfs(doors, session)


# --- reading


def test_a_file_comes_back_as_it_was_sent(hdfs: Hdfs, place: str) -> None:
    """Several chunks of 1 MiB, and the borders between them."""
    data = bytes(range(256)) * 10_000
    hdfs.put(f"{place}/f", data)

    answer = hdfs("GET", f"{place}/f", "open")
    assert answer.content == data
    assert answer.headers["content-type"] == "application/octet-stream"
    assert int(answer.headers["content-length"]) == len(data)
    for offset, length in ((0, 1), (1 << 20, 10), ((1 << 20) - 5, 10), (2_559_990, 100), (7, 0)):
        assert hdfs.get(f"{place}/f", offset=offset, length=length) == data[offset:][:length]
    assert hdfs.get(f"{place}/f", offset=len(data)) == b""


def test_a_range_header_is_understood_too(hdfs: Hdfs, place: str) -> None:
    hdfs.put(f"{place}/f", b"0123456789")
    url = hdfs.doors.url(f"{place}/f?op=OPEN")

    told = hdfs.session.get(f"{url}&noredirect=true").json()["Location"]
    assert hdfs.session.get(told).content == b"0123456789"
    part = hdfs.session.get(url, headers={"Range": "bytes=2-4"})
    last = hdfs.session.get(url, headers={"Range": "bytes=-3"})
    beyond = hdfs.session.get(url, headers={"Range": "bytes=10-"})
    head = hdfs.session.head(url)

    assert (part.status_code, part.content) == (206, b"234")
    assert part.headers["content-range"] == "bytes 2-4/10"
    assert last.content == b"789"
    assert (beyond.status_code, beyond.headers["content-range"]) == (416, "bytes */10")
    assert (head.status_code, head.headers["content-length"], head.content) == (200, "10", b"")


def test_statuses_have_hadoops_shape(hdfs: Hdfs, place: str) -> None:
    before_ms = int(time.time() * 1000)
    hdfs.put(f"{place}/f", b"12345", permission="640")
    found = hdfs("GET", f"{place}/f", "GETFILESTATUS").json()["FileStatus"]
    directory = hdfs("GET", place, "GETFILESTATUS").json()["FileStatus"]

    assert sorted(found) == sorted(directory) == STATUS_KEYS
    assert (found["length"], found["type"], found["permission"]) == (5, "FILE", "640")
    assert (found["owner"], found["pathSuffix"], found["replication"]) == ("ann", "", 2)
    assert found["blockSize"] == 1 << 20
    assert before_ms - 5000 < found["modificationTime"] <= time.time() * 1000 + 5000
    assert (directory["type"], directory["length"], directory["replication"]) == ("DIRECTORY", 0, 0)
    assert directory["permission"] == "755"


def test_listings_come_whole_and_in_pages(hdfs: Hdfs, doors: GatewayCluster, place: str) -> None:
    """Beyond a page of the master a listing is made while it is sent."""
    names = [f"n{number:05}" for number in range(1203)]
    client = doors.client()
    client.make_directory(place)
    with ThreadPoolExecutor(32) as pool:  # so that the master's log is synced for many at a time
        list(pool.map(lambda name: client.make_directory(f"{place}/{name}"), names))

    whole = hdfs("GET", place, "LISTSTATUS").json()["FileStatuses"]["FileStatus"]
    assert [entry["pathSuffix"] for entry in whole] == names
    assert sorted(whole[0]) == STATUS_KEYS

    seen: list[str] = []
    while True:
        after = {"startAfter": seen[-1]} if seen else {}
        page = hdfs("GET", place, "LISTSTATUS_BATCH", **after).json()["DirectoryListing"]
        entries = page["partialListing"]["FileStatuses"]["FileStatus"]
        seen += [entry["pathSuffix"] for entry in entries]
        if not page["remainingEntries"]:
            break
    assert seen == names


def test_the_listing_of_a_file_is_itself_without_a_name(hdfs: Hdfs, place: str) -> None:
    hdfs.put(f"{place}/f", b"")

    (entry,) = hdfs("GET", f"{place}/f", "LISTSTATUS").json()["FileStatuses"]["FileStatus"]

    assert (entry["pathSuffix"], entry["type"]) == ("", "FILE")
    hdfs("PUT", f"{place}/empty", "MKDIRS")
    assert hdfs("GET", f"{place}/empty", "LISTSTATUS").json() == {
        "FileStatuses": {"FileStatus": []}
    }


def test_sums_quotas_and_checksums_are_told_as_hadoop_does(hdfs: Hdfs, place: str) -> None:
    data = b"x" * 1_500_000
    hdfs.put(f"{place}/d/f", data)

    summary = hdfs("GET", place, "GETCONTENTSUMMARY").json()["ContentSummary"]
    usage = hdfs("GET", place, "GETQUOTAUSAGE").json()["QuotaUsage"]
    checksum = hdfs("GET", f"{place}/d/f", "GETFILECHECKSUM").json()["FileChecksum"]

    assert (summary["directoryCount"], summary["fileCount"]) == (2, 1)
    assert (summary["length"], summary["spaceConsumed"]) == (1_500_000, 3_000_000)
    assert (summary["quota"], summary["spaceQuota"]) == (-1, -1)
    assert (usage["fileAndDirectoryCount"], usage["quota"]) == (3, -1)
    assert checksum == {
        "algorithm": "COMPOSITE-CRC32C", "bytes": f"{crc32c.crc32c(data):08x}", "length": 4,
    }  # fmt: skip


def test_a_directorys_limits_are_shown_and_kept(
    hdfs: Hdfs, doors: GatewayCluster, place: str
) -> None:
    hdfs("PUT", place, "MKDIRS")
    doors.client().set_quota(place, names=2, space_bytes=1000)

    summary = hdfs("GET", place, "GETCONTENTSUMMARY").json()["ContentSummary"]
    assert (summary["quota"], summary["spaceQuota"]) == (2, 1000)
    hdfs.refused("PUT", f"{place}/f", "CREATE", 403, "DSQuotaExceededException", data=b"x" * 600)
    hdfs.put(f"{place}/a", b"")
    hdfs.refused("PUT", f"{place}/b", "CREATE", 403, "NSQuotaExceededException", data=b"x")


def test_places_of_blocks_are_told_by_the_hosts_names(hdfs: Hdfs, place: str) -> None:
    hdfs.put(f"{place}/f", b"x" * ((1 << 20) + 5))

    blocks = hdfs("GET", f"{place}/f", "GETFILEBLOCKLOCATIONS").json()
    both = blocks["BlockLocations"]["BlockLocation"]
    assert [(block["offset"], block["length"]) for block in both] == [(0, 1 << 20), (1 << 20, 5)]
    assert sorted(both[0]["hosts"]) == ["h1", "h2"]
    assert sorted(both[0]) == [
        "cachedHosts", "corrupt", "hosts", "length", "names", "offset", "storageTypes",
        "topologyPaths",
    ]  # fmt: skip
    second = hdfs("GET", f"{place}/f", "GETFILEBLOCKLOCATIONS", offset=1 << 20, length=1).json()[
        "BlockLocations"
    ]["BlockLocation"]
    assert [block["offset"] for block in second] == [1 << 20]


def test_small_questions_have_their_answers(hdfs: Hdfs, place: str) -> None:
    hdfs("PUT", place, "MKDIRS", permission="1750")

    assert hdfs("GET", "/", "GETHOMEDIRECTORY").json() == {"Path": "/user/ann"}
    assert hdfs("GET", "/", "GETTRASHROOT").json() == {"Path": "/user/ann/.Trash"}
    assert hdfs("GET", "/", "GETTRASHROOTS").json() == {"Paths": []}
    assert hdfs("GET", place, "CHECKACCESS", fsaction="rw-").content == b""
    room = hdfs("GET", "/", "GETSTATUS").json()["FsStatus"]
    assert room["capacity"] >= room["remaining"] > 0 and room["used"] >= 0
    defaults = hdfs("GET", "/", "GETSERVERDEFAULTS").json()["FsServerDefaults"]
    assert (defaults["blockSize"], defaults["replication"]) == (1 << 20, 2)
    assert hdfs("GET", place, "GETACLSTATUS").json()["AclStatus"] == {
        "entries": [], "group": "ann", "owner": "ann", "permission": "750", "stickyBit": True,
    }  # fmt: skip


# --- writing


def test_without_bytes_a_client_is_sent_to_the_same_address(hdfs: Hdfs, place: str) -> None:
    """Decision 22: never another host in a Location."""
    path = f"{place}/a b&c"
    first = hdfs("PUT", path, "CREATE", 307, overwrite="true")
    told = hdfs("PUT", path, "CREATE", 200, noredirect="true").json()["Location"]
    assert first.headers["location"].startswith(f"{hdfs.doors.base()}/webhdfs/v1{place}/a%20b%26c?")
    assert "data=true" in told and "noredirect" not in told

    second = hdfs.session.put(first.headers["location"], data=b"one")
    assert second.status_code == 201
    assert second.headers["location"] == hdfs.doors.url(f"{place}/a%20b%26c")
    more = hdfs("POST", path, "APPEND", 307).headers["location"]
    assert hdfs.session.post(more, data=b" two").status_code == 200
    assert hdfs.session.post(more, data=b"").status_code == 200

    assert hdfs.get(path) == b"one two"


def test_an_empty_file_is_made_by_saying_so(hdfs: Hdfs, place: str) -> None:
    hdfs("PUT", f"{place}/f", "CREATE", 307)
    hdfs("PUT", f"{place}/f?data=true", "CREATE", 201)

    assert hdfs.get(f"{place}/f") == b""


def test_a_body_in_chunks_is_stored(hdfs: Hdfs, place: str) -> None:
    pieces = [bytes([number]) * 300_000 for number in range(8)]

    hdfs("PUT", f"{place}/f", "CREATE", 201, data=iter(pieces))

    assert hdfs.get(f"{place}/f") == b"".join(pieces)


def test_a_file_is_replaced_only_if_that_was_said(hdfs: Hdfs, place: str) -> None:
    hdfs.put(f"{place}/f", b"first")

    hdfs.refused("PUT", f"{place}/f", "CREATE", 403, "FileAlreadyExistsException", data=b"second")
    assert hdfs.get(f"{place}/f") == b"first"
    hdfs.put(f"{place}/f", b"third", createflag="create,overwrite")
    assert hdfs.get(f"{place}/f") == b"third"
    hdfs.refused(
        "PUT", place, "CREATE", 403, "FileAlreadyExistsException", data=b"x", overwrite="true"
    )


def test_what_is_said_of_a_new_file_is_kept(hdfs: Hdfs, place: str) -> None:
    hdfs.put(f"{place}/f", b"x", permission="600", replication="1", blocksize=str(9 << 20))
    found = hdfs("GET", f"{place}/f", "GETFILESTATUS").json()["FileStatus"]

    assert (found["permission"], found["replication"]) == ("600", 1)
    assert found["blockSize"] == 8 << 20
    hdfs.refused(
        "PUT", f"{place}/no/f", "CREATE", 404, "FileNotFoundException", data=b"x",
        createparent="false",
    )  # fmt: skip


def test_files_are_joined_with_or_without_moving_bytes(hdfs: Hdfs, place: str) -> None:
    full, odd = b"f" * (2 << 20), b"odd"
    for name, data in (("a", full), ("b", full), ("c", odd), ("d", full)):
        hdfs.put(f"{place}/{name}", data)

    hdfs("POST", f"{place}/a", "CONCAT", sources=f"{place}/b,{place}/c")
    assert hdfs.get(f"{place}/a") == full + full + odd
    hdfs("POST", f"{place}/a", "CONCAT", sources=f"{place}/d")  # the odd one is in the middle now
    assert hdfs.get(f"{place}/a") == full + full + odd + full
    left = hdfs("GET", place, "LISTSTATUS").json()["FileStatuses"]["FileStatus"]
    assert [entry["pathSuffix"] for entry in left] == ["a"]
    hdfs.refused("POST", f"{place}/a", "CONCAT", 400, "IllegalArgumentException", sources="")
    hdfs.refused(
        "POST", f"{place}/a", "CONCAT", 400, "IllegalArgumentException", sources=f"{place}/a"
    )
    hdfs.refused("POST", f"{place}/a", "CONCAT", 404, "FileNotFoundException", sources="/none")


# --- names


def test_directories_are_made_with_those_above(hdfs: Hdfs, place: str) -> None:
    assert hdfs("PUT", f"{place}/a/b", "MKDIRS", permission="700").json() == {"boolean": True}
    assert hdfs("PUT", f"{place}/a/b", "MKDIRS").json() == {"boolean": True}
    hdfs.put(f"{place}/f", b"")

    hdfs.refused("PUT", f"{place}/f", "MKDIRS", 403, "FileAlreadyExistsException")
    hdfs.refused("PUT", f"{place}/f/g", "MKDIRS", 403, "ParentNotDirectoryException")
    hdfs.refused("PUT", f"{place}/f/g", "CREATE", 403, "ParentNotDirectoryException", data=b"x")


def test_rename_follows_hdfs(hdfs: Hdfs, place: str) -> None:
    """Into a directory that is there; false for what cannot be."""

    def rename(source: str, target: str) -> bool:
        answer = hdfs("PUT", f"{place}/{source}", "RENAME", destination=f"{place}/{target}")
        return bool(answer.json()["boolean"])

    hdfs.put(f"{place}/f", b"f")
    hdfs.put(f"{place}/g", b"g")
    hdfs("PUT", f"{place}/d", "MKDIRS")

    assert rename("f", "d")
    assert hdfs.get(f"{place}/d/f") == b"f"
    assert rename("g", "d/h")
    assert not rename("none", "x")
    assert not rename("d/f", "d/h")
    assert not rename("d", "d/e")
    assert not rename("d/f", "none/x")
    assert rename("d/f", "d/f")
    hdfs.refused(
        "PUT", f"{place}/d", "RENAME", 400, "IllegalArgumentException", destination="relative"
    )


def test_rename_with_options_is_exact(hdfs: Hdfs, place: str) -> None:
    hdfs.put(f"{place}/f", b"f")
    hdfs.put(f"{place}/g", b"g")
    to_g = {"destination": f"{place}/g"}

    hdfs.refused(
        "PUT", f"{place}/f", "RENAME", 403, "FileAlreadyExistsException", renameoptions="NONE",
        **to_g,
    )  # fmt: skip
    assert hdfs("PUT", f"{place}/f", "RENAME", renameoptions="OVERWRITE", **to_g).content == b""
    assert hdfs.get(f"{place}/g") == b"f"
    hdfs.refused(
        "PUT", f"{place}/none", "RENAME", 404, "FileNotFoundException", renameoptions="NONE", **to_g
    )


def test_what_is_deleted_is_in_the_trash(hdfs: Hdfs, doors: GatewayCluster, place: str) -> None:
    hdfs.put(f"{place}/d/f", b"x")

    hdfs.refused("DELETE", f"{place}/d", "DELETE", 403, "PathIsNotEmptyDirectoryException")
    assert hdfs("DELETE", f"{place}/d", "DELETE", recursive="true").json() == {"boolean": True}
    assert hdfs("DELETE", f"{place}/d", "DELETE").json() == {"boolean": False}
    assert hdfs("DELETE", "/", "DELETE", recursive="true").json() == {"boolean": False}
    hdfs.refused("DELETE", "/", "DELETE", 403, "PathIsNotEmptyDirectoryException")
    hdfs.refused("GET", f"{place}/d/f", "OPEN", 404, "FileNotFoundException")

    doors.client().undelete(f"{place}/d")
    assert hdfs.get(f"{place}/d/f") == b"x"


def test_what_is_told_of_a_file_can_be_changed(hdfs: Hdfs, place: str) -> None:
    hdfs.put(f"{place}/f", b"x")

    hdfs("PUT", f"{place}/f", "SETPERMISSION", permission="711")
    hdfs("PUT", f"{place}/f", "SETOWNER", owner="bob", group="team")
    hdfs("PUT", f"{place}/f", "SETTIMES", modificationtime=1_000_000, accesstime=-1)
    assert hdfs("PUT", f"{place}/f", "SETREPLICATION", replication=1).json() == {"boolean": True}
    assert hdfs("PUT", place, "SETREPLICATION", replication=1).json() == {"boolean": False}

    found = hdfs("GET", f"{place}/f", "GETFILESTATUS").json()["FileStatus"]
    assert (found["permission"], found["owner"], found["group"]) == ("711", "bob", "team")
    assert (found["modificationTime"], found["replication"]) == (1_000_000, 1)
    hdfs.refused("PUT", f"{place}/f", "SETOWNER", 400, "IllegalArgumentException")
    hdfs.refused("PUT", f"{place}/none", "SETTIMES", 404, "FileNotFoundException")


def test_attributes_are_set_read_and_removed(hdfs: Hdfs, place: str) -> None:
    path = f"{place}/f"
    hdfs.put(path, b"x")
    name = {"xattr.name": "user.colour"}
    value = base64.b64encode(b"\x00red").decode()

    hdfs("PUT", path, "SETXATTR", flag="CREATE", **name, **{"xattr.value": f"0s{value}"})
    hdfs.refused("PUT", path, "SETXATTR", 403, "AccessControlException", flag="CREATE", **name)
    shown = hdfs("GET", path, "GETXATTRS", encoding="hex", **name).json()
    assert shown == {"XAttrs": [{"name": "user.colour", "value": "0x00726564"}]}
    hdfs("PUT", path, "SETXATTR", flag="REPLACE", **name, **{"xattr.value": '"blue"'})
    assert hdfs("GET", path, "GETXATTRS").json()["XAttrs"][0]["value"] == '"blue"'
    names = hdfs("GET", path, "LISTXATTRS").json()["XAttrNames"]
    assert json.loads(names) == ["user.colour"]
    hdfs("PUT", path, "REMOVEXATTR", **name)
    assert hdfs("GET", path, "GETXATTRS").json() == {"XAttrs": []}
    hdfs.refused(
        "PUT", path, "SETXATTR", 400, "IllegalArgumentException", **{"xattr.name": "trusted.x"}
    )


# --- refusals


@pytest.mark.parametrize("op", sorted(UNSUPPORTED))
def test_what_is_not_here_is_refused_by_name(hdfs: Hdfs, op: str) -> None:
    said = hdfs.refused("PUT", "/", op, 400, "UnsupportedOperationException")

    assert said.startswith(f"{op}: ")


@pytest.mark.parametrize(("method", "op"), [("GET", "NONE"), ("GET", ""), ("GET", "DELETE"),
                                            ("POST", "OPEN"), ("PUT", "APPEND")])  # fmt: skip
def test_an_unknown_operation_is_400(hdfs: Hdfs, method: str, op: str) -> None:
    hdfs.refused(method, "/", op, 400, "IllegalArgumentException")


@pytest.mark.parametrize(
    "more",
    [{"offset": "-1"}, {"offset": "x"}, {"length": "-5"}, {"offset": ["1", "2"]}],
)
def test_a_bad_parameter_is_400(hdfs: Hdfs, more: dict[str, Any]) -> None:
    hdfs.refused("GET", "/", "OPEN", 400, "IllegalArgumentException", **more)


def test_reading_what_is_no_file_is_404(hdfs: Hdfs, place: str) -> None:
    hdfs("PUT", place, "MKDIRS")

    hdfs.refused("GET", place, "OPEN", 404, "FileNotFoundException")
    hdfs.refused("GET", f"{place}/none", "OPEN", 404, "FileNotFoundException")
    hdfs.refused("GET", f"{place}/none", "LISTSTATUS", 404, "FileNotFoundException")
    hdfs.refused("GET", place, "GETFILECHECKSUM", 404, "FileNotFoundException")
    hdfs.put(f"{place}/f", b"123")
    hdfs.refused("GET", f"{place}/f", "OPEN", 403, "EOFException", offset=4)
    hdfs.refused("GET", f"{place}/f/g", "GETFILESTATUS", 404, "FileNotFoundException")


def test_a_file_that_somebody_writes_is_busy(hdfs: Hdfs, doors: GatewayCluster, place: str) -> None:
    from mrstream.dfs.client.writer import append

    hdfs.put(f"{place}/f", b"x")
    with append(doors.client(), f"{place}/f"):
        hdfs.refused("POST", f"{place}/f", "APPEND", 403, "AlreadyBeingCreatedException", data=b"y")


# --- tokens


def test_a_token_stands_for_its_key(hdfs: Hdfs, doors: GatewayCluster, place: str) -> None:
    hdfs.put(f"{place}/f", b"x")
    asked = {"op": "GETDELEGATIONTOKEN", "renewer": "ann"}
    # A key of its own: after many wrong guesses at one key, its next is answered by 429. So is a
    # new one after guesses at keys that nobody has, until the gateway has heard of it.
    with doors.session(doors.key("token", "--user", "ann")) as own:
        token: dict[str, str] = wait_for(
            lambda: own.get(doors.url("/"), params=asked).json().get("Token"), 30.0, "the token"
        )
        text = token["urlString"]
    with doors.session(None, OWN_ADDRESS) as bare:
        url = doors.url(f"{place}/f")
        assert bare.get(url, params={"op": "OPEN", "delegation": text}).content == b"x"
        assert bare.get(url, params={"op": "OPEN", "delegation": text[:-8]}).status_code == 401
        again = bare.get(url, params={"op": "GETDELEGATIONTOKEN", "delegation": text})
        assert again.status_code == 403
    end_ms = hdfs("PUT", "/", "RENEWDELEGATIONTOKEN", token=text).json()["long"]
    assert 86_000_000 < end_ms - time.time() * 1000 < 86_401_000

    hdfs("PUT", "/", "CANCELDELEGATIONTOKEN", token=text)
    with doors.session(None, OWN_ADDRESS) as bare:
        deadline_s = time.monotonic() + 10
        params = {"op": "OPEN", "delegation": text}
        while bare.get(url, params=params).status_code != 401:
            assert time.monotonic() < deadline_s
    hdfs.refused("PUT", "/", "RENEWDELEGATIONTOKEN", 403, "AccessControlException", token="x")


def test_nothing_that_is_asked_is_a_bug(hdfs: Hdfs, place: str) -> None:
    """Operations, methods and parameters by chance: an answer in Hadoop's words, never a 500."""
    chance = random.Random(7)
    hdfs.put(f"{place}/f", b"12345")
    names = [
        "offset", "length", "permission", "overwrite", "destination", "recursive", "replication",
        "blocksize", "owner", "group", "modificationtime", "xattr.name", "xattr.value", "encoding",
        "flag", "sources", "startafter", "fsaction", "token", "noredirect", "data", "createparent",
        "renameoptions", "doas",
    ]  # fmt: skip
    values = [
        "", "0", "-1", "1", "true", "null", "x", "/", f"{place}/f", f"{place}/g", "/a/../b",
        "9" * 18, "777", "user.a", "HEX", "CREATE", "rwx", "\u2603", "%", "," * 50, "a" * 2000,
    ]  # fmt: skip
    operations = [*OPERATIONS, *UNSUPPORTED, "RENEWDELEGATIONTOKEN", "CANCELDELEGATIONTOKEN", "X"]
    paths = [place, f"{place}/f", f"{place}/none", f"{place}/f/g", f"{place}/" + "n" * 300]
    for _ in range(400):
        operation = chance.choice(operations)
        method = OPERATIONS.get(operation, (chance.choice(["GET", "PUT", "POST", "DELETE"]),))[0]
        params = {name: chance.choice(values) for name in chance.sample(names, 4)}
        answer = hdfs.session.request(
            method,
            hdfs.doors.url(chance.choice(paths)),
            params={"op": operation, **params},
            data=chance.choice([b"", b"body"]) if method in ("PUT", "POST") else None,
            allow_redirects=False,
        )
        assert answer.status_code in {200, 201, 307, 400, 403, 404}, answer.text
        if answer.status_code >= 400:
            assert answer.json()["RemoteException"]["message"]


def test_names_that_are_hard_to_write_are_kept(hdfs: Hdfs, place: str, key: Secret) -> None:
    names = ["a b", "a+b", "100%", "ünïcödé", "q?x=1", "h#1", "semi;colon", "new\nline", "%2e%2e"]
    for name in names:
        hdfs("PUT", f"{place}/{requests.utils.quote(name)}", "CREATE", 201, data=name.encode())

    found = hdfs("GET", place, "LISTSTATUS").json()["FileStatuses"]["FileStatus"]

    assert sorted(entry["pathSuffix"] for entry in found) == sorted(names)
    for name in names:
        assert hdfs.get(f"{place}/{requests.utils.quote(name)}") == name.encode()
