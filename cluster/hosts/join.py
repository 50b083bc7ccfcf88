"""`mrstream cluster join`: another user or machine with SSH access gets cluster file and secret."""

from __future__ import annotations

import os

from mrstream.cluster.config import state
from mrstream.cluster.config.config import ClusterConfig, HostConfig, load
from mrstream.cluster.config.reader import read_config
from mrstream.cluster.errors import UserError
from mrstream.cluster.hosts.launcher import HostLink


def join(file: str | None, target: str | None, directory: str, name: str | None) -> str:
    """Fetch a cluster's file and identity from one of its hosts; return the cluster's name.

    Either a cluster file names the host (its master), or the target does: `[USER@]HOST`.
    """
    if target is None and file is None:
        raise UserError("join which cluster? Give a host of it ([USER@]HOST), or -f cluster.yaml")
    if target is None:
        assert file is not None
        config = load(file)
        link = HostLink(config, config.host(config.master))
    else:
        link = HostLink(_stranger(target, directory), _host(target, directory))
    try:
        link.open()
        place = _find(link, directory, name) if target is not None else None
        if place is None:
            link.begin(lock=False)
            place = link.directory
        yaml_text = link.call("read", path=f"{place}/cluster.yaml")["text"]
        identity_text = link.call("read", path=f"{place}/identity.json")["text"]
    finally:
        link.close()
    if yaml_text is None or identity_text is None:
        raise UserError(f"{link.name} has no cluster in {place}: was `mrstream cluster up` run?")
    joined = read_config(yaml_text, f"{link.name}:{place}/cluster.yaml")
    secret = state.Secret.from_text(identity_text, f"{link.name}:{place}/identity.json")
    state.write_private(state.cluster_file(joined.name), yaml_text)
    state.write_private(state.identity_file(joined.name), secret.to_text())
    state.make_current(joined.name)
    return joined.name


def _host(target: str, directory: str) -> HostConfig:
    user, _, address = target.rpartition("@")
    return HostConfig(name=address, address=address, user=user or None, dir=directory)


def _stranger(target: str, directory: str) -> ClusterConfig:
    """A stand-in until the real file is here; only its host matters."""
    host = _host(target, directory)
    return ClusterConfig(name="unknown", master=host.name, hosts=(host,))


def _find(link: HostLink, directory: str, name: str | None) -> str:
    """Return the directory of the one cluster there (or the one of that name)."""
    found: dict[str, str] = {}
    for cluster in link.call("names", path=directory)["names"]:
        for host in link.call("names", path=f"{directory}/{cluster}")["names"]:
            place = os.path.join(directory, cluster, host)
            if link.call("have", paths=[f"{place}/identity.json"])["paths"]:
                found[cluster] = place
    if name is not None and name in found:
        return found[name]
    if name is None and len(found) == 1:
        return next(iter(found.values()))
    if not found:
        raise UserError(
            f"{link.name} has no cluster in {directory}: if its cluster.yaml says another `dir`, "
            "name that by --dir, or the file by -f"
        )
    raise UserError(
        f"{link.name} has these clusters in {directory}: {', '.join(found)}; say which by --name"
    )
