"""Extras: what is missing is one line that says what to type."""

from __future__ import annotations

import sys

import pytest

from mrstream.cluster.config import extras
from mrstream.cluster.config.extras import MissingExtra


@pytest.fixture
def three_extras(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that every Python has, and two that none has."""
    table = {"plain": ("json", "email.message"), "rare": ("no_such_a", "no.such"), "odd": ("no_b",)}
    monkeypatch.setattr(extras, "MODULES", table)
    monkeypatch.setattr(extras, "NAMES", (*table, "all"))


def test_names_are_put_in_order_and_all_stands_for_all_of_them(three_extras: None) -> None:
    """Equal sets must be equal values: virtual environments on hosts are named after them."""
    assert extras.known(["odd", "plain"]) == extras.known(["plain", "odd"]) == ("plain", "odd")
    assert extras.known(["all", "odd"]) == ("plain", "rare", "odd")
    assert extras.known([]) == ()


def test_an_unknown_name_is_told_with_the_nearest_and_the_list() -> None:
    with pytest.raises(
        ValueError, match="no extra 'record'; did you mean 'records'\\? extras are "
    ):
        extras.known(["http", "record"])
    with pytest.raises(ValueError, match=r"no extra 'zzz'; extras are http, records, .*, all$"):
        extras.known(["zzz"])


def test_what_is_missing_is_found_without_importing_anything(three_extras: None) -> None:
    before = set(sys.modules)

    found = extras.missing(["plain", "rare", "odd"])

    assert found == {"rare": ["no_such_a", "no.such"], "odd": ["no_b"]}
    assert set(sys.modules) - before <= {"email", "json"}
    extras.require(["plain"], "this job")


def test_a_missing_extra_is_one_line_with_what_to_do_here_and_for_a_cluster(
    three_extras: None,
) -> None:
    with pytest.raises(MissingExtra) as caught:
        extras.require(["plain", "odd"], "-inputformat odd")

    assert str(caught.value) == (
        "-inputformat odd needs the extra odd, and this machine has no no_b: `pip install "
        "'mrstream[odd]'` (on a cluster: `extras: [odd]` in cluster.yaml, then `mrstream cluster "
        "up`)"
    )


def test_the_line_for_a_cluster_keeps_what_it_has(three_extras: None) -> None:
    extras.require_of_cluster(["plain"], ["plain", "odd"], "lab", "this job")

    with pytest.raises(MissingExtra) as caught:
        extras.require_of_cluster(["rare"], ["plain", "odd"], "lab", "this job")

    assert str(caught.value) == (
        "this job needs the extra rare, which cluster lab does not have: write "
        "`extras: [plain, odd, rare]` into cluster.yaml, then `mrstream cluster up`"
    )


def test_the_line_for_a_host_names_its_python(three_extras: None) -> None:
    gaps = extras.lacking(["plain", "odd"], ["json", "email.message"])

    said = extras.lacking_there(gaps, "/opt/bin/python3")

    assert said == (
        "/opt/bin/python3 there has no no_b of the extra odd: `/opt/bin/python3 -m pip install "
        "'mrstream[odd]'`"
    )
