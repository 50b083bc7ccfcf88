"""Proofs of identity at a real door, and what a key reaches (doors §2)."""

from __future__ import annotations

import base64
import ssl
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mrstream.cluster.config.doors import with_door_keys
from mrstream.cluster.config.reader import read_config
from mrstream.cluster.config.state import Secret
from mrstream.web.certificates import Certificates
from mrstream.web.http.access import GUESSES_MAX, Access, Guesses, Key, Keys, Principal
from mrstream.web.http.head import Refused
from mrstream.web.http.reply import Reply, text_reply
from mrstream.web.http.request import Request
from mrstream.web.http.tokens import key_secret, new_key_id
from tests.unit.web.raw_http import Served

SECRET = b"d" * 32
ETL = Key("MRETL", "etl", "ann", ("/data",), can_write=True)
LATE = Key("MRLATE", "late", "ann", ("/",), can_write=True, expires_at_s=1000.0)


class Clock:
    """Both clocks of a gateway, set by hand."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.wall_s = 500.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keys() -> Keys:
    made = Keys()
    made.update(1, [ETL, LATE], [], whole=True, now_s=0.0)
    return made


def access_of(clock: Clock, keys: Keys, **options: object) -> Access:
    return Access(
        SECRET, keys, now_s=lambda: clock.now_s, wall_s=lambda: clock.wall_s, **options  # type: ignore[arg-type]
    )  # fmt: skip


def serving(access: Access, **options: object) -> Served:
    async def who(request: Request) -> Reply:
        found = await access.principal(
            request,
            token=request.query.get("delegation"),
            user_name=request.query.get("user.name"),
        )
        return text_reply(f"{found.user} {found.key} {found.can_write}")

    return Served(who, **options)  # type: ignore[arg-type]


@pytest.fixture
def served(clock: Clock, keys: Keys) -> Iterator[Served]:
    access = access_of(clock, keys)
    access.read_token = lambda text: ("MRETL", "bob") if text == "good" else None
    with serving(access) as running:
        yield running


def basic(id: str, secret: str) -> str:
    return "Authorization: Basic " + base64.b64encode(f"{id}:{secret}".encode()).decode()


RIGHT = basic("MRETL", key_secret(SECRET, "MRETL"))


def test_a_key_with_its_secret_is_somebody(served: Served) -> None:
    assert served.get("/", RIGHT).body == b"ann etl True"
    bearer = f"Authorization: Bearer MRETL:{key_secret(SECRET, 'MRETL')}"
    assert served.get("/", bearer).body == b"ann etl True"


def test_nobody_comes_in_without_a_proof(served: Served) -> None:
    answer = served.get("/")

    assert answer.status == 401
    assert answer.headers["www-authenticate"].startswith("Basic ")


@pytest.mark.parametrize(
    "header",
    [
        basic("MRETL", "wrong"),
        basic("MRNONE", key_secret(SECRET, "MRNONE")),
        basic("", ""),
        "Authorization: Basic !!!",
        "Authorization: Basic bm9jb2xvbg==",
        "Authorization: Basic /////w==",
        "Authorization: Bearer",
        "Authorization: Bearer bad",
        "Authorization: Negotiate abc",
        "Authorization: AWS4-HMAC-SHA256 Credential=x",
    ],
)
def test_a_wrong_proof_is_refused_and_says_nothing_about_why(served: Served, header: str) -> None:
    answer = served.get("/", header)

    assert answer.status == 401
    assert answer.body in (
        b"the key or token is not good here\n",
        b"a key is needed: `mrstream key add` makes one\n",
    )


def test_two_proofs_are_refused(served: Served) -> None:
    assert served.get("/", RIGHT, RIGHT).status == 400


def test_a_token_stands_for_its_key_while_that_is_good(
    served: Served, keys: Keys, clock: Clock
) -> None:
    assert served.get("/?delegation=good").body == b"bob etl True"
    assert served.get("/", "Authorization: Bearer good").body == b"bob etl True"
    assert served.get("/?delegation=bad").status == 401

    keys.update(2, [], ["MRETL"], whole=False, now_s=0.0)

    assert served.get("/?delegation=good").status == 401
    assert served.get("/", RIGHT).status == 401


def test_a_key_ends_by_the_wall_clock(served: Served, clock: Clock) -> None:
    late = basic("MRLATE", key_secret(SECRET, "MRLATE"))
    clock.wall_s = 999.0
    assert served.get("/", late).status == 200

    clock.wall_s = 1000.0

    assert served.get("/", late).status == 401


def test_a_key_that_was_made_a_moment_ago_is_looked_for(clock: Clock, keys: Keys) -> None:
    access = access_of(clock, keys)
    new = Key(new_key_id(), "new", "eve", ("/",), can_write=True)
    looks: list[int] = []

    async def look_again() -> bool:
        looks.append(1)
        keys.update(2, [new], [], whole=False, now_s=clock.now_s)
        return True

    access.look_again = look_again
    with serving(access) as running:
        right = basic(new.id, key_secret(SECRET, new.id))
        assert running.get("/", basic("MRNONE", "x")).status == 401
        assert looks == []
        assert running.get("/", right).body == b"eve new True"
        assert running.get("/", right).status == 200
        assert looks == [1]


def test_a_key_that_cannot_be_looked_for_is_not_called_wrong(clock: Clock, keys: Keys) -> None:
    """Whoever has a new key while the master is away may try again, and has not guessed."""
    access = access_of(clock, keys)

    async def nobody_answers() -> bool:
        return False

    access.look_again = nobody_answers
    with serving(access) as running:
        for _ in range(GUESSES_MAX + 1):
            assert running.get("/", basic(new_key_id(), "x")).status == 503
        assert running.get("/", RIGHT).status == 200


def test_a_table_of_keys_that_is_too_old_refuses_everybody(
    served: Served, keys: Keys, clock: Clock
) -> None:
    """Fail closed: a key that was revoked meanwhile would still be good here."""
    clock.now_s = 30.1
    assert served.get("/", RIGHT).status == 503

    keys.update(1, [], [], whole=False, now_s=clock.now_s)

    assert served.get("/", RIGHT).status == 200


def test_whoever_guesses_is_not_listened_to_for_a_minute(served: Served, clock: Clock) -> None:
    """20 refusals a minute: then 429, also with the right key; others are served."""
    wrong = basic("MRETL", "guess")
    for _ in range(GUESSES_MAX):
        assert served.get("/", wrong).status == 401
    answer = served.get("/", RIGHT)
    assert answer.status == 429
    assert int(answer.headers["retry-after"]) > 0

    clock.now_s = 60.1
    clock.wall_s = 600.0

    assert served.get("/", wrong).status == 503  # the table is old by now, too


def test_keys_that_nobody_has_do_not_shut_out_those_that_somebody_has(served: Served) -> None:
    """One program with an old key, and all others of its host go on."""
    for number in range(GUESSES_MAX):
        assert served.get("/", basic(f"MROLD{number}", "x")).status == 401
    assert served.get("/", basic("MROTHER", "x")).status == 429
    assert served.get("/", "Authorization: Bearer no-token").status == 429
    assert served.get("/", RIGHT).status == 200


def test_guesses_are_counted_by_address_and_key_and_forgotten() -> None:
    guesses = Guesses()
    for _ in range(GUESSES_MAX):
        guesses.note("10.0.0.1", "MRETL", 0.0)

    with pytest.raises(Refused) as caught:
        guesses.check("10.0.0.1", "MRETL", 59.0)
    guesses.check("10.0.0.2", "MRETL", 59.0)
    guesses.check("10.0.0.1", "", 59.0)
    guesses.check("10.0.0.1", "MRETL", 60.0)

    assert caught.value.status == 429


def test_a_name_is_believed_from_trusted_networks_only(clock: Clock, keys: Keys) -> None:
    with serving(access_of(clock, keys)) as strict:
        assert strict.get("/?user.name=ann").status == 401
    with serving(access_of(clock, keys, trusted=["127.0.0.0/8"])) as looking:
        assert looking.get("/?user.name=ann").body == b"ann  False"
        assert looking.get("/?user.name=../x").status == 400
        assert looking.get("/?user.name=ann", basic("MRETL", "wrong")).status == 401
    trusting = access_of(clock, keys, trusted=["127.0.0.0/8"], trusted_writes=True)
    with serving(trusting) as writing:
        assert writing.get("/?user.name=ann").body == b"ann  True"


def test_a_balancer_does_not_lend_its_trust_to_its_clients(clock: Clock, keys: Keys) -> None:
    """The network is the client's, not the balancer's."""
    access = access_of(clock, keys, trusted=["127.0.0.0/8"], behind=["127.0.0.1"])
    with serving(access, behind=["127.0.0.1"]) as balanced:
        assert balanced.get("/?user.name=ann", "X-Forwarded-For: 192.0.2.1").status == 401
        assert balanced.get("/?user.name=ann").status == 200


def test_a_gateway_that_only_reads_makes_every_key_so(clock: Clock, keys: Keys) -> None:
    with serving(access_of(clock, keys, read_only=True)) as reading:
        assert reading.get("/", RIGHT).body == b"ann etl False"


def test_a_key_that_was_sent_in_plain_from_afar_is_refused(clock: Clock, keys: Keys) -> None:
    """What anybody on the way could read is no secret."""

    async def far(request: Request) -> Reply:
        request.address = "192.0.2.1"
        found = await access_of(clock, keys).principal(request)
        return text_reply(found.user)

    with Served(far) as plain:
        assert plain.get("/", RIGHT).status == 403
    config = read_config("name: x\nhosts: {h1: {address: 127.0.0.1}}\ngateway: {hosts: [h1]}\n")
    door = with_door_keys(Secret.new(), config).door
    assert door is not None
    certificates = Certificates(config, "h1", door)
    certificates.refresh(time.time())
    with Served(far, tls=certificates.context) as private:
        context = ssl.create_default_context(cadata=door.authority)
        with private.connect() as raw:
            with context.wrap_socket(raw, server_hostname="127.0.0.1") as connection:
                connection.sendall(private.head("GET / HTTP/1.1", "Connection: close", RIGHT))
                assert b" 200 " in connection.recv(1000)


names = st.binary(min_size=1, max_size=3).filter(lambda name: b"/" not in name)


@given(st.lists(names, max_size=4), st.lists(st.sampled_from(["a", "b", "ab"]), max_size=3))
def test_a_key_reaches_whole_components_only(parts: list[bytes], prefix: list[str]) -> None:
    """`/data` is not `/database`."""
    principal = Principal("ann", paths=("/" + "/".join(prefix),))
    encoded = [name.encode() for name in prefix]

    reached = principal.reaches(tuple(parts))

    assert reached == (parts[: len(prefix)] == encoded)
    assert principal.reaches((*encoded, b"x"))


def test_no_key_reaches_what_is_the_file_systems_own() -> None:
    whole = Principal("ann")

    assert whole.reaches(()) and whole.reaches((b"a", b".trash"))
    for own in (b".mrstream", b".trash"):
        assert not whole.reaches((own,)) and not whole.reaches((own, b"x"))
        assert not Principal("ann", paths=(f"/{own.decode()}",)).reaches((own, b"x"))


def test_a_key_that_may_only_read_changes_nothing() -> None:
    reader = replace(ETL, can_write=False).principal()

    reader.check((b"data", b"x"), writes=False)
    for parts, writes in (((b"data", b"x"), True), ((b"database",), False)):
        with pytest.raises(Refused) as caught:
            reader.check(parts, writes=writes)
        assert caught.value.status == 403
