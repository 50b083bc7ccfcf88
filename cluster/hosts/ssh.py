"""Logins over SSH with paramiko: as `ssh` itself would, and with errors that say what to do.

ssh_config, known_hosts, the agent and key files are respected. A host whose key is unknown or has
changed is refused. Never more logins at once than sshd's MaxStartups lets in, and one that sshd
dropped is tried again.
"""

from __future__ import annotations

import base64
import contextlib
import getpass
import hashlib
import logging
import os
import random
import socket
import threading
import time
from dataclasses import dataclass
from typing import Any, cast

import paramiko

from mrstream.cluster.config.config import HostConfig
from mrstream.cluster.errors import HostUnreachable
from mrstream.cluster.hosts.session import (
    PYTHONS,
    AgentSession,
    HostRefused,
    UnknownHostKey,
    bootstrap_command,
)
from mrstream.cluster.wire.addresses import tune

LOGINS_AT_ONCE_MAX = 8
"""Below sshd's usual MaxStartups of 10 by some, since others log in too."""
LOGIN_ATTEMPTS_MAX = 8
CONNECT_S_MAX = 6.0
HANDSHAKE_S_MAX = 20.0
_KEEPALIVE_S = 10

# What paramiko's own threads meet is reported by whoever waits for them, and only once.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)

_logins = threading.BoundedSemaphore(LOGINS_AT_ONCE_MAX)


@dataclass(frozen=True, slots=True)
class Login:
    """How a host is reached, with ssh_config taken into account."""

    name: str
    address: str
    port: int
    user: str
    keys: tuple[str, ...]
    only_these_keys: bool
    proxy_command: str | None
    known_hosts: tuple[str, ...]
    host_key_alias: str | None
    accept_new: bool

    @property
    def target(self) -> str:
        """Return what one would type after `ssh`."""
        port = f" -p {self.port}" if self.port != 22 else ""
        return f"{self.user}@{self.address}{port}"


def resolve(host: HostConfig) -> Login:
    """Return how to log in to a host: cluster.yaml first, then ssh_config, then ssh's defaults."""
    own_name = _own_name()
    config = _ssh_config()
    options: dict[str, Any] = dict(config.lookup(host.name))
    if host.address != host.name:
        # An explicit address is looked up too, for those who keep their settings by address.
        options = {**config.lookup(host.address), **options}
    address = options["hostname"] if host.address == host.name else host.address
    port = host.port or int(options.get("port", 22))
    user = host.user or options.get("user") or own_name
    keys = (host.key,) if host.key else tuple(options.get("identityfile", ()))
    proxy = options.get("proxycommand")
    if proxy is None and options.get("proxyjump", "none") != "none":
        proxy = f"ssh -W {address}:{port} {options['proxyjump']}"
    files = options.get("userknownhostsfile", "~/.ssh/known_hosts").split()
    return Login(
        name=host.name,
        address=address,
        port=port,
        user=user,
        keys=tuple(os.path.expanduser(key) for key in keys),
        only_these_keys=bool(host.key) or options.get("identitiesonly", "no") == "yes",
        proxy_command=None if proxy in (None, "none") else proxy,
        known_hosts=(*map(os.path.expanduser, files), "/etc/ssh/ssh_known_hosts"),
        host_key_alias=options.get("hostkeyalias"),
        accept_new=options.get("stricthostkeychecking", "ask") in ("no", "off", "accept-new"),
    )


def _own_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise HostRefused(
            f"you have no user name on this machine (uid {os.getuid()}): set the variable USER to "
            "the name to log in by"
        ) from None


def _ssh_config() -> paramiko.SSHConfig:
    config = paramiko.SSHConfig()
    for path in (os.path.expanduser("~/.ssh/config"), "/etc/ssh/ssh_config"):
        try:
            with open(path, encoding="utf-8") as file:
                config.parse(file)
        except FileNotFoundError:
            continue
        except (paramiko.ConfigParseError, UnicodeDecodeError) as error:
            raise HostRefused(f"{path} cannot be understood: {error}") from None
        except OSError as error:
            raise HostRefused(f"{path} cannot be read: {error.strerror}") from None
    return config


