"""Which engine a job asks for: the words of `-engine`, of the property and of cluster.yaml.

    ray   ray://HOST[:PORT] (Ray's client)   ray:ADDRESS (what `ray.init` takes)
    spark spark://HOST:PORT                  spark:MASTER (`local[4]`, `yarn`, …)
    hadoop                                   hadoop:DIRECTORY (its home)
    own   mrstream itself, whatever cluster.yaml says

Takes text; gives an `EngineChoice` or one clear line. Imports no engine.
"""

from __future__ import annotations

import msgspec

from mrstream.cluster.errors import UserError

RAY, SPARK, HADOOP, OWN = "ray", "spark", "hadoop", "own"
KINDS = (RAY, SPARK, HADOOP, OWN)
RAY_CLIENT_PORT = 10001


class BadEngine(UserError):
    """The engine that a job asks for does not exist, or cannot do what the job asks."""


class EngineChoice(msgspec.Struct, frozen=True):
    """An engine, and where it is in its own words; empty: where it says itself."""

    kind: str
    address: str = ""

    def __str__(self) -> str:
        if not self.address or "://" in self.address:
            return self.address or self.kind
        return f"{self.kind}:{self.address}"


def parse(text: str) -> EngineChoice | None:
    """Read the name of an engine; None is mrstream itself."""
    kind, colon, rest = text.partition(":")
    if kind not in KINDS or (colon and not rest.strip("/")):
        raise BadEngine(
            f"-engine {text!r} is none: there are ray, ray://HOST, spark, spark://HOST:PORT, "
            "hadoop and own"
        )
    if kind == OWN:
        return None
    if not rest.startswith("//"):
        return EngineChoice(kind, rest)
    if kind == HADOOP:
        raise BadEngine(
            f"-engine {text!r}: Hadoop's own files say where it is; write hadoop, or "
            "hadoop:DIRECTORY for its home, and HADOOP_CONF_DIR names its configuration"
        )
    host, _, port = rest[2:].partition(":")
    if kind == RAY and not port:
        return EngineChoice(kind, f"ray://{host}:{RAY_CLIENT_PORT}")
    return EngineChoice(kind, text)
