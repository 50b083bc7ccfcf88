"""One plain-text picture of masters, hosts, jobs and chunks, for scripts and for mail."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict

from mrstream.cluster.leader.group_view import GroupView
from mrstream.mapreduce.snapshot import JobRow, by_name
from mrstream.view.hosts import Host, listed
from mrstream.view.jobs import elapsed_s
from mrstream.view.picture import Picture
from mrstream.view.words import percent, size, span


def plain_picture(picture: Picture, now_s: float, job_id: str = "") -> str:
    """Return the picture as lines without colour, each table with its titles; of all jobs or
    one."""
    jobs = [job for job in picture.jobs if job_id in ("", job.key)]
    counts = picture.storage.counts
    parts = [
        f"Cluster: {picture.cluster}",
        "",
        _table(
            ("HOST", "STATE", "SLOTS", "LOAD", "DISK", "CHUNKS", "HEARD"),
            [_host(host, now_s) for host in listed(picture)],
        ),
        "",
        _table(
            ("JOB", "STATE", "MAP", "SHUFFLE", "REDUCE", "TIME", "LEFT", "FAILED", "NAME"),
            [_job(job, now_s) for job in sorted(jobs, key=lambda job: job.key)],
        ),
        "",
        _table(("MASTER", "HOST", "STATE", "FOR"), _masters(picture.groups, now_s)),
        "",
        f"Chunks: {counts.total}",
        f"Under-replicated chunks: {counts.under_replicated}",
        f"Missing chunks: {counts.missing}",
        f"Corrupt chunks: {counts.corrupt}",
        f"Repairing chunks: {counts.repairing}",
    ]
    in_step, wanted = picture.storage.log_copies
    parts += troubles(picture)
    if wanted:  # a master that is alone has none
        parts.append(f"Copies of the master's log in step: {in_step} of {wanted}")
    return "\n".join(parts) + "\n"


def json_picture(picture: Picture, now_s: float, job_id: str = "") -> str:
    """Return the same for programs: the rows by the names of their fields, as the pages' API has
    them."""
    document = {
        "cluster": picture.cluster,
        "at_s": now_s,
        "workers": [by_name(row) for row in picture.hosts],
        "chunkservers": [asdict(server) for server in picture.storage.servers],
        "jobs": [by_name(job) for job in picture.jobs if job_id in ("", job.key)],
        "chunks": asdict(picture.storage.counts),
        "groups": {name: view.document() for name, view in picture.groups.items()},
        "log_copies": dict(zip(("in_step", "wanted"), picture.storage.log_copies, strict=True)),
    }
    return json.dumps(document, indent=2) + "\n"


def troubles(picture: Picture) -> list[str]:
    """Return a line for each group of masters that is not well."""
    return [f"Trouble: {said}" for view in picture.groups.values() if (said := view.trouble())]


def _masters(groups: Mapping[str, GroupView], now_s: float) -> list[tuple[str, ...]]:
    return [
        (
            name,
            host,
            view.badge(host),
            span(max(0.0, now_s - view.since_s)) if host == view.leader and view.since_s else "-",
        )
        for name, view in groups.items()
        for host in view.members
    ]


def _host(host: Host, now_s: float) -> tuple[str, ...]:
    worker, server = host.worker, host.server
    return (
        host.name,
        worker.state if worker else server.state if server else "-",
        f"{worker.slots_used}/{worker.slots}" if worker else "-",
        f"{worker.load:.1f}" if worker else "-",
        f"{size(server.used_bytes)}/{size(server.capacity_bytes)}" if server else "-",
        str(server.chunks) if server else "-",
        span(host.silence_s(now_s)),
    )


def _job(job: JobRow, now_s: float) -> tuple[str, ...]:
    return (
        job.key,
        job.state,
        percent(job.map_fraction).strip(),
        percent(job.shuffle_fraction).strip() if job.reduces else "-",
        percent(job.reduce_fraction).strip() if job.reduces else "-",
        span(elapsed_s(job, now_s)),
        span(job.seconds_left).replace("–", "-"),
        str(job.attempts_failed),
        job.name,
    )


def _table(titles: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    widths = [max(len(row[i]) for row in [titles, *rows]) for i in range(len(titles))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [titles, *rows]
    )
