"""One plain-text picture of hosts, jobs and chunks, for scripts and for mail."""

from __future__ import annotations

from mapreduce.snapshot import HostRow, JobRow
from view.picture import Picture, StorageRow
from view.words import natural, percent, size, span


def plain_picture(picture: Picture, now_s: float, job_id: str = "") -> str:
    """Give the picture as lines without colour, each table with its titles; of all jobs or one."""
    jobs = [job for job in picture.jobs if job_id in ("", job.key)]
    workers = {row.key: row for row in picture.hosts}
    servers = {row.host: row for row in picture.storage.servers}
    names = sorted({**workers, **servers}, key=natural)
    counts = picture.storage.counts
    parts = [
        f"Cluster: {picture.cluster}",
        "",
        _table(
            ("HOST", "STATE", "SLOTS", "LOAD", "DISK", "CHUNKS", "HEARD"),
            [_host(name, workers.get(name), servers.get(name), now_s) for name in names],
        ),
        "",
        _table(
            ("JOB", "STATE", "MAP", "SHUFFLE", "REDUCE", "TIME", "LEFT", "FAILED", "NAME"),
            [_job(job, now_s) for job in sorted(jobs, key=lambda job: job.key)],
        ),
        "",
        f"Chunks: {counts.total}",
        f"Under-replicated chunks: {counts.under_replicated}",
        f"Missing chunks: {counts.missing}",
        f"Corrupt chunks: {counts.corrupt}",
        f"Repairing chunks: {counts.repairing}",
    ]
    return "\n".join(parts) + "\n"


def _host(
    name: str, host: HostRow | None, server: StorageRow | None, now_s: float
) -> tuple[str, ...]:
    heard_at_s = max(host.heard_at_s if host else 0.0, server.heard_at_s if server else 0.0)
    return (
        name,
        host.state if host else server.state if server else "-",
        f"{host.slots_used}/{host.slots}" if host else "-",
        f"{host.load:.1f}" if host else "-",
        f"{size(server.used_bytes)}/{size(server.capacity_bytes)}" if server else "-",
        str(server.chunks) if server else "-",
        span(max(0.0, now_s - heard_at_s)),
    )


def _job(job: JobRow, now_s: float) -> tuple[str, ...]:
    return (
        job.key,
        job.state,
        percent(job.map_fraction).strip(),
        percent(job.shuffle_fraction).strip() if job.reduces else "-",
        percent(job.reduce_fraction).strip() if job.reduces else "-",
        span((job.finished_at_s or now_s) - job.submitted_at_s),
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
