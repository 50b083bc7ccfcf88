"""The hand of the launcher on a host: checks, installs, starts and stops there, as it is asked.

These modules are sent to the host's own Python over SSH (or to ours, for local hosts) before
anything is installed there, so they use the standard library and each other only. The agent talks
JSON lines over its standard input and output: a request `{"do": …}`, perhaps followed by raw bytes,
gets events and then one `{"ok": …}` or `{"error": …}`. If the launcher vanishes before it said
`keep`, the agent stops whatever it had started: nothing half-begun is left behind. It decides
nothing.
"""

from __future__ import annotations

MODULES = (
    "refusal",
    "files",
    "checks",
    "software",
    "processes",
    "daemons",
    "watch",
    "boot",
    "guard",
    "serving",
)
"""What is sent, in this order: each imports only from those before it, by its full name."""
