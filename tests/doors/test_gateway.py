"""The gateway from outside: who comes in, how far, what is written down, what a fault leaves."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import requests
import urllib3

from mrstream.cluster.config.config import GATEWAY
from tests.cluster.local import CHUNKSERVER, wait_for
from tests.doors.gateway_cluster import GatewayCluster, Secret

UPLOAD_BYTES = 12_000_000


def raw(doors: GatewayCluster, host: str = "h1") -> ssl.SSLSocket:
    """A connection of one's own, past TLS."""
    address = doors.config.host(host).address
    context = ssl.create_default_context(cafile=doors.authority)
    plain = socket.create_connection((address, doors.port()), 10)
    return context.wrap_socket(plain, server_hostname=address)


def put_head(doors: GatewayCluster, key: Secret, path: str, length: int) -> bytes:
    """The head of an upload."""
    words = requests.auth._basic_auth_str(*key.pair)
    return (
        f"PUT /webhdfs/v1{path}?op=CREATE&overwrite=true HTTP/1.1\r\n"
        f"Host: 127.0.0.1:{doors.port()}\r\nAuthorization: {words}\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


def everything(doors: GatewayCluster, path: str) -> list[str]:
    """All paths at and below one, as the master lists them, hidden ones too."""
    return [status.path for status in doors.client().find(path)]


def memory_bytes(pid: int, name: str) -> int:
    """Of a process, as the kernel counts it: now (VmRSS), or at its most (VmHWM)."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.M)
    assert found is not None
    return int(found[1]) << 10


# --- who comes in


def test_nobody_comes_in_without_a_key(doors: GatewayCluster) -> None:
    with doors.session(None) as nobody:
        for query in ("op=LISTSTATUS", "op=NONE", "op=LISTSTATUS&user.name=root", ""):
            answer = nobody.get(doors.url(f"/?{query}"))
            assert answer.status_code == 401
            assert answer.json()["RemoteException"]["exception"] == "SecurityException"
        assert nobody.get(f"{doors.base()}/healthz").text == "ok\n"
        assert nobody.get(f"{doors.base()}/").status_code == 401  # the pages


def test_a_cookie_is_no_proof(doors: GatewayCluster, session: requests.Session) -> None:
    """A page in a browser cannot act through a door."""
    with doors.session(None) as browser:
        browser.headers["Cookie"] = "__Host-mrstream=anything"
        assert browser.get(doors.url("/?op=LISTSTATUS")).status_code == 401
    answer = session.get(doors.url("/?op=LISTSTATUS"), headers={"Origin": "https://evil.example"})
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]


def test_a_key_goes_no_further_than_its_paths(doors: GatewayCluster, key: Secret) -> None:
    """G3: whole components, both ends of a rename, every spelling of a way out."""
    narrow = doors.key("narrow", "--path", "/scope/in")
    with doors.session(key) as wide:
        for path in ("/scope/in/f", "/scope/other/f", "/scope/inner/f"):
            url = doors.url(f"{path}?op=CREATE&overwrite=true")
            assert wide.put(url, data=b"x").status_code == 201
        wide.delete(doors.url("/scope/other/f?op=DELETE"))
    with doors.session(narrow) as session:
        assert session.get(doors.url("/scope/in/f?op=OPEN")).content == b"x"
        assert session.get(doors.url("/scope//in/./f?op=OPEN")).content == b"x"
        ways_out = [
            "/scope/other/f", "/scope/inner/f", "/scope", "/", "/scope/in/../other/f",
            "/scope/in/%2e%2e/other/f", "/scope/in%2f..%2fother/f", "/.trash", "/.mrstream",
            "/scope/in/..%2fother",
        ]  # fmt: skip
        for way in ways_out:
            prepared = requests.Request("GET", "https://x", auth=narrow.pair).prepare()
            prepared.url = doors.url(f"{way}?op=LISTSTATUS")
            assert session.send(prepared).status_code in {400, 403}, way
        for query in (
            "op=RENAME&destination=/scope/other/g",
            "op=RENAME&destination=/scope/in/../other/g",
        ):
            answer = session.put(doors.url(f"/scope/in/f?{query}"))
            assert answer.status_code in {400, 403}
        joined = session.post(doors.url("/scope/in/f?op=CONCAT&sources=/scope/inner/f"))
        assert joined.status_code == 403
        assert session.put(doors.url("/scope/x?op=CREATE"), data=b"x").status_code == 403
    assert everything(doors, "/scope/other") == ["/scope/other"]


def test_a_key_that_may_only_read_changes_nothing(doors: GatewayCluster, key: Secret) -> None:
    reader = doors.key("reader", "--read-only")
    with doors.session(key) as wide:
        wide.put(doors.url("/readable/f?op=CREATE&overwrite=true"), data=b"x")
    with doors.session(reader) as session:
        assert session.get(doors.url("/readable/f?op=OPEN")).content == b"x"
        changes = [
            ("PUT", "CREATE&overwrite=true&data=true"), ("PUT", "MKDIRS"), ("DELETE", "DELETE"),
            ("PUT", "RENAME&destination=/readable/g"), ("POST", "APPEND&data=true"),
            ("POST", "CONCAT&sources=/readable/g"), ("PUT", "SETPERMISSION&permission=777"),
            ("PUT", "SETOWNER&owner=x"), ("PUT", "SETTIMES&modificationtime=1"),
            ("PUT", "SETREPLICATION&replication=1"), ("GET", "CHECKACCESS&fsaction=-w-"),
            ("PUT", "SETXATTR&xattr.name=user.a&xattr.value=1"),
            ("PUT", "REMOVEXATTR&xattr.name=user.a"),
        ]  # fmt: skip
        for method, query in changes:
            answer = session.request(method, doors.url(f"/readable/f?op={query}"))
            assert answer.status_code == 403, query
            assert answer.json()["RemoteException"]["exception"] == "AccessControlException"
        assert session.get(doors.url("/readable/f?op=OPEN")).content == b"x"


def test_nobody_acts_for_another(doors: GatewayCluster, session: requests.Session) -> None:
    assert session.get(doors.url("/?op=GETHOMEDIRECTORY&doas=root")).status_code == 403
    home = session.get(doors.url("/?op=GETHOMEDIRECTORY&user.name=root")).json()
    assert home == {"Path": "/user/ann"}


def test_a_revoked_key_is_void_on_every_gateway(doors: GatewayCluster) -> None:
    """Within two seconds; the time limit here leaves room for a busy machine."""
    short = doors.key("short")
    with doors.session(short) as session:
        urls = [doors.url("/?op=GETHOMEDIRECTORY", host) for host in ("h1", "h2")]
        assert [session.get(url).status_code for url in urls] == [200, 200]

        done = doors.mrstream("key", "revoke", "short")

        assert done.returncode == 0
        for url in urls:
            wait_for(lambda url=url: session.get(url).status_code == 401, 60, "the revocation")  # type: ignore[misc]
    assert doors.mrstream("key", "revoke", "short").returncode == 1


def test_keys_are_listed_without_secrets_and_shown_again(doors: GatewayCluster) -> None:
    made = doors.key("shown", "--path", "/a/b", "--path", "/c", "--read-only", "--expires", "90d")

    listed = doors.mrstream("key", "list").stdout.decode()
    line = next(line for line in listed.splitlines() if line.startswith("shown "))
    assert made.id in line and line.endswith("/a/b /c") and " r " in line
    assert made.secret not in listed
    again = doors.mrstream("key", "show", "shown").stdout.decode()
    assert made.secret in again
    for words in (
        ["add", "Bad_Name"], ["add", "shown"], ["add", "x", "--path", "a"],
        ["add", "x", "--expires", "soon"], ["add", "x", "--user", "../x"], ["show", "none"],
    ):  # fmt: skip
        refused = doors.mrstream("key", *words)
        assert refused.returncode == 1
        assert refused.stderr and b"Traceback" not in refused.stderr


# --- what is written down


def test_every_request_is_in_the_audit_log_and_no_secret(
    doors: GatewayCluster, session: requests.Session, key: Secret, place: str
) -> None:
    answer = session.put(doors.url(f"{place}/f?op=CREATE&word=private"), data=b"12345")
    log = doors.host_directory("h1") / "logs" / "web.gateway.audit.log"
    id = answer.headers["x-request-id"]

    text = wait_for(lambda: id in log.read_text() and log.read_text(), 60, "the audit log")
    line = next(json.loads(line) for line in text.splitlines() if id in line)

    assert (line["operation"], line["key"], line["user"]) == ("CREATE", "all", "ann")
    assert (line["paths"], line["status"], line["in"]) == ([f"{place}/f"], 201, 5)
    assert (line["face"], line["from"]) == ("webhdfs", "127.0.0.1")
    everything_logged = "".join(
        path.read_text(errors="replace") for path in log.parent.glob("web.gateway*")
    )
    assert key.secret not in everything_logged and "private" not in everything_logged
    assert doors.secret.door is not None
    assert doors.secret.door.secret.hex() not in everything_logged


def test_status_says_where_the_gateway_is(doors: GatewayCluster) -> None:
    health = doors.health(GATEWAY, "h1")

    assert health.ready
    assert health.detail.startswith(f"https://h1:{doors.port()}, ")
    assert "connections, " in health.detail and health.detail.endswith((" keys", " key"))
    listed = doors.mrstream("cluster", "status").stdout.decode()
    assert listed.count("web.gateway") == 2
    authority = doors.mrstream("cluster", "ca").stdout.decode()
    assert authority == Path(doors.authority).read_text()


# --- streams and faults


def test_uploads_of_one_path_do_not_disturb_each_other(
    doors: GatewayCluster, key: Secret, place: str
) -> None:
    """§0.1: the last to close has the path; each is whole."""
    bodies = [bytes([number]) * 3_000_000 for number in range(6)]
    url = f"{place}/f?op=CREATE&overwrite=true"

    def put(number: int) -> int:
        with doors.session(key) as session:
            host = ("h1", "h2")[number % 2]
            return session.put(doors.url(url, host), data=bodies[number]).status_code

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(put, range(6))) == [201] * 6
    with doors.session(key) as session:
        assert session.get(doors.url(f"{place}/f?op=OPEN", "h2")).content in bodies
    assert everything(doors, place) == [place, f"{place}/f"]


def test_a_client_that_leaves_in_the_middle_leaves_nothing(
    doors: GatewayCluster, key: Secret, session: requests.Session, place: str
) -> None:
    session.put(doors.url(f"{place}/f?op=CREATE"), data=b"before")
    with raw(doors) as connection:
        connection.sendall(put_head(doors, key, f"{place}/f", 10_000_000) + bytes(3_000_000))

    wait_for(lambda: not doors.client().report().files_open, 20, "the writer to be given up")

    assert session.get(doors.url(f"{place}/f?op=OPEN")).content == b"before"
    assert everything(doors, place) == [place, f"{place}/f"]


def test_a_slow_client_gets_right_bytes(
    doors: GatewayCluster, key: Secret, session: requests.Session, place: str
) -> None:
    """§3: the reader's memory is filled again while a piece is still being sent."""
    data = b"".join(bytes([number]) * (1 << 20) for number in range(40))
    session.put(doors.url(f"{place}/f?op=CREATE"), data=data)
    words = requests.auth._basic_auth_str(*key.pair)
    with raw(doors) as connection:
        connection.sendall(
            f"GET /webhdfs/v1{place}/f?op=OPEN HTTP/1.1\r\nHost: 127.0.0.1:{doors.port()}\r\n"
            f"Authorization: {words}\r\nConnection: close\r\n\r\n".encode()
        )
        # While another reads all of it, everything between the gateway and us is full.
        assert session.get(doors.url(f"{place}/f?op=OPEN")).content == data
        got = bytearray()
        while piece := connection.recv(1 << 16):
            got += piece

    assert bytes(got).partition(b"\r\n\r\n")[2] == data


def test_a_reader_whose_file_is_replaced_never_gets_bytes_of_both(
    doors: GatewayCluster, session: requests.Session, place: str
) -> None:
    """G2: the old file to its end, or a connection that was cut."""
    url = doors.url(f"{place}/f")
    size = 40 << 20
    session.put(f"{url}?op=CREATE", data=b"o" * size)
    answer = session.get(f"{url}?op=OPEN", stream=True)
    got = answer.raw.read(1 << 20)
    with doors.session(Secret(*session.auth)) as other:  # type: ignore[misc]
        assert other.put(f"{url}?op=CREATE&overwrite=true", data=b"n" * size).status_code == 201
    doors.client().expunge(now=True)
    with contextlib.suppress(urllib3.exceptions.HTTPError):
        got += answer.raw.read()

    assert set(got) == {ord("o")}
    assert session.get(f"{url}?op=OPEN").content == b"n" * size


# --- a cluster of one's own, for what ends daemons


@pytest.fixture(scope="module")
def fragile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[GatewayCluster, Secret]]:
    cluster = GatewayCluster(
        tmp_path_factory.mktemp("fragile"),
        "{hosts: [h1, h2], tls: false, memory: 96MiB, trusted: [127.0.0.0/8]}",
    )
    with cluster:
        yield cluster, cluster.key("all")


