"""Spark's s3a against a gateway's S3 port: `make interop` (Java, Maven, pyspark; half a gigabyte).

Over TLS, with the door authority in a truststore as the guide says. What Spark does with an object
store is done once, by both kinds of committers, and compared with what other doors see. `--record`
writes down what was said (without TLS), for test_recorded.py.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent.parent))

from tests.doors.gateway_cluster import GatewayCluster, Secret  # noqa: E402
from tests.doors.s3_clients import client, endpoint, recorded  # noqa: E402

ROWS = 10_000
LARGE_BYTES = 17_000_003
PASSWORD = "changeit"


def main() -> int:
    """Run it; an assertion says what differs."""
    place = Path(tempfile.mkdtemp(prefix="mrstream-s3a-"))
    try:
        jars = _jars(place)
        if "--record" in sys.argv:
            with recorded(place, "s3a") as (doors, url):
                _travel(place, doors, jars, url)
        else:
            with GatewayCluster(place / "cluster") as doors:
                _travel(place, doors, jars, endpoint(doors))
        print("Spark's s3a: all as expected")
        return 0
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _travel(place: Path, doors: GatewayCluster, jars: list[str], url: str) -> None:
    key = doors.key("spark")
    spark = _spark(url, key, jars, _truststore(place, doors.authority))
    try:
        journey(spark, client(doors, key, url=url), doors)
    finally:
        spark.stop()


def _jars(place: Path) -> list[str]:
    """hadoop-aws and what it needs; MRSTREAM_S3A_JARS names a directory that has them."""
    known = os.environ.get("MRSTREAM_S3A_JARS")
    library = Path(known) if known else place / "jars"
    if not known:
        shutil.copy(HERE / "pom.xml", place)
        words = ["mvn", "-B", "-q", "dependency:copy-dependencies", f"-DoutputDirectory={library}"]
        subprocess.run([*words, "-DincludeScope=runtime"], cwd=place, check=True)
    return [str(path) for path in sorted(library.glob("*.jar"))]


def _truststore(place: Path, authority: str) -> Path:
    made = place / "truststore.jks"
    subprocess.run(
        ["keytool", "-importcert", "-noprompt", "-alias", "lab", "-file", authority,
         "-keystore", str(made), "-storepass", PASSWORD],
        check=True, capture_output=True,
    )  # fmt: skip
    return made


def _spark(url: str, key: Secret, jars: list[str], truststore: Path) -> Any:
    from pyspark.sql import SparkSession

    java = f"-Djavax.net.ssl.trustStore={truststore} -Djavax.net.ssl.trustStorePassword={PASSWORD}"
    settings = {
        "spark.jars": ",".join(jars),
        "spark.driver.extraJavaOptions": java,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "3",
        "spark.hadoop.fs.s3a.endpoint": url,
        "spark.hadoop.fs.s3a.endpoint.region": "any",
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": key.id,
        "spark.hadoop.fs.s3a.secret.key": key.secret,
        "spark.hadoop.fs.s3a.multipart.size": "5M",
        "spark.hadoop.fs.s3a.multipart.threshold": "5M",
        "spark.hadoop.fs.s3a.committer.name": "magic",
        "spark.hadoop.fs.s3a.committer.magic.enabled": "true",
    }
    builder = SparkSession.builder.master("local[2]").appName("door")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def journey(spark: Any, s3: Any, doors: GatewayCluster) -> None:
    """Tables, text, both committers, a large file, directories that are moved and deleted."""
    s3.create_bucket(Bucket="data")
    _table(spark, s3)
    _magic(spark, s3)
    _files(spark, s3, doors)


def names(s3: Any, prefix: str) -> list[str]:
    """Keys below a prefix."""
    found = s3.list_objects_v2(Bucket="data", Prefix=prefix).get("Contents", [])
    return [each["Key"] for each in found]


def _table(spark: Any, s3: Any) -> None:
    """Parquet in partitions, by the committer that renames; read, filtered, replaced."""
    rows = spark.range(ROWS).selectExpr("id", "id % 7 AS part", "concat('v', id) AS value")
    rows.write.partitionBy("part").parquet("s3a://data/table")
    written = names(s3, "table/")
    assert "table/_SUCCESS" in written and not [n for n in written if "_temporary" in n], written
    back = spark.read.parquet("s3a://data/table")
    assert back.count() == ROWS
    assert back.where("part = 3").selectExpr("sum(id)").first()[0] == sum(range(3, ROWS, 7))
    rows.limit(10).write.mode("overwrite").parquet("s3a://data/table")
    assert spark.read.parquet("s3a://data/table").count() == 10
    rows.write.mode("append").csv("s3a://data/csv")
    assert spark.read.csv("s3a://data/csv").count() == ROWS


def _magic(spark: Any, s3: Any) -> None:
    """The committer that completes uploads in parts where the others rename."""
    factory = "mapreduce.outputcommitter.factory.scheme.s3a"
    lines = spark.sparkContext.parallelize([(f"k{n}", f"v{n}") for n in range(ROWS)], 3)
    lines.saveAsNewAPIHadoopFile(
        "s3a://data/magic",
        "org.apache.hadoop.mapreduce.lib.output.TextOutputFormat",
        "org.apache.hadoop.io.Text",
        "org.apache.hadoop.io.Text",
        conf={factory: "org.apache.hadoop.fs.s3a.commit.S3ACommitterFactory"},
    )
    written = names(s3, "magic/")
    assert len([n for n in written if "/part-r-" in n]) == 3, written
    assert not [n for n in written if "__magic" in n], written
    told = s3.get_object(Bucket="data", Key="magic/_SUCCESS")["Body"].read()
    assert json.loads(told)["committer"] == "magic", told
    assert spark.read.text("s3a://data/magic").count() == ROWS
    assert "Uploads" not in s3.list_multipart_uploads(Bucket="data")


def _files(spark: Any, s3: Any, doors: GatewayCluster) -> None:
    """Hadoop's file system over s3a: a file in parts, a range, renames, deletes."""
    jvm = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path
    configuration = spark._jsc.hadoopConfiguration()
    files = path("s3a://data/").getFileSystem(configuration)
    data = os.urandom(LARGE_BYTES)
    out = files.create(path("s3a://data/large/one"))
    for start in range(0, LARGE_BYTES, 1 << 20):
        out.write(data[start : start + (1 << 20)])
    out.close()
    head = s3.head_object(Bucket="data", Key="large/one")
    assert head["ContentLength"] == LARGE_BYTES and head["ETag"].endswith('-4"'), head["ETag"]
    assert doors.mrstream("dfs", "-cat", "/data/large/one").stdout == data
    read = files.open(path("s3a://data/large/one"))
    read.seek(LARGE_BYTES - 3)
    assert [read.read() for _ in range(4)] == [*data[-3:], -1]
    read.close()
    assert files.rename(path("s3a://data/large"), path("s3a://data/moved"))
    assert files.mkdirs(path("s3a://data/empty/deep"))
    assert files.getFileStatus(path("s3a://data/empty/deep")).isDirectory()
    assert names(s3, "large") == [] and names(s3, "moved/") == ["moved/one"]
    assert files.delete(path("s3a://data/moved"), True)
    assert not files.exists(path("s3a://data/moved/one"))


if __name__ == "__main__":
    sys.exit(main())
