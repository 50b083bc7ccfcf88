"""`mrstream web` as a process: the link lets one in, an interrupt ends it (web/local.py)."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from http.cookiejar import CookieJar

from mrstream.web.cli import main


def test_the_link_that_is_printed_opens_the_pages_and_an_interrupt_ends_them() -> None:
    script = "import sys; from mrstream.streaming.cli import main; sys.exit(main())"

    with subprocess.Popen(
        [sys.executable, "-P", "-c", script, "web", "--demo", "--read-only"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:\d+/enter\?link=\S+", line)
            assert found is not None, line
            browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
            with browser.open(found[0], timeout=60) as page:
                text = page.read().decode()
            assert "sort of 10^10 records" in text and "read-only" in text
            try:
                urllib.request.urlopen(found[0], timeout=60)
                raise AssertionError("the link worked twice")
            except urllib.error.HTTPError as error:
                assert error.code == 403
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_a_port_that_is_taken_is_told_in_one_line(capsys: object) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        status = main(["--demo", "--port", str(port)])

    out = capsys.readouterr()  # type: ignore[attr-defined]
    assert status == 1
    assert f"port {port} of 127.0.0.1 cannot be used" in out.err and out.err.count("\n") == 1


def test_a_port_that_is_none_is_refused(capsys: object) -> None:
    assert main(["--demo", "--port", "70000"]) == 1
    assert "0 to 65535" in capsys.readouterr().err  # type: ignore[attr-defined]