@pytest.mark.parametrize("sent", [0, 5_000_001, 9_999_999])
def test_a_gateway_that_dies_in_the_middle_of_a_put_leaves_nothing_visible(
    fragile: tuple[GatewayCluster, Secret], sent: int
) -> None:
    """G1: no answer, no file, up to the last byte; another gateway serves what was there."""
    cluster, key = fragile
    plain = f"http://127.0.0.2:{cluster.port()}/webhdfs/v1"
    with cluster.session(key) as session:
        put = session.put(f"{plain}/d/f?op=CREATE&overwrite=true", data=b"before")
        assert put.status_code == 201
        connection = socket.create_connection(("127.0.0.1", cluster.port()), 10)
        connection.sendall(put_head(cluster, key, "/d/f", 10_000_000) + bytes(sent))
        wait_for(lambda: cluster.client().report().files_open, 20, "the upload to be under way")

        cluster.kill(GATEWAY, "h1")
        connection.close()

        assert session.get(f"{plain}/d/f?op=OPEN").content == b"before"
        entries = session.get(f"{plain}/d?op=LISTSTATUS").json()["FileStatuses"]["FileStatus"]
        assert [entry["pathSuffix"] for entry in entries] == ["f"]
    cluster.start(GATEWAY, "h1")


def test_more_uploads_than_there_is_memory_for_wait_their_turn(
    fragile: tuple[GatewayCluster, Secret],
) -> None:
    """§1.2: four writers fit into 96 MiB; the others are served after them, none is refused, and
    all of them together cost the gateway its budget and little more."""
    cluster, key = fragile
    plain = f"http://127.0.0.1:{cluster.port()}/webhdfs/v1/crowd"
    pid = cluster.pid(GATEWAY, "h1")
    before = memory_bytes(pid, "VmRSS")

    def put(number: int) -> int:
        with cluster.session(key) as session:
            data = bytes([number]) * UPLOAD_BYTES
            return session.put(f"{plain}/{number}?op=CREATE", data=data).status_code

    with ThreadPoolExecutor(24) as pool:
        assert list(pool.map(put, range(24))) == [201] * 24
    lengths = [status.length_bytes for status in cluster.client().list("/crowd")]
    assert lengths == [UPLOAD_BYTES] * 24
    more = memory_bytes(pid, "VmHWM") - before
    assert more < (96 + 150) << 20 < 24 * UPLOAD_BYTES, f"{more >> 20} MiB more"


