"""Errors cross the wire by name and come out as the class that the caller expects."""

from __future__ import annotations

import pickle

from mrstream.cluster.errors import (
    ClusterError,
    HostUnreachable,
    NotTrusted,
    Unavailable,
    UserError,
    from_wire,
    name_chain,
)
from mrstream.cluster.wire.messages import ErrorReply, pack, unpack


class NoSuchThing(UserError, FileNotFoundError):
    """A leaf as dfs makes them: ours and the builtin at once."""


def test_an_error_comes_back_as_its_own_class_with_its_details() -> None:
    sent = NoSuchThing("/a: no such thing", path="/a", size=3)

    got = unpack(pack(ErrorReply.of(sent)), ErrorReply).error()

    assert type(got) is NoSuchThing
    assert isinstance(got, FileNotFoundError)
    assert str(got) == "/a: no such thing"
    assert got.details == {"path": "/a", "size": 3}


def test_an_unknown_leaf_becomes_its_nearest_known_branch() -> None:
    """A newer server may raise what an older client has never heard of."""
    assert (
        type(from_wire(["Brandnew", "HostUnreachable", "Unavailable"], "m", {})) is HostUnreachable
    )
    assert type(from_wire(["Nobody"], "m", {})) is ClusterError


def test_the_chain_of_names_goes_from_leaf_to_branch() -> None:
    assert name_chain(HostUnreachable("x")) == ["HostUnreachable", "Unavailable"]


def test_errors_survive_pickling() -> None:
    again = pickle.loads(pickle.dumps(NotTrusted("no", address="h:1")))

    assert type(again) is NotTrusted and str(again) == "no" and again.details == {"address": "h:1"}
    assert not isinstance(again, Unavailable)
