"""Who runs this: a person by the environment, a daemon by the system."""

from __future__ import annotations

import os
import pwd

import pytest

from mrstream.cluster.user import login_name, user_name


def test_a_person_may_say_who_it_is_and_a_daemon_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "somebody-else")

    assert user_name() == "somebody-else"
    assert login_name() == pwd.getpwuid(os.getuid()).pw_name


def test_where_the_system_has_no_name_the_number_is_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that runs under a uid of its own."""
    for variable in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_123)

    assert user_name() == login_name() == "4000123"