def test_what_one_gateway_stored_the_other_serves_at_once(
    fragile: tuple[GatewayCluster, Secret],
) -> None:
    """Gateways keep nothing: read after write and list after write, over all of them."""
    cluster, key = fragile
    one, other = (f"http://127.0.0.{host}:{cluster.port()}/webhdfs/v1/both" for host in (1, 2))
    with cluster.session(key) as session:
        for number in range(20):
            put, get = (one, other) if number % 2 else (other, one)
            url = f"{put}/f?op=CREATE&overwrite=true"
            assert session.put(url, data=b"%d" % number).status_code == 201
            assert session.get(f"{get}/f?op=OPEN").content == b"%d" % number
            session.put(f"{put}/n{number:02}?op=MKDIRS")
            listed = session.get(f"{get}?op=LISTSTATUS").json()["FileStatuses"]["FileStatus"]
            assert listed[-1]["pathSuffix"] == f"n{number:02}"


def test_a_trusted_network_may_look_by_name_and_change_nothing(
    fragile: tuple[GatewayCluster, Secret],
) -> None:
    cluster, _ = fragile
    plain = f"http://127.0.0.1:{cluster.port()}/webhdfs/v1"
    with cluster.session(None) as session:
        home = session.get(f"{plain}/?op=GETHOMEDIRECTORY&user.name=bob")
        assert home.json() == {"Path": "/user/bob"}
        assert session.put(f"{plain}/x?op=MKDIRS&user.name=bob").status_code == 403
        token = session.get(f"{plain}/?op=GETDELEGATIONTOKEN&user.name=bob")
        assert token.status_code == 403


