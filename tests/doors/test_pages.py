"""Pages, history and metrics at running gateways: links and keys, and what they open."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import requests

from tests.cluster.local import wait_for
from tests.doors.gateway_cluster import GatewayCluster, Secret


def browser(doors: GatewayCluster) -> requests.Session:
    return doors.session(None)


def log_in(doors: GatewayCluster, key: Secret, host: str = "h1") -> requests.Session:
    """A browser in which a key was typed."""
    made = browser(doors)
    made.headers["Origin"] = doors.base(host)
    entered = made.post(
        f"{doors.base(host)}/login", {"id": key.id, "secret": key.secret}, allow_redirects=False
    )
    assert entered.status_code == 303, entered.text
    return made


def token(tab: requests.Session, address: str) -> str:
    found = re.search(r'name="token" value="([0-9a-f]+)"', tab.get(address).text)
    assert found is not None
    return found[1]


def test_a_link_opens_the_pages_once_on_all_gateways_together(
    doors: GatewayCluster, key: Secret
) -> None:
    printed = doors.mrstream("web", "--on", "h1")
    assert printed.returncode == 0, printed.stderr
    link = printed.stdout.decode().strip()
    tab = browser(doors)

    first = tab.get(link, allow_redirects=False)
    keys = tab.get(f"{doors.base()}/keys").text
    assert ">all<" in keys and key.id not in keys and key.secret not in keys
    shown = tab.get(f"{doors.base()}/about")
    again = browser(doors).get(link)
    elsewhere = browser(doors).get(link.replace(doors.base("h1"), doors.base("h2")))

    assert (first.status_code, first.headers["location"]) == (303, "/")
    cookie = first.headers["set-cookie"]
    assert cookie.startswith("__Host-mrstream=") and "Secure" in cookie and "HttpOnly" in cookie
    assert shown.status_code == 200 and "look and change" in shown.text
    assert (again.status_code, elsewhere.status_code) == (403, 403)


def test_a_link_to_a_host_without_pages_is_refused_in_one_line(doors: GatewayCluster) -> None:
    printed = doors.mrstream("web", "--on", "h9")

    assert printed.returncode == 1
    assert b"there are no pages on h9; gateways of this cluster: h1, h2" in printed.stderr


def test_a_key_opens_its_own_tree_and_no_more(doors: GatewayCluster, key: Secret) -> None:
    """G3. What is made belongs to the user of the key; a session is good on every gateway."""
    everything = log_in(doors, key)
    form = token(everything, f"{doors.base()}/act/mkdir?into=/&value=pages")
    made = everything.post(
        f"{doors.base()}/act/mkdir", {"into": "/", "value": "pages", "token": form}
    )
    assert "made /pages" in made.text
    tab = log_in(doors, doors.key("pages-bob", "--user", "bob", "--path", "/pages"))

    form = token(tab, f"{doors.base()}/act/upload?into=/pages")
    sent = tab.post(
        f"{doors.base()}/upload/pages",
        data={"token": form},
        files={"file": ("<i>.txt", b"brought by bob\n")},
    )
    other = browser(doors)
    other.headers["Cookie"] = f"__Host-mrstream={tab.cookies['__Host-mrstream']}"
    listed = other.get(f"{doors.base('h2')}/files/pages")
    taken = other.get(f"{doors.base('h2')}/download/pages/%3Ci%3E.txt")

    assert "uploaded /pages/&lt;i&gt;.txt" in sent.text
    assert "&lt;i&gt;.txt" in listed.text and "bob" in listed.text and "<i>" not in listed.text
    assert taken.content == b"brought by bob\n"
    for closed in (
        "/files/", "/jobs", "/events", "/hosts", "/hosts/h1", "/keys", "/files/.mrstream",
        "/act/upload?into=/",
    ):  # fmt: skip
        assert tab.get(f"{doors.base()}{closed}").status_code == 403, closed
    log = doors.host_directory("h2") / "logs" / "web.gateway.audit.log"
    line = wait_for(lambda: _audited(log, "download"), 20, "the line of the download")
    assert (line["key"], line["user"], line["paths"]) == ("pages-bob", "bob", ["/pages/<i>.txt"])
    doors.mrstream("dfs", "-rm", "-r", "/pages")


def _audited(log: Path, operation: str) -> Any:
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return next((line for line in lines if line.get("operation") == operation), None)


def test_a_session_ends_with_its_key(doors: GatewayCluster) -> None:
    tab = log_in(doors, doors.key("pages-short"))
    assert tab.get(f"{doors.base()}/files/").status_code == 200

    doors.mrstream("key", "revoke", "pages-short")

    deadline_s = time.monotonic() + 30
    while tab.get(f"{doors.base()}/files/").status_code != 401:
        assert time.monotonic() < deadline_s


def test_a_wrong_secret_opens_nothing(doors: GatewayCluster, key: Secret) -> None:
    tab = browser(doors)
    tab.headers["Origin"] = doors.base()

    refused = tab.post(f"{doors.base()}/login", {"id": key.id, "secret": "guess"})
    foreign = tab.post(
        f"{doors.base()}/login",
        {"id": key.id, "secret": key.secret},
        headers={"Origin": "https://evil.example"},
    )

    assert (refused.status_code, foreign.status_code) == (403, 403)
    assert not tab.cookies
    assert tab.get(f"{doors.base()}/files/").status_code == 401


def test_a_cookie_of_pages_is_nothing_to_the_other_doors(
    doors: GatewayCluster, key: Secret
) -> None:
    tab = log_in(doors, key)

    for path in ("/webhdfs/v1/?op=LISTSTATUS", "/metrics", "/api/v1/storage"):
        assert tab.get(f"{doors.base()}{path}").status_code == 401


def test_metrics_and_snapshots_are_for_keys_to_everything(
    doors: GatewayCluster, key: Secret, session: requests.Session
) -> None:
    narrow = doors.session(doors.key("pages-narrow", "--path", "/data"))

    told = session.get(f"{doors.base()}/metrics")

    assert told.status_code == 200
    assert "mrstream_gateway_requests_total" in told.text and 'role="dfs.master"' in told.text
    assert session.get(f"{doors.base()}/ws/v1/history/info").json()["historyInfo"]["startedOn"] > 0
    for path in ("/metrics", "/api/v1/hosts", "/ws/v1/history/info"):
        assert narrow.get(f"{doors.base()}{path}").status_code == 403
        assert browser(doors).get(f"{doors.base()}{path}").status_code == 401
