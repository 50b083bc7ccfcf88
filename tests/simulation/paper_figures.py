# ruff: noqa: E501 - the page is written here as it shall look
"""Draw the paper's Figures 2 and 3 from the simulator, and write docs/simulation.md.

Run by `python tests/simulation --figures`. The drawings are plain SVG, made here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mrstream.mapreduce.scheduler.events import JobSettings
from mrstream.mapreduce.simulation import (
    MB,
    ClusterPlan,
    Outcome,
    Sample,
    SimulatedCluster,
    Workload,
)

DOCS = Path(__file__).parent.parent.parent / "docs"
SEEDS = (1, 2, 3, 4)
PAPER = ClusterPlan(hosts=1746)
SORT = Workload(maps=15_000, reduces=4_000)
GREP = Workload(maps=15_000, reduces=1, shuffled_share=1e-5, map_speed=3.6)
NO_BACKUPS = JobSettings(backup_maps=False, backup_reduces=False)
GB = 1e9
PLOT_WIDTH, PLOT_HEIGHT, MARGIN = 260, 110, 34


def write() -> None:
    """Simulate everything and write the page with its drawings."""
    images = DOCS / "images"
    images.mkdir(parents=True, exist_ok=True)
    runs = [_three(seed) for seed in SEEDS]
    grep = SimulatedCluster(PAPER, GREP, SEEDS[0]).run()
    (images / "simulated-grep.svg").write_text(_grep_figure(grep))
    (images / "simulated-sort.svg").write_text(_sort_figure(runs[1]))
    (DOCS / "simulation.md").write_text(_page(runs, grep))


def _three(seed: int) -> tuple[Outcome, Outcome, Outcome]:
    return (
        SimulatedCluster(PAPER, SORT, seed).run(),
        SimulatedCluster(PAPER, replace(SORT, settings=NO_BACKUPS), seed).run(),
        SimulatedCluster(replace(PAPER, kill_workers=200, kill_at_s=300.0), SORT, seed).run(),
    )


# --- the page -------------------------------------------------------------------------


def _page(runs: Sequence[tuple[Outcome, Outcome, Outcome]], grep: Outcome) -> str:
    rows = "\n".join(_seed_row(seed, run) for seed, run in zip(SEEDS, runs, strict=True))
    scale = "\n".join(_scale_row(hosts) for hosts in (10, 100, 500, 2_000))
    quick, slow, slow_off = (
        _one_slow(slow_map_index=index, backups=backups)
        for index, backups in ((None, True), (1_490, True), (1_490, False))
    )
    return f"""# The paper's cluster, simulated

The scheduler of a real job (`mapreduce/scheduler/`) is a pure function from events to commands. Here the
same object runs against simulated workers (`mapreduce/simulation.py`) at the size of the MapReduce paper's
section 5: 1,746 workers with two map slots and one reduce slot each, three replicas of each split, M = 15,000,
R = 4,000. The rates of disks and network are chosen so that an undisturbed sort takes about as long as
the paper's. The ratios are the scheduler's doing. Written by `python tests/simulation --figures`;
`tests/simulation/test_scheduler_at_scale.py` checks the bounds.

What is modelled: task times with a log-normal spread; hosts that turn three times slower at a random moment;
a shuffle in which all running reduces share the switch (a fluid, not single fetches); progress reports every
10 s; the master's time for each event. What is not: the cost of GFS, of program distribution, of disk seeks.

## Sort: normal, without backup tasks, with 200 workers killed

| seed | normal | no backups | ratio | 200 killed | ratio | maps beside their data | backups started | that won | extra work |
|---|---|---|---|---|---|---|---|---|---|
{rows}
| *paper* | *891 s* | *1283 s* | *1.44* | *933 s* | *1.05* | *"most"* | | | *"a few percent"* |

![Input, shuffle and output rates over time for three executions of the sort](images/simulated-sort.svg)

As in the paper's Figure 3: (a) normal, (b) backup tasks off, with a long tail in which almost nothing is
written, (c) 200 workers killed after 300 s, with a negative input rate when finished maps disappear.

## Grep

{grep.elapsed_s:.0f} s in all, of which workers take the first {PAPER.start_up_s:.0f} s to arrive one by one; \
{100 * grep.totals.host_local_maps / grep.totals.launched_maps:.0f} % of the maps read from their own disk; \
peak {max(sample.read for sample in grep.samples) / GB:.0f} GB/s (paper: over 30 GB/s, 150 s with a minute of start-up).

![Input rate over time for the grep](images/simulated-grep.svg)

## One task ten times slower

100 hosts, 1,500 maps: {quick.elapsed_s:.0f} s; with one map ten times slower {slow.elapsed_s:.0f} s \
({slow.elapsed_s / quick.elapsed_s:.2f}×), without backup tasks {slow_off.elapsed_s:.0f} s \
({slow_off.elapsed_s / quick.elapsed_s:.2f}×).

## From 10 to 2,000 hosts

The same work for each host (16 maps, 16 reduces), on ever more hosts; linear means that time stays the same.

