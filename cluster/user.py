"""Who runs this process, also where the system has no name for it (a container, say)."""

from __future__ import annotations

import os


def user_name() -> str:
    """Return who a person says to be: $LOGNAME or $USER, else the login name."""
    import getpass  # loads the terminal's module; start-up is lean

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def login_name() -> str:
    """Return whom the process really runs as: a daemon does not go by its environment."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