def test_a_chunkserver_that_dies_in_the_middle_of_a_get_is_not_noticed(
    fragile: tuple[GatewayCluster, Secret],
) -> None:
    cluster, key = fragile
    plain = f"http://127.0.0.1:{cluster.port()}/webhdfs/v1/big"
    data = os.urandom(1 << 20) * 24
    with cluster.session(key) as session:
        assert session.put(f"{plain}?op=CREATE", data=data).status_code == 201
        answer = session.get(f"{plain}?op=OPEN", stream=True)
        got = answer.raw.read(1 << 20)

        cluster.kill(CHUNKSERVER, "h1")
        got += answer.raw.read()

        assert got == data
    cluster.start(CHUNKSERVER, "h1")


def test_a_stop_lets_a_request_end_and_takes_no_more(
    fragile: tuple[GatewayCluster, Secret],
) -> None:
    cluster, key = fragile
    with socket.create_connection(("127.0.0.2", cluster.port()), 10) as connection:
        head = put_head(cluster, key, "/late", 4).replace(b"127.0.0.1", b"127.0.0.2")
        connection.sendall(head + b"12")
        wait_for(lambda: cluster.client().report().files_open, 20, "the upload to be under way")

        cluster.signal(GATEWAY, "h2", signal.SIGTERM)
        wait_for(lambda: not _listens("127.0.0.2", cluster.port()), 60, "the listener to close")
        connection.sendall(b"34")

        assert b" 201 " in connection.recv(1000)
    assert cluster.wait_exit(GATEWAY, "h2") == 0
    assert [status.length_bytes for status in cluster.client().list("/late")] == [4]
    cluster.start(GATEWAY, "h2")


