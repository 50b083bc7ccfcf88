"""Run Hadoop's own contract tests against a gateway: `make interop` (Maven, Java, some minutes).

Starts a cluster here, runs the tests that the pom names through Hadoop's WebHDFS client, and
compares what failed with `expected.txt`: a new failure is one, and so is one that fails no more.
`--record` writes down what was said, for test_recorded.py.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent.parent))

from tests.doors.gateway_cluster import GatewayCluster  # noqa: E402
from tests.doors.recording import Recorder  # noqa: E402

TRUSTING = (
    "{hosts: [h1], tls: false, trusted: [127.0.0.0/8], trusted_writes: true, names: [localhost]}"
)
STRICT = "{hosts: [h1], tls: false, names: [localhost]}"
RECORDED = "Test*,!TestRootDirectory,!TestToken"
"""Not those that need all of a file system for themselves, or a token of that day. A body is passed
on when it is whole, so that what is being appended is seen later than its test expects."""
RESET = r"^DELETE /webhdfs/v1/(contract|FileSystemContractBaseTest)\?"
"""After each test all is as before it."""


def expected() -> dict[str, str]:
    """Test → why it fails, from the file."""
    lines = (HERE / "expected.txt").read_text().splitlines()
    pairs = [line.partition(": ") for line in lines if line and not line.startswith("#")]
    return {name: reason for name, _, reason in pairs}


def main() -> int:
    """Return 0 if the tests did as expected."""
    given = [word for word in sys.argv[1:] if word != "--record"]
    records = len(given) < len(sys.argv) - 1
    place = Path(tempfile.mkdtemp(prefix="mrstream-interop-"))
    try:
        project = place / "project"
        shutil.copytree(HERE, project)
        (place / "trusting").mkdir()
        (place / "strict").mkdir()
        with (
            GatewayCluster(place / "trusting", TRUSTING) as cluster,
            GatewayCluster(place / "strict", STRICT) as strict,
            Recorder(("127.0.0.1", cluster.port())) as recorder,
        ):
            port = recorder.port if records else cluster.port()
            words = {
                "url": f"webhdfs://localhost:{port}",
                "strict": f"webhdfs://127.0.0.1:{strict.port()}",
                "token": _token(strict),
            }
            options = [f"-Ddoor.{name}={value}" for name, value in words.items()]
            given += [f"-Dtest={RECORDED}"] if records else []
            subprocess.run(
                ["mvn", "-B", "-q", "test", *options, *given],
                cwd=project, env=cluster.environment, check=True,
            )  # fmt: skip
            if records:
                recorder.write("hadoop", RESET)
        return _judge(project / "target" / "surefire-reports", is_all=not given)
    finally:
        shutil.rmtree(place)


def _token(cluster: GatewayCluster) -> str:
    with cluster.session(cluster.key("token", "--user", "carol")) as session:
        url = f"http://127.0.0.1:{cluster.port()}/webhdfs/v1/?op=GETDELEGATIONTOKEN"
        return str(session.get(url).json()["Token"]["urlString"])


def _judge(reports: Path, is_all: bool) -> int:
    passed, skipped, failed = 0, 0, dict[str, str]()
    for path in sorted(reports.glob("TEST-*.xml")):
        for case in ElementTree.parse(path).iter("testcase"):
            name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
            wrong = case.find("failure") if case.find("failure") is not None else case.find("error")
            if wrong is not None:
                failed[name] = (wrong.get("message") or wrong.get("type") or "").split("\n")[0]
            elif case.find("skipped") is not None:
                skipped += 1
            else:
                passed += 1
    known = expected()
    new = sorted(set(failed) - set(known))
    gone = sorted(set(known) - set(failed)) if is_all else []
    print(f"{passed} passed, {skipped} do not apply, {len(failed)} failed ({len(known)} expected)")
    for name in new:
        print(f"NEW FAILURE {name}: {failed[name][:200]}")
    for name in gone:
        print(f"FAILS NO MORE {name}: take it out of expected.txt")
    return 1 if new or gone or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
