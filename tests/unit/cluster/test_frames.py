"""Frames and handshake, without any socket."""

from __future__ import annotations

import pytest

from mrstream.cluster.errors import (
    ClusterError,
    JournalCorrupt,
    NotTrusted,
    Overloaded,
    Speechless,
    UserError,
    WrongCluster,
)
from mrstream.cluster.wire.frames import HEADER, HEADER_BYTES, FrameDecoder, Kind, encode_frame
from mrstream.cluster.wire.handshake import ClientHandshake, ServerHandshake, refusal
from mrstream.cluster.wire.identity import Identity

SECRET = b"k" * 32
MASTER = Identity("c1", SECRET, "dfs.master", "h1")
CLIENT = Identity("c1", SECRET, "client", "laptop")


def frames_of(data: bytes | bytearray) -> list[tuple[int, int, bytes]]:
    return FrameDecoder(1 << 20).feed(bytes(data))


def test_frames_come_out_whole_however_the_bytes_are_cut() -> None:
    """docs/formats/frames.md: a stream has no borders of its own."""
    stream = b"".join(bytes(encode_frame(Kind.CALL, n, "x" * n)) for n in range(50))
    whole = frames_of(stream)

    for step in (1, 2, 7, 13, 14, 400):
        decoder = FrameDecoder(1 << 20)
        got = []
        for at in range(0, len(stream), step):
            got += decoder.feed(stream[at : at + step])
        assert got == whole
        assert decoder.held_bytes == 0


def test_a_four_gigabyte_header_is_refused_before_its_body_is_stored() -> None:
    decoder = FrameDecoder()

    with pytest.raises(Speechless, match="4,294,967,295 bytes; at most 1,024"):
        decoder.feed(HEADER.pack(0xFFFFFFFF, Kind.CALL, 1))


def test_a_port_scanner_speaking_http_is_refused_by_its_first_thirteen_bytes() -> None:
    with pytest.raises(Speechless):
        FrameDecoder().feed(b"GET / HTTP/1.1\r\n\r\n")


def test_a_huge_frame_costs_one_copy_not_one_a_read() -> None:
    """Feeding in small reads must stay linear: 8 MiB in 4 KiB reads."""
    frame = bytes(encode_frame(Kind.REPLY, 9, b"z" * (8 << 20)))
    decoder = FrameDecoder(32 << 20)
    got = []

    for at in range(0, len(frame), 4096):
        got += decoder.feed(frame[at : at + 4096])

    assert len(got) == 1 and len(got[0][2]) == len(frame) - HEADER_BYTES


def shake(client: ClientHandshake, server: ServerHandshake) -> None:
    (hello,) = frames_of(client.start())
    (challenge,) = frames_of(server.feed(hello))
    proof = client.feed(challenge)
    assert proof is not None
    (proof_frame,) = frames_of(proof)
    (welcome,) = frames_of(server.feed(proof_frame))
    assert client.feed(welcome) is None


def test_both_sides_know_each_other_after_the_handshake() -> None:
    client, server = ClientHandshake(CLIENT, "dfs.master", 77), ServerHandshake(MASTER)

    shake(client, server)

    assert client.done and server.done
    assert (client.peer.role, client.peer.host) == ("dfs.master", "h1")
    assert (server.peer.role, server.peer.host, server.peer.client_id) == ("client", "laptop", 77)


def test_a_client_with_the_wrong_secret_learns_nothing_and_sends_no_proof() -> None:
    stranger = Identity("c1", b"w" * 32)
    client, server = ClientHandshake(stranger, "dfs.master", 1), ServerHandshake(MASTER)
    (hello,) = frames_of(client.start())
    (challenge,) = frames_of(server.feed(hello))

    with pytest.raises(NotTrusted, match="did not prove"):
        client.feed(challenge)

    assert not server.done


def test_a_replayed_proof_is_refused_because_the_nonce_is_new() -> None:
    """faults.md: a replayed handshake proves nothing."""
    client, server = ClientHandshake(CLIENT, "dfs.master", 1), ServerHandshake(MASTER)
    (hello,) = frames_of(client.start())
    (challenge,) = frames_of(server.feed(hello))
    proof = client.feed(challenge)
    assert proof is not None
    (recorded,) = frames_of(proof)
    second = ServerHandshake(MASTER)
    second.feed(hello)

    with pytest.raises(NotTrusted):
        second.feed(recorded)


def test_a_proof_of_the_server_is_not_one_of_the_client() -> None:
    """Reflection: sending the server's own proof back must not work."""
    client, server = ClientHandshake(CLIENT, "dfs.master", 1), ServerHandshake(MASTER)
    (hello,) = frames_of(client.start())
    (challenge,) = frames_of(server.feed(hello))
    import msgspec

    stolen = msgspec.msgpack.decode(challenge[2])[-1]
    (reflected,) = frames_of(encode_frame(Kind.HANDSHAKE, 0, ["Proof", stolen]))

    with pytest.raises(NotTrusted):
        server.feed(reflected)


@pytest.mark.parametrize(
    ("identity", "wanted", "says"),
    [
        (Identity("c2", SECRET), "dfs.master", "another cluster"),
        (CLIENT, "dfs.chunkserver", "a dfs.master listens here"),
    ],
)
def test_another_cluster_or_another_role_is_refused_by_name(
    identity: Identity, wanted: str, says: str
) -> None:
    client, server = ClientHandshake(identity, wanted, 1), ServerHandshake(MASTER)
    (hello,) = frames_of(client.start())

    with pytest.raises(WrongCluster, match=says):
        server.feed(hello)


def test_a_call_before_the_proof_is_refused() -> None:
    (call,) = frames_of(encode_frame(Kind.CALL, 1, ["Health"]))

    with pytest.raises(NotTrusted, match="prove the cluster's secret first"):
        ServerHandshake(MASTER).feed(call)


def test_the_secret_is_not_in_the_identity_s_repr() -> None:
    assert "kkkk" not in repr(MASTER)


@pytest.mark.parametrize("error", [JournalCorrupt("x"), UserError("x")])
def test_a_stranger_cannot_say_what_ends_a_daemon(error: ClusterError) -> None:
    """Errors are named on the wire, and some mean that whoever hears them must stop."""
    client = ClientHandshake(CLIENT, "dfs.master", 1)
    (frame,) = frames_of(refusal(error))

    with pytest.raises(Speechless, match="the handshake was refused: x"):
        client.feed(frame)


@pytest.mark.parametrize("error", [WrongCluster("x"), NotTrusted("x"), Overloaded("x")])
def test_why_a_handshake_is_refused_is_heard(error: ClusterError) -> None:
    client = ClientHandshake(CLIENT, "dfs.master", 1)
    (frame,) = frames_of(refusal(error))

    with pytest.raises(type(error), match="x"):
        client.feed(frame)