def _listens(address: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((address, port)) == 0


def test_without_its_master_a_gateway_is_not_ready_and_comes_back(
    fragile: tuple[GatewayCluster, Secret],
) -> None:
    """`/healthz` takes it out of a balancer's list; keys that were known are good for 30 s."""
    cluster, key = fragile
    plain = f"http://127.0.0.1:{cluster.port()}"
    cluster.kill("dfs.master", "h1")
    with cluster.session(key) as session:
        wait_for(lambda: session.get(f"{plain}/healthz").status_code == 503, 30, "503")
        assert session.get(f"{plain}/healthz").text == "not ready\n"

        cluster.start("dfs.master", "h1")

        wait_for(lambda: session.get(f"{plain}/healthz").status_code == 200, 30, "200")
        assert session.get(f"{plain}/webhdfs/v1/?op=LISTSTATUS").status_code == 200


def test_other_protocols_at_the_door_do_no_harm(doors: GatewayCluster) -> None:
    for message in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01" + bytes(500), b"SSH-2.0-x\r\n"):
        with socket.create_connection(("127.0.0.1", doors.port()), 10) as connection:
            connection.sendall(message)
            assert b"HTTP/1.1 200" not in connection.recv(1000)
    done = subprocess.run(
        ["curl", "-q", "-sS", "--noproxy", "*", "--cacert", doors.authority,
         f"{doors.base()}/healthz"],
        capture_output=True, check=True,
    )  # fmt: skip
    assert done.stdout == b"ok\n"
