"""The software of a host, put there by `mrstream cluster up`: a wheel in its own environment."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator

from mrstream.cluster.agent.software import INSTALL
from mrstream.cluster.config.config import ClusterConfig
from mrstream.cluster.hosts.launcher import HostLink, Say
from mrstream.cluster.hosts.session import HostRefused
from mrstream.cluster.hosts.wheel import Wheel, running_wheel, wheelhouse

INSTALL_S_MAX = 900.0
SIGN_OF_LIFE_S = 10.0


class Software:
    """Installs the version that runs here on hosts."""

    def __init__(self, config: ClusterConfig, say: Say) -> None:
        self._config, self._say = config, say
        self._one_builder = threading.Lock()

    def wheel(self, link: HostLink) -> Wheel | None:
        """The wheel for a host; None where nothing is installed."""
        if link.is_local or self._config.install == "none":
            return None
        with self._one_builder:
            return running_wheel(link.facts["machine"])

    def install(self, link: HostLink) -> str:
        if link.is_local:
            return sys.executable
        if self._config.install == "none":
            python: str = link.host.python or self._config.python or link.facts["python"]
            return python
        wheel = self.wheel(link)
        assert wheel is not None
        wanted = self._config.extras_of(link.name)
        base = f"{link.host.dir}/versions/{wheel.digest}"
        # Another set of extras is another environment: what runs is never changed under it.
        venv = "-".join([f"{base}/venv", *wanted])
        own = f"{base}/{wheel.name}"
        marker = f"{venv}/installed"
        if marker not in link.call("have", paths=[marker])["paths"]:
            self._send_wheels(link, wheel, base)
            more = f" with {', '.join(wanted)}" if wanted else ""
            self._say(link.name, f"installing {wheel.name} ({wheel.digest}){more}")
        requirement = f"{own}[{','.join(wanted)}]" if wanted else own
        if self._config.install == "wheelhouse":
            return self._pip(link, venv, own, requirement, no_index=True)
        try:
            return self._pip(link, venv, own, requirement, no_index=False)
        except HostRefused as error:
            if f"cannot {INSTALL}" not in str(error):
                raise
            self._say(link.name, f"{error}")
            self._say(link.name, "no way from there to the package index? All is sent from here")
        self._send_wheels(link, wheel, base, with_all=True)
        return self._pip(link, venv, own, requirement, no_index=True)

    def _pip(self, link: HostLink, venv: str, own: str, requirement: str, *, no_index: bool) -> str:
        with self._signs_of_life(link.name, "installing"):
            answer = link.call(
                "install",
                venv=venv,
                wheels=[own],
                requirement=requirement,
                no_index=no_index,
                timeout_s=INSTALL_S_MAX,
            )
        installed: str = answer["python"]
        return installed

    @contextlib.contextmanager
    def _signs_of_life(self, name: str, what: str) -> Iterator[None]:
        """Say every few seconds that something is still being done."""
        done = threading.Event()
        began_s = time.monotonic()

        def tell() -> None:
            while not done.wait(SIGN_OF_LIFE_S):
                self._say(name, f"still {what} ({time.monotonic() - began_s:.0f} s)")

        teller = threading.Thread(target=tell, daemon=True)
        teller.start()
        try:
            yield
        finally:
            done.set()
            teller.join()

    def _send_wheels(
        self, link: HostLink, wheel: Wheel, base: str, *, with_all: bool = False
    ) -> None:
        """Put our wheel there, and for a host without a network all that it needs."""
        paths: dict[str, str] = {}
        if with_all or self._config.install == "wheelhouse":
            wanted = self._config.extras_of(link.name)
            with self._signs_of_life(link.name, "fetching its wheels"), self._one_builder:
                paths = wheelhouse(link.facts["version"], link.facts["machine"], wanted)
        names = [wheel.name, *paths]
        there = set(link.call("have", paths=[f"{base}/{name}" for name in names])["paths"])
        for name in names:
            if f"{base}/{name}" in there:
                continue
            content = wheel.content
            if name in paths:  # read one by one: with extras they are hundreds of megabytes
                with open(paths[name], "rb") as file:
                    content = file.read()
            link.call(
                "put",
                path=f"{base}/{name}",
                mode=0o644,
                payload=content,
                timeout_s=INSTALL_S_MAX,
            )