def connect(host: HostConfig) -> paramiko.SSHClient:
    """Return a logged-in client, or raise `HostRefused` or `HostUnreachable` with what to do."""
    login = resolve(host)
    for attempt in range(1, LOGIN_ATTEMPTS_MAX + 1):
        try:
            with _logins:
                return _log_in(login)
        except (paramiko.SSHException, EOFError, ConnectionResetError) as error:
            refused = _refusal(login, error)
            if refused is not None:
                raise refused from None
            if attempt == LOGIN_ATTEMPTS_MAX:
                raise HostUnreachable(
                    f"{login.target}: sshd ended {attempt} logins before they began ({error}): is "
                    "its MaxStartups exceeded, or a firewall in between?"
                ) from None
            # sshd drops logins at random when too many have not finished: wait longer each time.
            time.sleep(random.uniform(0.05, 0.15) * 2**attempt)
        except OSError as error:
            reason = error.strerror or str(error) or type(error).__name__
            raise HostUnreachable(
                f"{login.address} port {login.port} does not answer ({reason}): is the host up, "
                "the address right, and sshd running?"
            ) from None
    raise AssertionError("the loop returns or raises")


def _log_in(login: Login) -> paramiko.SSHClient:
    client = paramiko.SSHClient()
    try:
        _load_known_hosts(client, login)
        policy = _AcceptNew(login.known_hosts[0]) if login.accept_new else _RefuseUnknown()
        client.set_missing_host_key_policy(policy)
        client.connect(
            login.host_key_alias or login.address,
            port=login.port,
            username=login.user,
            # A list is as good as a name to paramiko, though its types do not say so.
            key_filename=cast(str, [key for key in login.keys if os.path.exists(key)] or None),
            sock=_socket(login),
            allow_agent=not login.only_these_keys,
            look_for_keys=not login.keys,
            timeout=CONNECT_S_MAX,
            banner_timeout=HANDSHAKE_S_MAX,
            auth_timeout=HANDSHAKE_S_MAX,
        )
    except BaseException:
        client.close()
        raise
    transport = client.get_transport()
    assert transport is not None
    transport.set_keepalive(_KEEPALIVE_S)
    return client


