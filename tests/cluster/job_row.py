"""Jobs in a row: `python tests/cluster/job_row.py --jobs 1000`.

Small jobs, one after the other, on three hosts of this machine; then no daemon may have more open
descriptors than after the first tenth of them, nor much more memory. Prints both of every daemon.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from tests.cluster.job_faults import ROLES
from tests.cluster.local import LocalCluster

DESCRIPTORS_MORE_MAX = 4
"""A heartbeat or a report may be underway."""
BYTES_A_JOB_MAX = 20_000
"""A master keeps the reports of the last jobs."""
BYTES_MORE_MAX = 12 << 20
SETTLED_S_MAX = 60.0
Figures = dict[str, tuple[int, int]]


def figures(cluster: LocalCluster) -> Figures:
    """Give descriptors and resident bytes of every daemon."""
    found = {}
    for role in ROLES:
        for host in cluster.hosts_of(role):
            place = Path(f"/proc/{cluster.pid(role, host)}")
            resident = int((place / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            found[f"{role} {host}"] = (len(os.listdir(place / "fd")), resident)
    return found


def growth(before: Figures, after: Figures, jobs: int) -> list[str]:
    """Say which daemons have more than they should."""
    found = []
    for name, (descriptors, resident) in after.items():
        if descriptors > before[name][0] + DESCRIPTORS_MORE_MAX:
            found.append(f"{name}: {before[name][0]} descriptors became {descriptors}")
        if resident > before[name][1] + BYTES_MORE_MAX + BYTES_A_JOB_MAX * jobs:
            found.append(f"{name}: {before[name][1]:,} resident bytes became {resident:,}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1000)
    count = parser.parse_args().jobs
    with (
        tempfile.TemporaryDirectory(prefix="job-row-") as place,
        LocalCluster(Path(place), 3, roles=ROLES) as cluster,
    ):
        (cluster.directory / "words").write_text("to be or not to be\n" * 20)
        assert cluster.mrstream("dfs", "-put", "words", "/words").returncode == 0
        before: Figures = {}
        began_s = time.monotonic()
        for number in range(1, count + 1):
            words = ("-input", "/words", "-output", "/out", "-overwrite", "-quiet")
            job = cluster.mrstream(*words, "-mapper", "tr ' ' '\\n'", "-reducer", "uniq -c")
            assert job.returncode == 0, job.stderr.decode()
            if number == max(1, count // 10):
                before = figures(cluster)
            if number % 100 == 0:
                print(f"{number} of {count} jobs", file=sys.stderr, flush=True)
        took_s = time.monotonic() - began_s
        until_s = time.monotonic() + SETTLED_S_MAX
        while growth(before, figures(cluster), count) and time.monotonic() < until_s:
            time.sleep(1.0)  # connections of the last jobs are closed when they were idle
        after = figures(cluster)
    for name, (descriptors, resident) in after.items():
        first, first_bytes = before[name]
        print(f"{name}: descriptors {first} → {descriptors}, ", end="")
        print(f"memory {first_bytes / 1e6:.1f} → {resident / 1e6:.1f} MB")
    print(f"{count} jobs in {took_s:.0f} s")
    found = growth(before, after, count)
    print("\n".join(found) or "flat")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
