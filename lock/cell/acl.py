"""Who may open a node for what: lists of names, kept as files of the cell (Chubby §2.3).

A node names three lists, files in /ls/local/acl with a user on each line (`*`: everybody); an empty
name stands for everybody. The node's own lists count, not those of the directories above it
(CH-10), and only when it is opened. Users are those that clients say they are: this guards against
accidents, not against whoever has the cluster's secret.
"""

from __future__ import annotations

from mrstream.lock.cell.nodes import Node, State
from mrstream.lock.errors import AclRefuses, BadLockRequest
from mrstream.lock.paths import ACL_DIRECTORY
from mrstream.lock.protocol import CHANGE_ACL, READ, WRITE, Acl

_WORDS = {READ: "read", WRITE: "write", CHANGE_ACL: "change the lists of"}


class Permissions:
    def __init__(self, state: State, superuser: str) -> None:
        self._state = state
        self._superuser = superuser

    def check(self, user: str, node: Node, mode: int) -> None:
        """Raise `AclRefuses` unless the user may do all of it."""
        names = {READ: node.acl.read, WRITE: node.acl.write, CHANGE_ACL: node.acl.change}
        for bit, name in names.items():
            if mode & bit and not self._has(name, user):
                raise AclRefuses(
                    f"{user or 'a user without a name'} may not {_WORDS[bit]} {node.path}: "
                    f"{ACL_DIRECTORY}/{name} does not list that user"
                )

    def _has(self, name: str, user: str) -> bool:
        if not name or (user and user == self._superuser):
            return True
        node = self._state.nodes.get(f"{ACL_DIRECTORY}/{name}")
        if node is None or node.is_directory:
            return False
        lines = [line.strip() for line in node.contents.split(b"\n")]
        return b"*" in lines or (user != "" and user.encode() in lines)


def check_names(acl: Acl) -> None:
    """Raise `BadLockRequest` for names that no list can have."""
    for name in (acl.read, acl.write, acl.change):
        if (
            not name.isprintable()
            or "/" in name
            or ":" in name
            or name in (".", "..")
            or len(name.encode()) > 255
        ):
            raise BadLockRequest(f"{name[:80]!r} cannot be the name of a list: it is a file's name")
