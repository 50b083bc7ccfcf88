"""The verbs for quotas, as Hadoop's administrators know them: how much a directory may hold."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from mrstream.cluster.units import parse_size
from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.errors import BadRequest
from mrstream.dfs.protocol import NO_QUOTA, QuotaReply
from mrstream.dfs.shell.arguments import Arguments, BadUsage
from mrstream.dfs.shell.changing import client_of
from mrstream.dfs.shell.formats import figure
from mrstream.dfs.shell.items import Item, Shell

HEADER = f"{'QUOTA':>12} {'REM_QUOTA':>15} {'SPACE_QUOTA':>15} {'REM_SPACE_QUOTA':>15} "


def set_quota(shell: Shell, said: Arguments) -> None:
    """Limit the number of files and directories."""
    word = said.rest[0]
    if not (word.isascii() and word.isdigit()) or int(word) < 1:
        raise BadUsage(f"a name quota is a whole number from 1 on, not {word!r}")
    _each(shell, said.rest[1:], lambda client, path: client.set_quota(path, names=int(word)))


def set_space_quota(shell: Shell, said: Arguments) -> None:
    """Limit the number of bytes, all replicas counted."""
    word = said.rest[0]
    try:
        limit = int(word) if word.isascii() and word.isdigit() else parse_size(word)
    except ValueError as error:
        raise BadUsage(f"space quota {word!r}: {error}") from None
    _each(shell, said.rest[1:], lambda client, path: client.set_quota(path, space_bytes=limit))


def clear_quota(shell: Shell, said: Arguments) -> None:
    """Take the limit of names away."""
    _each(shell, said.rest, lambda client, path: client.clear_quota(path, names=True))


def clear_space_quota(shell: Shell, said: Arguments) -> None:
    """Take the limit of bytes away."""
    _each(shell, said.rest, lambda client, path: client.clear_quota(path, space=True))


def _each(shell: Shell, words: tuple[str, ...], change: Callable[[DfsClient, str], None]) -> None:
    for item in shell.each(words):
        with shell.reported(item.shown):
            change(client_of(item), item.path)


def columns(item: Item, is_human: bool) -> str:
    """The four columns that `-count -q` shows before the others."""
    quota = QuotaReply(NO_QUOTA, 0, NO_QUOTA, 0)
    if item.is_directory:
        with contextlib.suppress(BadRequest):  # a disk has none
            quota = client_of(item).quota(item.path)
    names = _limit(quota.names, quota.names_used, is_human)
    space = _limit(quota.space_bytes, quota.space_used_bytes, is_human)
    return f"{names[0]:>12} {names[1]:>15} {space[0]:>15} {space[1]:>15} "


def _limit(limit: int, used: int, is_human: bool) -> tuple[str, str]:
    if limit == NO_QUOTA:
        return "none", "inf"
    return figure(limit, is_human), figure(limit - used, is_human)
