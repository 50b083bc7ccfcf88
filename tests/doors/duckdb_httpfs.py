"""DuckDB's httpfs against a gateway's S3 port: `make interop`.

The extension has to be of DuckDB's very version, so that both are installed in an environment of
their own. Tables are written and read over TLS. `--record` writes down what was said, for
test_recorded.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.doors.gateway_cluster import GatewayCluster
from tests.doors.s3_clients import client, endpoint, recorded

VERSION = "1.5.5"
JOURNEY = """
import os, duckdb, duckdb_extension_httpfs
from pathlib import Path

here = next(Path(duckdb_extension_httpfs.__file__).parent.rglob("httpfs.duckdb_extension"))
url, id, secret = (os.environ[name] for name in ("DOOR", "DOOR_ID", "DOOR_SECRET"))
is_tls, place = url.startswith("https:"), url.partition("://")[2]
db = duckdb.connect(config={"threads": "2"})
db.execute(f"LOAD '{here}'")
db.execute(f"SET ca_cert_file = '{os.environ['DOOR_CA']}'")
db.execute("SET enable_server_cert_verification = true")
db.execute(
    f"CREATE SECRET (TYPE s3, KEY_ID '{id}', SECRET '{secret}', ENDPOINT '{place}', "
    f"URL_STYLE 'path', REGION 'any', USE_SSL {is_tls})"
)
table = "SELECT i, i % 7 AS k, 'name ' || i AS name FROM range(200_000) t(i)"
db.execute(f"COPY ({table}) TO 's3://data/one.parquet' (FORMAT parquet)")
db.execute(f"COPY ({table}) TO 's3://data/in parts' (FORMAT parquet, PARTITION_BY k)")
db.execute("COPY (SELECT i, hash(i) AS h, hash(-i) AS g FROM range(900_000) t(i)) "
           "TO 's3://data/large.csv' (HEADER)")
whole = (200_000, 200_000 * 199_999 // 2)
for what in ("s3://data/one.parquet", "s3://data/in parts/*/*.parquet"):
    found = db.execute(f"SELECT count(*), sum(i)::BIGINT FROM '{what}'").fetchone()
    assert found == whole, (what, found)
found = db.execute("SELECT name FROM 's3://data/one.parquet' WHERE i = 123456").fetchone()
assert found == ("name 123456",), found
listed = db.execute("SELECT file FROM glob('s3://data/**') ORDER BY file").fetchall()
assert len(listed) == 9, listed
found = db.execute("SELECT count(*), max(i) FROM 's3://data/large.csv'").fetchone()
assert found == (900_000, 899_999), found
try:
    db.execute("SELECT * FROM 's3://data/none.parquet'").fetchall()
    raise SystemExit("a file that is not there was read")
except duckdb.Error as error:
    assert "404" in str(error) or "No files found" in str(error), error
"""


def main() -> int:
    """Run it; an assertion says what differs."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        python = _environment(place)
        if "--record" in sys.argv:
            with recorded(place, "duckdb") as (doors, url):
                journey(doors, python, url)
        else:
            with GatewayCluster(place) as doors:
                journey(doors, python, endpoint(doors))
    print("DuckDB: all as expected")
    return 0


def _environment(place: Path) -> str:
    subprocess.run([sys.executable, "-m", "venv", str(place / "env")], check=True)
    python = str(place / "env" / "bin" / "python")
    wanted = [f"duckdb=={VERSION}", f"duckdb-extension-httpfs=={VERSION}"]
    subprocess.run([python, "-m", "pip", "install", "-q", *wanted], check=True)
    return python


def journey(doors: GatewayCluster, python: str, url: str) -> None:
    """Write tables, list them, read all or parts of them."""
    key = doors.key("duckdb")
    client(doors, key, url=url).create_bucket(Bucket="data")
    environment = {
        name: value for name, value in os.environ.items() if "proxy" not in name.lower()
    } | {"DOOR": url, "DOOR_CA": doors.authority, "DOOR_ID": key.id, "DOOR_SECRET": key.secret}
    subprocess.run([python, "-c", JOURNEY], env=environment, check=True)


if __name__ == "__main__":
    sys.exit(main())
