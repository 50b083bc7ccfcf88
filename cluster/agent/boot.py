"""One line of the user's crontab, so that a host that was rebooted brings its daemons back.

Nobody has to be root for it. The line starts the host's guard, which starts everything else; what
it ends with tells it from all other lines, which are left as they are.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess

from mrstream.cluster.agent.refusal import RefusedError

CRONS = ("cron", "crond", "anacron", "busybox", "fcron", "dcron", "cronie")


def at_boot(directory: str, argv: list[str], environment: dict[str, str]) -> str:
    """Have the command run at every boot; return what is wrong with that, nothing if it is well."""
    settings = [f"{name}={value}" for name, value in sorted(environment.items())]
    command = shlex.join(["env", *settings, *argv] if settings else argv)
    if "\n" in command or "\n" in directory:
        raise RefusedError(f"{directory!r} cannot stand in a crontab: a path with a line break")
    line = f"@reboot {command} {_mark(directory)}".replace("%", "\\%")
    _write([*_others(_lines(), directory), line])
    if not any(name in CRONS for name in _process_names()):
        return "its crontab has the line, but no cron runs there: start it, and have it at boot"
    return ""


def not_at_boot(directory: str) -> bool:
    """Take that line out again; say whether it was there."""
    if not is_at_boot(directory):
        return False
    _write(_others(_lines(), directory))
    return True


def is_at_boot(directory: str) -> bool:
    """Is that line there? Whoever may not look has never written it."""
    try:
        lines = _lines()
    except RefusedError:
        return False  # no cron, none set up, or not for this user
    return len(_others(lines, directory)) < len(lines)


def _mark(directory: str) -> str:
    return f"# mrstream {directory}"


def _others(lines: list[str], directory: str) -> list[str]:
    end = _mark(directory).replace("%", "\\%")
    return [line for line in lines if not (line.startswith("@reboot ") and line.endswith(end))]


def _lines() -> list[str]:
    ended = _crontab(["-l"])
    if ended.returncode == 0:
        return ended.stdout.removesuffix("\n").split("\n") if ended.stdout else []
    if "no crontab" in ended.stderr.lower() or "can't open" in ended.stderr.lower():
        return []
    raise RefusedError(f"`crontab -l` failed there: {ended.stderr.strip()[-200:] or '?'}")


def _write(lines: list[str]) -> None:
    ended = _crontab(["-"], "".join(f"{line}\n" for line in lines))
    if ended.returncode != 0:
        raise RefusedError(f"its crontab cannot be written: {ended.stderr.strip()[-200:] or '?'}")


def _crontab(words: list[str], given: str = "") -> subprocess.CompletedProcess[str]:
    program = shutil.which("crontab")
    if program is None:
        raise RefusedError(
            "there is no cron there, so nothing starts at boot: install it (on Debian or Ubuntu, "
            "`apt-get install cron`), or run `mrstream cluster up` after a reboot"
        )
    ended = subprocess.run([program, *words], input=os.fsencode(given), capture_output=True)
    # As file names: whatever bytes a user's lines have, they go back as they came.
    told = [os.fsdecode(data) for data in (ended.stdout, ended.stderr)]
    return subprocess.CompletedProcess(ended.args, ended.returncode, *told)


def _process_names() -> list[str]:
    names: list[str] = []
    for pid in os.listdir("/proc"):
        try:
            with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
                names.append(file.read().strip())
        except OSError:
            continue  # no process, or it has just ended
    return names
