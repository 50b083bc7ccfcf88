"""What every test run shares: the tree on the path, and no skipped test where the gate runs."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent.parent))

# The machine may be busy with other things: how long one example takes proves nothing.
settings.register_profile("house", deadline=None, print_blob=True)
settings.load_profile("house")

_skipped: list[str] = []


def pytest_configure() -> None:
    """A shell that starts something in the background lets it ignore Ctrl-C, and so all that it
    starts; tests press Ctrl-C. Programs of tests are run by the Python that runs the tests, as in
    an environment that was activated: where `python3` is the script of a version manager, each
    start of it costs four times as much."""
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-skips", action="store_true", help="a skipped test fails the run")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped:
        _skipped.append(report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.skipped:
        _skipped.append(report.nodeid)


@pytest.hookimpl(hookwrapper=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Turn a green run with skips into a red one: a test that did not run proved nothing."""
    yield
    if session.config.getoption("--no-skips") and _skipped and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _skipped and terminalreporter.config.getoption("--no-skips"):
        terminalreporter.section("skipped tests fail this run", red=True)
        for name in _skipped:
            terminalreporter.line(name)
