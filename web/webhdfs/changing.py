"""The operations of WebHDFS that change names and what is told of files, but no bytes."""

from __future__ import annotations

from mrstream.dfs.client.client import DfsClient
from mrstream.dfs.errors import DirectoryNotEmpty, FileExists, NoSuchFile, NotADirectory
from mrstream.dfs.protocol import FileStatus
from mrstream.web.http.head import Refused
from mrstream.web.http.reply import Reply, empty_reply, json_reply
from mrstream.web.webhdfs import answers
from mrstream.web.webhdfs.call import Call
from mrstream.web.webhdfs.reading import USER_NAMES, attributes


def boolean(value: bool) -> Reply:
    return json_reply({"boolean": value})


async def make_directories(call: Call) -> Reply:
    """MKDIRS, with those above it."""
    path = call.path(writes=True)
    mode = call.parameters.mode("permission", 0o755)

    def make(client: DfsClient) -> None:
        if path == "/":
            return
        try:
            client.make_directory(path, mode=mode, parents=True)
        except NotADirectory:
            if not client.stat(path).is_directory:
                raise FileExists(f"Path is not a directory: {path}") from None

    await call.ask(make)
    return boolean(True)


async def rename(call: Call) -> Reply:
    """RENAME: by HDFS's rules, into a directory that is there; exact with `renameoptions`."""
    source = call.path(writes=True)
    named = call.parameters.text("destination")
    if not named.startswith("/"):
        raise Refused(400, f'Invalid value for webhdfs parameter "destination": {named[:80]!r}')
    target = call.reach(named, writes=True)
    if call.parameters.has("renameoptions"):
        option = call.parameters.choice("renameoptions", "NONE", "NONE", "OVERWRITE", "TO_TRASH")
        await call.ask(
            lambda client: client.rename(source, target, overwrite=option == "OVERWRITE")
        )
        return empty_reply(200)
    return boolean(await call.ask(lambda client: _rename(client, source, target)))


def _rename(client: DfsClient, source: str, target: str) -> bool:
    """Rename as HDFS's first `rename`, whose answer to what cannot be is false."""
    try:
        status = client.stat(source)
        found = _stat(client, target)
        if found is not None and found.is_directory:
            if source == target:
                return False
            target = f"{target.rstrip('/')}/{source.rpartition('/')[2]}"
            found = _stat(client, target)
        if source == target:
            return not status.is_directory
        if source == "/" or found is not None or target.startswith(f"{source}/"):
            return False
        client.rename(source, target)
    except (NoSuchFile, FileExists, NotADirectory):
        return False
    return True


def _stat(client: DfsClient, path: str) -> FileStatus | None:
    try:
        return client.stat(path)
    except NoSuchFile:
        return None


async def delete(call: Call) -> Reply:
    """DELETE: to the trash where the policy has one, as every other way of deleting."""
    path = call.path(writes=True)
    recursive = call.parameters.flag("recursive", False)

    def gone(client: DfsClient) -> bool:
        if path == "/":
            if not recursive and next(client.list("/"), None) is not None:
                raise DirectoryNotEmpty("/ is not empty")
            return False
        try:
            client.delete(path, recursive=recursive)
        except NoSuchFile:
            return False
        return True

    return boolean(await call.ask(gone))


async def set_permission(call: Call) -> Reply:
    path = call.path(writes=True)
    mode = call.parameters.mode("permission", 0o755)
    await call.ask(lambda client: client.set_mode(path, mode))
    return empty_reply(200)


async def set_owner(call: Call) -> Reply:
    """SETOWNER: of owner and group at least one."""
    path = call.path(writes=True)
    owner, group = call.parameters.text("owner"), call.parameters.text("group")
    if not owner and not group:
        raise Refused(400, "Both owner and group are empty.")
    await call.ask(lambda client: client.set_owner(path, owner=owner, group=group))
    return empty_reply(200)


async def set_times(call: Call) -> Reply:
    """SETTIMES: milliseconds; -1 leaves one."""
    path = call.path(writes=True)
    modified_ms = call.parameters.whole("modificationtime", -1, -1)
    accessed_ms = call.parameters.whole("accesstime", -1, -1)
    await call.ask(
        lambda client: client.set_times(
            path,
            modified_at_s=-1.0 if modified_ms < 0 else modified_ms / 1000,
            accessed_at_s=-1.0 if accessed_ms < 0 else accessed_ms / 1000,
        )
    )
    return empty_reply(200)


async def set_replication(call: Call) -> Reply:
    """SETREPLICATION: of a file; false for a directory."""
    path = call.path(writes=True)
    goal = call.parameters.whole("replication", call.dfs.replication, 1)

    def change(client: DfsClient) -> bool:
        if client.stat(path).is_directory:
            return False
        client.set_replication(path, goal)
        return True

    return boolean(await call.ask(change))


async def set_xattr(call: Call) -> Reply:
    """SETXATTR: `flag` says whether it must be there already, or must not."""
    path = call.path(writes=True)
    name = _xattr_name(call)
    flag = call.parameters.text("flag").upper()
    if flag not in ("", "CREATE", "REPLACE", "CREATE,REPLACE"):
        raise Refused(400, f'Invalid value for webhdfs parameter "flag": {flag[:40]!r}')
    try:
        value = answers.decode_xattr(call.parameters.text("xattr.value"))
    except ValueError as error:
        raise Refused(400, f'Invalid value for webhdfs parameter "xattr.value": {error}') from None

    def change(client: DfsClient) -> None:
        is_there = name in attributes(client, path)
        if flag == "CREATE" and is_there:
            raise Refused(403, f"{path} has attribute {name} already; REPLACE changes it")
        if flag == "REPLACE" and not is_there:
            raise Refused(403, f"{path} has no attribute {name}; CREATE makes it")
        client.set_attributes(path, {name: value})

    await call.ask(change)
    return empty_reply(200)


async def remove_xattr(call: Call) -> Reply:
    path = call.path(writes=True)
    name = _xattr_name(call)

    def change(client: DfsClient) -> None:
        if name not in attributes(client, path):
            raise Refused(403, f"{path} has no attribute {name}")
        client.set_attributes(path, {name: None})

    await call.ask(change)
    return empty_reply(200)


def _xattr_name(call: Call) -> str:
    name = call.parameters.text("xattr.name")
    if not name.startswith(USER_NAMES) or len(name) == len(USER_NAMES):
        raise Refused(400, f"attribute {name[:80]!r}: programs set those of user.*")
    return name
