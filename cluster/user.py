"""Who runs this process, also where the system has no name for it (a container, say)."""

from __future__ import annotations

import functools
import os


def user_name() -> str:
    """Return who a person says to be: $LOGNAME or $USER, else the login name."""
    return os.environ.get("LOGNAME") or os.environ.get("USER") or login_name()


def login_name() -> str:
    """Return whom the process really runs as: a daemon does not go by its environment."""
    return _login_name(os.getuid())


@functools.cache
def _login_name(uid: int) -> str:
    import pwd  # rarely needed; start-up is lean

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