| hosts | tasks | elapsed |
|---|---|---|
{scale}
"""


def _seed_row(seed: int, run: tuple[Outcome, Outcome, Outcome]) -> str:
    normal, off, killed = run
    totals = normal.totals
    return (
        f"| {seed} | {normal.elapsed_s:.0f} s | {off.elapsed_s:.0f} s"
        f" | {off.elapsed_s / normal.elapsed_s:.2f} | {killed.elapsed_s:.0f} s"
        f" | {killed.elapsed_s / normal.elapsed_s:.2f}"
        f" | {100 * totals.host_local_maps / totals.launched_maps:.1f} %"
        f" | {totals.backup_maps + totals.backup_reduces} | {totals.backups_that_won}"
        f" | {100 * totals.backup_wasted_s / totals.useful_s:.1f} % |"
    )


def _scale_row(hosts: int) -> str:
    plan = ClusterPlan(
        hosts,
        start_up_s=0.0,
        slow_hosts_share=0.0,
        noise=0.1,
        switch_bytes_per_s=4 * MB * hosts,
        progress_interval_s=30,
    )
    seeds = range(5) if hosts < 200 else range(1)
    times = [
        SimulatedCluster(plan, Workload(16 * hosts, 16 * hosts), seed).run().elapsed_s
        for seed in seeds
    ]
    return f"| {hosts:,} | {32 * hosts:,} | {sum(times) / len(times):.0f} s |"


def _one_slow(*, slow_map_index: int | None, backups: bool) -> Outcome:
    plan = ClusterPlan(hosts=100, slow_hosts_share=0.0, start_up_s=0.0)
    settings = JobSettings(backup_maps=backups)
    work = Workload(1_500, 0, slow_map_index=slow_map_index, settings=settings)
    return SimulatedCluster(plan, work, 2).run()


# --- the drawings -----------------------------------------------------------------------


def _sort_figure(run: tuple[Outcome, Outcome, Outcome]) -> str:
    titles = ("(a) normal execution", "(b) no backup tasks", "(c) 200 workers killed")
    end_s = max(outcome.elapsed_s for outcome in run)
    parts = []
    for column, (title, outcome) in enumerate(zip(titles, run, strict=True)):
        left = column * (PLOT_WIDTH + MARGIN) + MARGIN
        parts.append(_text(left + PLOT_WIDTH / 2, 14, title, anchor="middle"))
        for row, name in enumerate(("read", "shuffled", "written")):
            top = 24 + row * (PLOT_HEIGHT + MARGIN)
            label = f"{('input', 'shuffle', 'output')[row]} (GB/s)" if column == 0 else ""
            parts.append(
                _plot(outcome.samples, name, left, top, end_s, (16.0, 8.0, 4.0)[row], label)
            )
    width = 3 * (PLOT_WIDTH + MARGIN) + MARGIN
    return _svg(width, 24 + 3 * (PLOT_HEIGHT + MARGIN), parts)


def _grep_figure(outcome: Outcome) -> str:
    plot = _plot(outcome.samples, "read", MARGIN, 24, outcome.elapsed_s, 35.0, "input (GB/s)")
    return _svg(PLOT_WIDTH + 2 * MARGIN, PLOT_HEIGHT + 24 + MARGIN, [plot])


def _plot(
    samples: list[Sample],
    name: str,
    left: float,
    top: float,
    end_s: float,
    gb_max: float,
    label: str,
) -> str:
    low = -0.15 * gb_max if name == "read" else 0.0

    def height(rate: float) -> float:
        value = min(gb_max, max(low, rate / GB))
        return top + PLOT_HEIGHT * (gb_max - value) / (gb_max - low)

    points = " ".join(
        f"{left + PLOT_WIDTH * sample.at_s / end_s:.1f},{height(getattr(sample, name)):.1f}"
        for sample in samples
    )
    zero = height(0.0)
    marks = [
        f'<line x1="{left}" y1="{zero:.1f}" x2="{left + PLOT_WIDTH}" y2="{zero:.1f}" stroke="#999"/>',
        f'<line x1="{left}" y1="{top}" x2="{left}" y2="{top + PLOT_HEIGHT}" stroke="#999"/>',
        f'<polyline fill="none" stroke="#2563a8" stroke-width="1.2" points="{points}"/>',
        _text(left - 4, top + 8, f"{gb_max:g}", anchor="end"),
        _text(left - 4, zero + 4, "0", anchor="end"),
        _text(left + 4, top + 8, label),
    ]
    marks += [
        _text(left + PLOT_WIDTH * at_s / end_s, top + PLOT_HEIGHT + 14, str(at_s), anchor="middle")
        for at_s in range(0, int(end_s) + 1, 500 if end_s > 300 else 20)
    ]
    return "\n".join(marks)


def _text(x: float, y: float, text: str, *, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text}</text>'


def _svg(width: float, height: float, parts: list[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}"'
        f' width="{width:g}" height="{height:g}" font-family="sans-serif" font-size="10">\n'
        f'<rect width="{width:g}" height="{height:g}" fill="white"/>\n' + "\n".join(parts)
    ) + "\n</svg>\n"
