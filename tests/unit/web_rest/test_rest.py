"""History as Hadoop serves it, snapshots as JSON, metrics for a Prometheus (web/rest/)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from mrstream.view.picture import Masters
from mrstream.view.watch import Watch
from mrstream.web.http.figures import Figures
from mrstream.web.http.head import Refused
from mrstream.web.http.reply import Reply
from mrstream.web.http.request import Note, Request
from mrstream.web.http.server import Outcome
from mrstream.web.rest.door import HISTORY, Rest
from tests.support import tui_states
from tests.support.tui_states import JOB, NOW_S
from tests.unit.web.raw_http import Answer, Served

JOBS = f"{HISTORY}/mapreduce/jobs"
BAD = "job_1700000000_0005"
TASK = f"task_{BAD[4:]}_m_000003"
ATTEMPT = f"attempt_{BAD[4:]}_m_000003_0"


def figures() -> Figures:
    made = Figures()
    note = Note(face="webhdfs", operation="OPEN")
    made.note(Outcome(0.0, "1", "10.0.0.1", "GET", "", note, 200, 0, 4096, 0.2))
    made.note(Outcome(0.0, "2", "10.0.0.1", "GET", "", note, 403, 0, 0, 0.001))
    return made


async def check(request: Request) -> None:
    if request.headers.get("authorization") != "Basic good":
        raise Refused(401, "a key is needed")


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    rest = Rest(Watch(tui_states.failing()), check, figures(), started_at_s=12.0)

    async def handler(request: Request) -> Reply:
        return await rest(request)

    with Served(handler) as running:
        yield running


def ask(served: Served, target: str) -> Answer:
    return served.get(target, "Authorization: Basic good")


def told(served: Served, target: str) -> Any:
    answer = ask(served, target)
    assert answer.status == 200, answer.body
    assert answer.headers["content-type"] == "application/json"
    return json.loads(answer.body)


def test_nothing_is_told_without_a_proof_and_a_cookie_is_none(served: Served) -> None:
    for target in (JOBS, "/api/v1/jobs", "/metrics", f"{HISTORY}/info"):
        assert served.get(target).status == 401
        assert served.get(target, "Cookie: mrstream-1=anything").status == 401


def test_nothing_is_changed_here(served: Served) -> None:
    head = served.head("POST /api/v1/jobs HTTP/1.1", "Authorization: Basic good",
                       "Content-Length: 0", "Connection: close")  # fmt: skip

    assert served.ask(head).status == 405


# History --------------------------------------------------------------------------------


def test_the_server_says_what_it_is(served: Served) -> None:
    assert told(served, f"{HISTORY}/info")["historyInfo"]["startedOn"] == 12_000
    assert told(served, HISTORY) == told(served, f"{HISTORY}/info")


def test_jobs_are_listed_with_hadoops_names(served: Served) -> None:
    jobs = told(served, JOBS)["jobs"]["job"]

    assert [job["id"][-4:] for job in jobs] == ["0005", "0006", "0007", "0008"]
    assert [job["state"] for job in jobs] == ["FAILED", "SUCCEEDED", "RUNNING", "NEW"]
    assert jobs[0] == {
        "submitTime": 1699999700000, "startTime": 1699999700000, "finishTime": 1699999940000,
        "id": BAD, "name": "parse", "queue": "default", "user": "ann", "state": "FAILED",
        "mapsTotal": 200, "mapsCompleted": 60, "reducesTotal": 40, "reducesCompleted": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("state=SUCCEEDED", ["0006"]),
        ("user=bob", []),
        ("user=ann&limit=2", ["0007", "0008"]),
        ("limit=0", []),
        ("finishedTimeBegin=1699999940000", ["0005", "0006"]),
        ("finishedTimeEnd=1", ["0007", "0008"]),
        ("startedTimeBegin=1699999700001", []),
        ("startedTimeEnd=1699999700000&state=FAILED", ["0005"]),
        ("queue=other", []),
    ],
)
def test_the_list_is_cut_as_the_query_wants(served: Served, query: str, found: list[str]) -> None:
    jobs = told(served, f"{JOBS}?{query}")["jobs"]["job"]

    assert [job["id"][-4:] for job in jobs] == found


@pytest.mark.parametrize("query", ["limit=-1", "limit=x", "state=done", "startedTimeEnd=1.5"])
def test_a_query_that_means_nothing_is_refused(served: Served, query: str) -> None:
    answer = ask(served, f"{JOBS}?{query}")

    assert answer.status == 400
    assert json.loads(answer.body)["RemoteException"]["exception"] == "BadRequestException"


def test_one_job_with_its_attempts_counted(served: Served) -> None:
    job = told(served, f"{JOBS}/{BAD}")["job"]

    assert job["diagnostics"] == "map 3 failed four times"
    assert (job["failedMapAttempts"], job["successfulMapAttempts"]) == (1, 3)
    assert job["avgMapTime"] == 50_000
    assert job["uberized"] is False


def test_properties_and_counters_have_hadoops_shape(served: Served) -> None:
    conf = told(served, f"{JOBS}/{BAD}/conf")["conf"]["property"]
    counters = told(served, f"{JOBS}/{BAD}/counters")["jobCounters"]

    assert conf == [{"name": "mapreduce.job.reduces", "value": "40", "source": []}]
    assert counters["counterGroup"][1] == {
        "counterGroupName": "words",
        "counter": [{"name": "odd", "totalCounterValue": 3}],
    }
    assert told(served, f"{JOBS}/{BAD}/jobattempts")["jobAttempts"]["jobAttempt"][0]["id"] == 1


def test_tasks_and_their_attempts_have_hadoops_shape(served: Served) -> None:
    tasks = told(served, f"{JOBS}/{BAD}/tasks?type=m")["tasks"]["task"]
    task = told(served, f"{JOBS}/{BAD}/tasks/{TASK}")["task"]
    attempts = told(served, f"{JOBS}/{BAD}/tasks/{TASK}/attempts")["taskAttempts"]["taskAttempt"]
    attempt = told(served, f"{JOBS}/{BAD}/tasks/{TASK}/attempts/{ATTEMPT}")["taskAttempt"]
    read = told(served, f"{JOBS}/{BAD}/tasks/{TASK}/counters")["jobTaskCounters"]
    same = told(served, f"{JOBS}/{BAD}/tasks/{TASK}/attempts/{ATTEMPT}/counters")

    assert len(tasks) == 10 and told(served, f"{JOBS}/{BAD}/tasks?type=r")["tasks"]["task"] == []
    assert (task["state"], task["type"], task["successfulAttempt"]) == ("FAILED", "MAP", "")
    assert attempts == [attempt]
    assert attempt["diagnostics"].startswith("exit code 1")
    assert read["taskCounterGroup"][0]["counter"] == [{"name": "MAP_INPUT_RECORDS", "value": 1003}]
    assert same["jobTaskAttemptCounters"]["taskAttemptCounterGroup"] == read["taskCounterGroup"]


@pytest.mark.parametrize(
    "path", ["/job_1_0001", f"/{BAD}/tasks/task_1_0001_m_000000", f"/{BAD}/nothing",
             f"/{BAD}/tasks/{TASK}/attempts/attempt_1_0001_m_000000_0"],
)  # fmt: skip
def test_what_is_not_there_is_said_as_hadoop_says_it(served: Served, path: str) -> None:
    answer = ask(served, JOBS + path)

    assert answer.status == 404
    assert json.loads(answer.body)["RemoteException"]["exception"] == "NotFoundException"


# Snapshots ------------------------------------------------------------------------------


def test_the_snapshots_are_told_as_json(served: Served) -> None:
    jobs, hosts = told(served, "/api/v1/jobs"), told(served, "/api/v1/hosts")
    storage, job = told(served, "/api/v1/storage"), told(served, f"/api/v1/jobs/{JOB}")

    assert {each["key"] for each in jobs["jobs"]} >= {JOB, BAD}
    assert jobs["at_s"] == NOW_S and jobs["cluster"] == "demo"
    assert len(hosts["workers"]) == len(hosts["chunkservers"]) == 10
    assert hosts["workers"][0]["disks"][0]["path"] == "/data1"
    assert hosts["groups"]["dfs"]["leader"] == "h2"
    assert hosts["groups"]["lock"]["trouble"] == "lock: no quorum (1 of 3): changes are refused"
    assert storage["chunks"]["missing"] == 2
    assert len(job["rates"]) == 100 and job["counters"]["words"] == {"odd": 3}
    assert ask(served, "/api/v1/none").status == 404


# Metrics --------------------------------------------------------------------------------


def metrics_of(served: Served) -> dict[str, list[Any]]:
    answer = ask(served, "/metrics")
    assert answer.status == 200
    found = text_string_to_metric_families(answer.body.decode())
    return {sample.name: family.samples for family in found for sample in family.samples}


def test_what_a_prometheus_is_told(served: Served) -> None:
    text = ask(served, "/metrics").body.decode()

    for line in (
        'mrstream_up{host="h1",role="dfs.master"} 0.0',
        'mrstream_up{host="h3",role="dfs.master"} 1.0',
        'mrstream_up{host="h2",role="lock.master"} 1.0',
        'mrstream_group_epoch{role="dfs.master"} 8.0',
        'mrstream_group_leader{host="h2",role="dfs.master"} 1.0',
        'mrstream_group_leader{host="h2",role="lock.master"} 0.0',
        'mrstream_group_members{role="lock.master",state="answering"} 1.0',
        'mrstream_group_members{role="lock.master",state="needed"} 2.0',
        'mrstream_group_behind_seconds{host="h3",role="dfs.master"} 0.04',
        'mrstream_jobs{state="failed"} 1.0',
        f'mrstream_job_progress_ratio{{job="{JOB}",phase="map"}} 0.62',
        'mrstream_tasks{kind="map",state="done"} 124.0',
        "mrstream_attempts_failed_total 7.0",
        'mrstream_slots{host="h3",state="free"} 2.0',
        'mrstream_dfs_chunks{state="missing"} 2.0',
        'mrstream_daemon{host="h1",name="files",role="dfs.master"} 1200.0',
        'mrstream_gateway_requests_total{class="2xx",face="webhdfs",op="OPEN"} 1.0',
        'mrstream_gateway_seconds_bucket{face="webhdfs",le="0.5"} 2.0',
        'mrstream_gateway_seconds_bucket{face="webhdfs",le="+Inf"} 2.0',
        'mrstream_gateway_refused_total{reason="403"} 1.0',
    ):
        assert line in text, line


def test_every_name_on_the_dashboard_is_told(served: Served) -> None:
    dashboard = json.loads(
        (Path(__file__).parent.parent.parent.parent / "docs/grafana.json").read_text()
    )
    asked = {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"mrstream_\w+", target["expr"])
    }

    assert len(dashboard["panels"]) == 12
    assert asked <= set(metrics_of(served))


def test_a_hundred_hosts_and_many_jobs_are_few_series() -> None:
    from mrstream.web.rest.metrics import text

    state = tui_states.huge()
    for number in range(11, 101):
        state.hosts.drop(f"h{number + 100}")
    job = state.jobs.get(JOB)
    assert job is not None
    for number in range(300):
        state.jobs.put(msgspec.structs.replace(job, key=f"job_1_{number:04}"))
    with Watch(state).picture() as picture:
        lines = text(picture, Masters("h1", "h1"), state.figures(), figures()).decode().splitlines()

    series = [line for line in lines if not line.startswith("#")]
    assert len(series) <= 5000
    assert sum("mrstream_job_progress_ratio" in line for line in series) == 3 * 50
    labels = {name for line in series for name in re.findall(r'(\w+)="', line)}
    assert labels <= {"role", "host", "state", "job", "phase", "kind", "disk", "name", "face",
                      "op", "class", "direction", "reason", "le"}  # fmt: skip


def test_a_lost_master_is_a_figure_too() -> None:
    """Also where nothing is known of its group yet."""
    rest = Rest(Watch(replace(tui_states.lost(), led={})), check)

    text = bytes(rest._metrics().body).decode()  # type: ignore[arg-type]

    assert 'role="mapreduce.master"} 0.0' in text
