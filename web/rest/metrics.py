"""`/metrics`: the picture in Prometheus's words. `prometheus_client` writes the text; what is told
is computed when it is asked for, and nothing is kept.

No path, user, key or attempt is ever a label: what strangers can invent would fill the memory of
whoever collects. Jobs are, while they run, at most `JOBS_MAX`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric

from mrstream.mapreduce.snapshot import JobRow
from mrstream.view.picture import Masters, Picture
from mrstream.web.http.figures import SECONDS
from mrstream.web.http.figures import Figures as GatewayFigures

JOBS_MAX = 50
CONTENT_TYPE = CONTENT_TYPE_LATEST
_JOB_STATES = ("waiting", "running", "succeeded", "failed", "killed")
MasterFigures = Sequence[tuple[str, str, dict[str, float]]]


def text(
    picture: Picture, leading: Masters, masters: MasterFigures, gateway: GatewayFigures | None
) -> bytes:
    """Return the page that a Prometheus collects."""
    families = [*_cluster(picture, leading), *_jobs(picture), *_hosts(picture)]
    families += [*_storage(picture), *_masters(masters)]
    if gateway is not None:
        families += _gateway(gateway)

    class Once(CollectorRegistry):
        """What `generate_latest` asks: these families, and no registry of the process."""

        def collect(self) -> Iterator[Metric]:
            yield from families

    return generate_latest(Once())


def _gauge(name: str, words: str, labels: Iterable[str] = ()) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"mrstream_{name}", words, labels=list(labels))


def _counter(name: str, words: str, labels: Iterable[str] = ()) -> CounterMetricFamily:
    return CounterMetricFamily(f"mrstream_{name}", words, labels=list(labels))


def _cluster(picture: Picture, leading: Masters) -> Iterator[Metric]:
    up = _gauge("up", "1 while a daemon is heard of", ("role", "host"))
    answers = 0.0 if picture.lost_reason else 1.0
    up.add_metric(["dfs.master", leading.dfs], answers)
    up.add_metric(["mapreduce.master", leading.jobs], answers)
    for host in picture.hosts:
        up.add_metric(["mapreduce.worker", host.key], float(host.state != "lost"))
    for server in picture.storage.servers:
        up.add_metric(["dfs.chunkserver", server.host], float(server.state != "lost"))
    yield up


def _jobs(picture: Picture) -> Iterator[Metric]:
    jobs = list(picture.jobs)
    states = _gauge("jobs", "Jobs that the master shows", ("state",))
    count = Counter(job.state for job in jobs)
    for state in _JOB_STATES:
        states.add_metric([state], count[state])
    yield states

    running = [job for job in jobs if job.state == "running"]
    running = sorted(running, key=lambda job: (job.submitted_at_s, job.key))[-JOBS_MAX:]
    progress = _gauge("job_progress_ratio", "How far a phase of a job is", ("job", "phase"))
    moved = _gauge("job_bytes", "Bytes that a running job has moved", ("job", "kind"))
    for job in running:
        progress.add_metric([job.key, "map"], job.map_fraction)
        if job.reduces:
            progress.add_metric([job.key, "shuffle"], job.shuffle_fraction)
            progress.add_metric([job.key, "reduce"], job.reduce_fraction)
        moved.add_metric([job.key, "input"], job.input_bytes)
        moved.add_metric([job.key, "shuffle"], job.shuffle_bytes)
        moved.add_metric([job.key, "output"], job.output_bytes)
    yield from (progress, moved, _tasks(running))


def _tasks(running: Sequence[JobRow]) -> Metric:
    tasks = _gauge("tasks", "Tasks of running jobs", ("kind", "state"))
    sums = {
        "map": [(job.maps, job.maps_done, job.maps_running) for job in running],
        "reduce": [(job.reduces, job.reduces_done, job.reduces_running) for job in running],
    }
    for kind, rows in sums.items():
        total, done, active = (sum(row[at] for row in rows) for at in range(3))
        for state, number in (("done", done), ("running", active), ("idle", total - done - active)):
            tasks.add_metric([kind, state], max(0, number))
    return tasks


def _hosts(picture: Picture) -> Iterator[Metric]:
    slots = _gauge("slots", "Slots of workers", ("host", "state"))
    load = _gauge("host_load", "Load of a host", ("host",))
    memory = _gauge("host_memory_bytes", "Memory of a host", ("host", "state"))
    disks = _gauge("disk_bytes", "Room on a disk of a host", ("host", "disk", "state"))
    for host in picture.hosts:
        slots.add_metric([host.key, "used"], host.slots_used)
        slots.add_metric([host.key, "free"], max(0, host.slots - host.slots_used))
        load.add_metric([host.key], host.load)
        memory.add_metric([host.key, "used"], host.memory_used_bytes)
        memory.add_metric([host.key, "total"], host.memory_total_bytes)
        for disk in host.disks:
            disks.add_metric([host.key, disk.path, "used"], disk.used_bytes)
            disks.add_metric([host.key, disk.path, "total"], disk.capacity_bytes)
    yield from (slots, load, memory, disks)


def _storage(picture: Picture) -> Iterator[Metric]:
    counts = picture.storage.counts
    files = _gauge("dfs_files", "Files of the dfs")
    files.add_metric([], counts.files)
    chunks = _gauge("dfs_chunks", "Chunks of the dfs", ("state",))
    for state, number in (
        ("total", counts.total),
        ("under_replicated", counts.under_replicated),
        ("missing", counts.missing),
        ("corrupt", counts.corrupt),
        ("repairing", counts.repairing),
    ):
        chunks.add_metric([state], number)
    room = _gauge("dfs_bytes", "Room of a chunkserver", ("host", "state"))
    for server in picture.storage.servers:
        room.add_metric([server.host, "used"], server.used_bytes)
        room.add_metric([server.host, "total"], server.capacity_bytes)
    yield from (files, chunks, room)


def _masters(masters: MasterFigures) -> Iterator[Metric]:
    failed = _counter("attempts_failed", "Attempts that failed since the job master's start")
    daemon = _gauge("daemon", "What a master counts of itself", ("role", "host", "name"))
    for role, host, figures in masters:
        for name, value in sorted(figures.items()):
            daemon.add_metric([role, host, name], value)
        if "attempts_failed" in figures:
            failed.add_metric([], figures["attempts_failed"])
    yield from (failed, daemon)


def _gateway(figures: GatewayFigures) -> Iterator[Metric]:
    requests = _counter("gateway_requests", "Requests that ended", ("face", "op", "class"))
    for (face, operation, kind), number in sorted(figures.requests.items()):
        requests.add_metric([face, operation, kind], number)
    moved = _counter("gateway_bytes", "Bytes of bodies", ("face", "direction"))
    for (face, direction), number in sorted(figures.bytes.items()):
        moved.add_metric([face, direction], number)
    seconds = HistogramMetricFamily(
        "mrstream_gateway_seconds", "How long requests took", labels=["face"]
    )
    for face, buckets in sorted(figures.seconds.items()):
        ends = [*(f"{end:g}" for end in SECONDS), "+Inf"]
        sums = [float(sum(buckets[: at + 1])) for at in range(len(buckets))]
        told = list(zip(ends, sums, strict=True))
        seconds.add_metric([face], told, figures.seconds_sum.get(face, 0.0))
    streams = _gauge("gateway_streams", "Bodies on their way now", ("direction",))
    streams.add_metric(["out"], figures.reading)
    streams.add_metric(["in"], figures.writing)
    refused = _counter("gateway_refused", "Requests that were refused", ("reason",))
    for reason, number in sorted(figures.refused.items()):
        refused.add_metric([reason], number)
    yield from (requests, moved, seconds, streams, refused)