def _load_known_hosts(client: paramiko.SSHClient, login: Login) -> None:
    for path in login.known_hosts:
        try:
            client.load_system_host_keys(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise HostRefused(f"{path} cannot be read: {error.strerror}") from None
        except paramiko.hostkeys.InvalidHostKey as error:
            raise HostRefused(
                f"{path} has a line that is no host key: {error.line[:60]!r}"
            ) from None


def _socket(login: Login) -> socket.socket:
    if login.proxy_command is not None:
        proxy: socket.socket = paramiko.ProxyCommand(login.proxy_command)  # type: ignore[assignment]
        return proxy
    sock = socket.create_connection((login.address, login.port), CONNECT_S_MAX)
    tune(sock)  # small packets at once (3 ms a command instead of 50), and dead hosts noticed
    return sock


class _UnknownHostError(paramiko.SSHException):
    def __init__(self, key: paramiko.PKey) -> None:
        super().__init__("unknown host key")
        self.key = key


class _AcceptNew(paramiko.MissingHostKeyPolicy):
    """What `StrictHostKeyChecking accept-new` asks for: a key that is new is written down, so that
    another one is refused the next time."""

    def __init__(self, path: str) -> None:
        self._path = path

    def missing_host_key(
        self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey
    ) -> None:
        line = f"{hostname} {key.get_name()} {key.get_base64()}\n"
        # As ssh, which goes on if it cannot write it down. Appended: other logins do the same.
        with contextlib.suppress(OSError), open(self._path, "a", encoding="utf-8") as file:
            file.write(line)


class _RefuseUnknown(paramiko.MissingHostKeyPolicy):
    def missing_host_key(
        self, client: paramiko.SSHClient, hostname: str, key: paramiko.PKey
    ) -> None:
        raise _UnknownHostError(key)


def _refusal(login: Login, error: BaseException) -> HostRefused | None:
    """Return what to tell the user, or None for what is worth another try."""
    if isinstance(error, paramiko.BadHostKeyException):
        return HostRefused(
            f"the host key of {login.address} has CHANGED: known_hosts has "
            f"{_fingerprint(error.expected_key)}, the host shows {_fingerprint(error.key)}. If it "
            f"was installed anew, run `ssh-keygen -R {_known_name(login)}` and then "
            f"`ssh {login.target}` once; if not, someone may be in between"
        )
    if isinstance(error, _UnknownHostError):
        shown = _fingerprint(error.key)
        return UnknownHostKey(
            f"the host key of {login.address} is not in known_hosts; it shows {shown}. Compare it "
            f"and run `ssh {login.target}` once",
            fingerprint=shown,
            type_this=_scan_line(login),
        )
    if isinstance(error, paramiko.PasswordRequiredException):
        return HostRefused(
            f"the key for {login.target} needs its passphrase: load it into the agent with ssh-add"
        )
    if isinstance(error, paramiko.AuthenticationException | paramiko.BadAuthenticationType):
        return HostRefused(_key_refused(login))
    if isinstance(error, paramiko.SSHException) and "No authentication methods" in str(error):
        return HostRefused(_key_refused(login))
    if isinstance(error, paramiko.SSHException) and "not a valid" in str(error):
        return HostRefused(f"a key for {login.target} cannot be read: {error}")
    return None


def _scan_line(login: Login) -> str:
    """Return the line that makes the host known: behind a proxy only ssh itself gets there."""
    if login.proxy_command is not None or login.host_key_alias is not None:
        return f"ssh {login.target} true"
    port = f"-p {login.port} " if login.port != 22 else ""
    return f"ssh-keyscan {port}{login.address} >> {login.known_hosts[0]}"


def _key_refused(login: Login) -> str:
    tried = [key for key in login.keys if os.path.exists(key)]
    absent = [key for key in login.keys if not os.path.exists(key)]
    words = f"tried {', '.join(tried)}" if tried else "tried the agent and the usual key files"
    if absent and not tried:
        words = f"there is no key file {', '.join(absent)}"
    return (
        f"{login.address} refused the login of {login.user} ({words}): put your public key there "
        f"with `ssh-copy-id {login.target}`, or name user and key in cluster.yaml"
    )


def _known_name(login: Login) -> str:
    name = login.host_key_alias or login.address
    return name if login.port == 22 else f"'[{name}]:{login.port}'"


def _fingerprint(key: paramiko.PKey) -> str:
    digest = hashlib.sha256(key.asbytes()).digest()
    return f"{key.get_name()} SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


class SshTransport:
    """An agent at the other end of an SSH channel."""

    def __init__(self, client: paramiko.SSHClient, pythons: tuple[str, ...]) -> None:
        self._client = client
        transport = client.get_transport()
        assert transport is not None
        self._channel = transport.open_session(timeout=HANDSHAKE_S_MAX)
        self._channel.exec_command(bootstrap_command(pythons))

    def send(self, data: bytes) -> None:
        self._channel.settimeout(60.0)
        self._channel.sendall(data)

    def receive(self, timeout_s: float) -> bytes:
        self._channel.settimeout(timeout_s)
        return self._channel.recv(65536)

    def close(self) -> None:
        """Let the agent see the end of its input, give it a moment to clean up, then hang up."""
        try:
            self._channel.shutdown_write()
            self._channel.settimeout(15.0)
            while self._channel.recv(65536):
                pass
        except (OSError, EOFError):
            pass  # the connection is gone: the agent sees that as well
        finally:
            self._client.close()

    def last_words(self) -> str:
        deadline_s = time.monotonic() + 0.5
        while not self._channel.recv_stderr_ready() and time.monotonic() < deadline_s:
            if self._channel.closed:
                break
            time.sleep(0.01)
        words = b""
        while self._channel.recv_stderr_ready():
            words += self._channel.recv_stderr(65536)
        return words.decode(errors="replace")


def open_session(host: HostConfig, python: str | None = None) -> AgentSession:
    """Log in and start the agent there, under the given Python or the first that is new enough."""
    client = connect(host)
    try:
        transport = SshTransport(client, (python,) if python else PYTHONS)
        return AgentSession.over(host.name, transport)
    except (paramiko.SSHException, EOFError, OSError) as error:
        client.close()
        raise HostUnreachable(
            f"{host.name}: the login works, but no command runs: {error}"
        ) from None
