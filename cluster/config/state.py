"""What a user's machine remembers of clusters: files below `~/.mrstream`, or `$MRSTREAM_HOME`.

    current                      the name of the cluster that commands use when none is named
    clusters/NAME/cluster.yaml   the cluster file as it was at the last `cluster up` or `join`
    clusters/NAME/identity.json  the cluster's id and secret, mode 0600

Cheap to import: every command asks whether there is a cluster at all.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mrstream.cluster.errors import BadConfig, UserError

if TYPE_CHECKING:
    from mrstream.cluster.config.config import ClusterConfig

SECRET_BYTES = 32
NEW_MARK = "new"
"""A file in the state directory of a master that has never had a log: `up` puts it there."""
LOSS_ACCEPTED_MARK = "loss-accepted"
"""One in that of a master whose log a person chose (`restore --from`), whatever came after it: its
last sequence stands there."""


def home() -> str:
    """Return the directory of this user's state."""
    return os.environ.get("MRSTREAM_HOME") or os.path.expanduser("~/.mrstream")


def current_file() -> str:
    """Return the path of the file that names the current cluster."""
    return os.path.join(home(), "current")


def cluster_directory(name: str) -> str:
    """Return where the cluster file and identity of a cluster are kept."""
    return os.path.join(home(), "clusters", name)


def cluster_file(name: str) -> str:
    return os.path.join(cluster_directory(name), "cluster.yaml")


def identity_file(name: str) -> str:
    return os.path.join(cluster_directory(name), "identity.json")


def current_name() -> str | None:
    """Return the name of the current cluster, None if there is none."""
    try:
        with open(current_file(), encoding="utf-8") as file:
            return file.read().strip() or None
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(
            f"which cluster is current cannot be read: {error}; make {home()} yours, or set "
            "MRSTREAM_HOME to a directory that is"
        ) from None


def make_current(name: str | None) -> None:
    """Make a cluster the current one; None: no cluster is."""
    if name is None:
        if os.path.exists(current_file()):
            os.unlink(current_file())
        return
    write_private(current_file(), name + "\n")


def chosen(explicit: str | None = None) -> str | None:
    """Return the cluster file to use: the one given, `$MRSTREAM_CLUSTER` (either may also be the
    name of a known cluster), the current cluster's, or None."""
    choice = explicit or os.environ.get("MRSTREAM_CLUSTER")
    if choice:
        is_name = "/" not in choice and not os.path.isfile(choice)
        if is_name and os.path.exists(cluster_file(choice)):
            return cluster_file(choice)
        return choice
    name = current_name()
    return None if name is None else cluster_file(name)


def chosen_config(explicit: str | None = None) -> ClusterConfig | None:
    """Return what that file says; where there is none, nothing is loaded that would read it."""
    if chosen(explicit) is None:
        return None
    from mrstream.cluster.config import config  # brings a YAML parser with it

    return config.current(explicit)


@dataclass(frozen=True, slots=True)
class TlsKeys:
    """What `tls: true` adds to a cluster's secret, all in PEM: its own certificate authority, and
    one certificate that it signed for all members (who share the secret anyway)."""

    authority: str
    certificate: str
    key: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class DoorKeys:
    """What a gateway adds: an authority that vouches for the cluster's hosts alone (certificate
    and key in PEM), and the secret from which every access key's own is derived."""

    authority: str
    key: str = field(repr=False)
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Secret:
    """A cluster's id and secret, made once and kept for its whole life."""

    cluster_id: str
    secret: bytes = field(repr=False)
    tls: TlsKeys | None = None
    door: DoorKeys | None = None

    @staticmethod
    def new() -> Secret:
        import secrets  # most commands only ask which cluster there is

        return Secret(secrets.token_hex(16), secrets.token_bytes(SECRET_BYTES))

    def to_text(self) -> str:
        import json

        fields: dict[str, object] = {"cluster_id": self.cluster_id, "secret": self.secret.hex()}
        if self.tls is not None:
            fields["tls"] = [self.tls.authority, self.tls.certificate, self.tls.key]
        if self.door is not None:
            fields["door"] = [self.door.authority, self.door.key, self.door.secret.hex()]
        return json.dumps(fields) + "\n"

    @staticmethod
    def from_text(text: str, where: str) -> Secret:
        """Read it back; the error never shows the text."""
        import json

        try:
            fields = json.loads(text)
            secret = bytes.fromhex(fields["secret"])
            cluster_id = str(fields["cluster_id"])
            tls = TlsKeys(*fields["tls"]) if "tls" in fields else None
            door = None
            if "door" in fields:
                authority, key, door_secret = fields["door"]
                door = DoorKeys(str(authority), str(key), bytes.fromhex(door_secret))
        except (ValueError, KeyError, TypeError, RecursionError):
            raise UserError(f"{where} is not the identity of a cluster") from None
        if len(secret) != SECRET_BYTES or not cluster_id:
            raise UserError(f"{where} holds no secret of {SECRET_BYTES} bytes")
        return Secret(cluster_id, secret, tls, door)


def read_identity(path: str) -> Secret:
    """Read an identity file; refuse one that others can read."""
    try:
        with open(path, encoding="utf-8") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read()
    except FileNotFoundError:
        raise UserError(
            f"{path} is missing: run `mrstream cluster up` here, or `mrstream cluster join` if the "
            "cluster was made elsewhere"
        ) from None
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): whose is it?") from None
    if mode & 0o077:
        raise UserError(f"{path} can be read by others (mode {mode & 0o777:o}): chmod 600 it")
    return Secret.from_text(text, path)


def write_private(path: str, text: str) -> None:
    """Write a file that only its owner may read, whole or not at all."""
    try:
        _write_whole(path, text)
    except OSError as error:
        raise UserError(
            f"{path} cannot be written ({error.strerror}): make room or give permission there, or "
            "set MRSTREAM_HOME to a directory of yours"
        ) from None


def _write_whole(path: str, text: str) -> None:
    import tempfile

    directory = os.path.dirname(path)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=".part-", dir=directory)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise
