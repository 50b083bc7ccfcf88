"""Hadoop and Spark read what we write, and we read what they wrote, with a ledger: `make interop`.

    python -m tests.conformance.records_interop [hadoop] [spark]

Files of ours are copied from one format to the other by MapReduce jobs of Hadoop, over small
splits; Spark reads them into tables and writes these again, by every codec and in the older ways
that are still about. What comes back is read by jobs of ours, over small splits again: the same
records, each once. Java, Maven and pyspark needed.
"""

from __future__ import annotations

import base64
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.support.local_jobs import Desk

PEER = Path(__file__).parent / "records_peer"
SCHEMA = (
    "id:long,n:int,name:string,x:double,f:float,ok:bool,day:date,at:timestamp,moment:instant,"
    "data:bytes,tags:list<string>,place:struct<x:double,name:string>,scores:map<long>"
)
CODECS = {
    "parquet": ("", "GzipCodec", "ZStandardCodec", "Lz4Codec"),
    "avro": ("", "DeflateCodec", "SnappyCodec", "ZStandardCodec", "BZip2Codec"),
}
SPARK_AVRO = "4.1.1"
"""Not every repository has each version; this one was seen to read with Spark 4.3."""
TIMES = "spark.sql.parquet.outputTimestampType"
LEGACY = "spark.sql.parquet.writeLegacyFormat"
COMPRESS = "mapreduce.output.fileoutputformat.compress"
EPOCH = datetime.datetime(1970, 1, 1)
Row = dict[str, Any]


def row(n: int) -> Row:
    """One record, with the values that make trouble; every seventh has nulls."""
    if n % 7 == 3:
        return {**dict.fromkeys(row(0)), "id": n}
    return {
        "id": n * 10**15,
        "n": -n,
        "name": f'"{n}", Zoë\n\\ \t 漢字 😀',
        "x": n / 3,
        "f": n / 4,
        "ok": n % 2 == 0,
        "day": datetime.date(1969, 12, 1) + datetime.timedelta(n),
        "at": datetime.datetime(2024, 2, 29, 23, 59, 59, n),
        "moment": datetime.datetime(1969, 12, 31, 23, 0, 0, n),
        "data": bytes([n % 256, 0, 255]),
        "tags": [f"t{k}" for k in range(n % 3)],
        "place": {"x": n / 8, "name": None if n % 2 else "here"},
        "scores": {f"k{n}": n},
    }


ROWS = [row(n) for n in range(600)]
CSV_ROWS = [{"id": str(n), "name": f'"{n}", two\nlines', "x": str(n / 4)} for n in range(600)]


class Ledger:
    """What was tried, and what came of it."""

    def __init__(self) -> None:
        self.wrong = 0

    def note(self, what: str, found: Iterable[Any], wanted: Iterable[Any]) -> None:
        """Compare two lists of records, in any order."""
        ours, theirs = (sorted(map(repr, rows)) for rows in (found, wanted))
        if ours == theirs:
            print(f"{what}: {len(ours)} records", flush=True)
            return
        self.wrong += 1
        pairs = [pair for pair in zip(ours, theirs, strict=False) if pair[0] != pair[1]]
        print(f"{what}: WRONG, {len(ours)} records of {len(theirs)}", flush=True)
        for pair in pairs[:1]:
            print("    found  {}\n    wanted {}".format(*pair), flush=True)


class Ours:
    """Jobs of ours, in a room."""

    def __init__(self, room: Path) -> None:
        self.room = room
        room.mkdir()
        self.desk = Desk(room)
        self._own: dict[str, list[Any]] = {}
        self.desk.write("rows", "".join(json.dumps(in_json(one)) + "\n" for one in ROWS))
        self.desk.write("csv", "".join(json.dumps(one) + "\n" for one in CSV_ROWS))

    def write(self, form: str, codec: str = "", source: str = "rows") -> Path:
        """Write the records in a format; four files, each of several units if it has them."""
        target = self.room / f"{form}-{codec or 'plain'}"
        words = ["-D", f"mrstream.output.schema={SCHEMA}"] if source == "rows" else []
        if codec:
            words += ["-D", f"{COMPRESS}=true", "-D", f"{COMPRESS}.codec={codec}"]
        size = (self.desk.cwd / source).stat().st_size // 4 + 1
        self._ran(
            *("-input", source, "-output", str(target), "-mapper", "cat", "-reducer", "NONE"),
            *("-outputformat", form, "-D", f"fs.local.block.size={size}", *words),
        )
        return target

    def read(self, form: str, source: Path, *words: str) -> list[Any]:
        """Read files of a format as JSON, over splits of 4 KiB."""
        return [json.loads(line) for line in self.lines(form, source, *words)]

    def own(self, form: str) -> list[Any]:
        """What we read of what we wrote: the measure of what others wrote of it."""
        if form not in self._own:
            self._own[form] = self.read(form, self.room / f"{form}-plain")
        return self._own[form]

    def lines(self, form: str, source: Path, *words: str) -> list[str]:
        data = self._ran(
            *("-input", str(source), "-inputformat", form, "-mapper", "cat", "-reducer", "NONE"),
            *("-D", "fs.local.block.size=4096", "-D", "stream.map.output.field.separator=\x01"),
            *words,
        )
        return [line.rstrip("\t") for line in data.decode().split("\n") if line]

    def _ran(self, *words: str) -> bytes:
        ran = self.desk.run(*words, timeout_s=600.0)
        assert ran.status == 0, ran.stderr
        return ran.stdout


def in_json(record: Row) -> Row:
    """A record as our writers take it."""

    def plain(name: str, value: Any) -> Any:
        if isinstance(value, bytes):
            return base64.b64encode(value).decode()
        if isinstance(value, datetime.date):
            return value.isoformat() + ("Z" if name == "moment" else "")
        return value

    return {name: plain(name, value) for name, value in record.items()}


def in_java(record: Row) -> Row:
    """A record as Avro's Java prints it: days, microseconds, bytes as characters."""

    def plain(value: Any) -> Any:
        match value:
            case bytes():
                return value.decode("latin-1")
            case datetime.datetime():
                return (value - EPOCH) // datetime.timedelta(microseconds=1)
            case datetime.date():
                return (value - EPOCH.date()).days
        return value

    return {name: plain(value) for name, value in record.items()}


# ---- Hadoop --------------------------------------------------------------------------------


class Hadoop:
    """Hadoop's own classes, from Maven, run by java."""

    def __init__(self, room: Path) -> None:
        shutil.copytree(PEER, room)
        shutil.copy(PEER.parent / "hadoop" / "log4j.properties", room)
        copy = ["dependency:copy-dependencies", f"-DoutputDirectory={room / 'lib'}"]
        subprocess.run(["mvn", "-B", "-q", *copy], cwd=room, check=True)
        path = os.pathsep.join((str(room), f"{room}/lib/*"))
        subprocess.run(
            ["javac", "-cp", path, "-d", str(room), "Records.java"], cwd=room, check=True
        )
        self._java = ["java", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8", "-cp", path]
        self._room = room

    def copy(self, source: Path, before: str, after: str, *settings: str) -> Path:
        """Copy records from a format to another; give the directory."""
        target = Path(tempfile.mkdtemp(dir=self._room)) / after
        words = [word for one in settings for word in ("-D", one)]
        words += ["-D", "mapreduce.input.fileinputformat.split.maxsize=4096"]
        # Lists as every writer of today has them.
        words += ["-D", "parquet.avro.add-list-element-records=false"]
        self._run("Records", *words, before, after, str(source), str(target))
        return target

    def stream(self, source: Path, form: str) -> list[str]:
        """Run a streaming job with an input format; give the lines that its mapper reads."""
        target = Path(tempfile.mkdtemp(dir=self._room)) / "out"
        self._run(
            *("org.apache.hadoop.streaming.HadoopStreaming", "-D", "mapreduce.job.maps=16"),
            *("-D", "mapreduce.job.reduces=0", "-inputformat", form, "-mapper", "/bin/cat"),
            *("-input", str(source), "-output", str(target)),
        )
        return lines_in(target)

    def _run(self, *words: str) -> None:
        done = subprocess.run([*self._java, *words], cwd=self._room, stderr=subprocess.PIPE)
        assert done.returncode == 0, done.stderr.decode("utf-8", "replace")[-3000:]


def lines_in(directory: Path) -> list[str]:
    parts = sorted(directory.glob("part-*"))
    return [line for part in parts for line in part.read_text("utf-8").split("\n") if line]


def hadoop(ours: Ours, ledger: Ledger, room: Path) -> None:
    """Every codec of ours is read by Hadoop's formats, and what they write, by ours."""
    peer = Hadoop(room)
    wanted = [in_java(one) for one in ROWS]
    for form, names in CODECS.items():
        for codec in names:
            lines = lines_in(peer.copy(ours.write(form, codec), form, "text"))
            found = [json.loads(line) for line in lines]
            ledger.note(f"Hadoop reads our {form} {codec or 'as it is'}", found, wanted)
    text = "org.apache.avro.mapred.AvroAsTextInputFormat"
    found = [line.rstrip("\t") for line in peer.stream(ours.room / "avro-plain", text)]
    mine = ours.lines(text, ours.room / "avro-plain")
    ledger.note("Hadoop Streaming and ours agree on AvroAsText of our avro", found, mine)
    ways: list[tuple[str, list[str]]] = [
        ("parquet", []),
        ("parquet", ["parquet.writer.version=v2", "parquet.compression=GZIP"]),
        ("parquet", ["parquet.compression=ZSTD", "parquet.block.size=8192", "parquet.page.size=512",
                     "parquet.block.size.row.check.min=10", "parquet.page.size.row.check.min=10"]),
        ("avro", []),
        ("avro", [f"{COMPRESS}=true", "avro.output.codec=snappy", "avro.mapred.sync.interval=128"]),
        ("avro", [f"{COMPRESS}=true", "avro.output.codec=zstandard"]),
        ("avro", [f"{COMPRESS}=true", "avro.output.codec=bzip2"]),
    ]  # fmt: skip
    for form, settings in ways:
        source = "avro" if form == "parquet" else "parquet"
        copied = peer.copy(ours.room / f"{source}-plain", source, form, *settings)
        what = f"we read Hadoop's {form} {' '.join(settings)}"
        ledger.note(what.rstrip(), ours.read(form, copied), ours.own(form))


# ---- Spark ---------------------------------------------------------------------------------


def spark(ours: Ours, ledger: Ledger, room: Path) -> None:
    """Spark reads our files, writes its table anew, and we read that."""
    import pyspark
    from pyspark.sql import SparkSession

    fetch_spark_avro(pyspark.__version__, room)
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    builder = builder.config("spark.jars", ",".join(map(str, room.glob("*.jar"))))
    session = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    try:
        session.conf.set("spark.sql.files.maxPartitionBytes", "4096")
        spark_reads(ours, ledger, session)
        spark_writes(ours, ledger, session, room)
    finally:
        session.stop()


def fetch_spark_avro(version: str, room: Path) -> None:
    """Fetch Spark's Avro, which comes apart from it: of its version, or the last known to do."""
    for one in (version, SPARK_AVRO):
        jar = f"org.apache.spark:spark-avro_2.13:{one}"
        fetch = ["dependency:copy", f"-Dartifact={jar}", f"-DoutputDirectory={room}"]
        if subprocess.run(["mvn", "-B", "-q", *fetch], cwd=PEER, capture_output=True).returncode:
            continue
        print(f"Spark {version} with the Avro of {one}", flush=True)
        return
    raise RuntimeError(f"Maven has neither spark-avro {version} nor {SPARK_AVRO}")


def spark_reads(ours: Ours, ledger: Ledger, session: Any) -> None:
    for form, codecs in CODECS.items():
        for codec in codecs:
            table = session.read.format(form).load(str(ours.write(form, codec)))
            found = [typed(one.asDict(recursive=True)) for one in table.collect()]
            ledger.note(f"Spark reads our {form} {codec or 'as it is'}", found, ROWS)
    for codec in ("", "GzipCodec"):
        table = csv_of(session.read).load(str(ours.write("csv", codec, "csv")))
        found = [one.asDict() for one in table.collect()]
        ledger.note(f"Spark reads our csv {codec or 'as it is'}", found, CSV_ROWS)


def csv_of(face: Any) -> Any:
    """A reader or writer of Spark for CSV with doubled quotes and line ends within them."""
    options = {"header": "true", "multiLine": "true", "quote": '"', "escape": '"'}
    return face.format("csv").options(**options)


def typed(record: Row) -> Row:
    return {k: bytes(v) if isinstance(v, bytearray) else v for k, v in record.items()}


def in_int96(record: Row) -> Row:
    """A record whose times Spark wrote in its old way: in nanoseconds, and without a zone."""
    moment = record["moment"]
    return {**record, "moment": moment and moment.removesuffix("Z") + "000"}


def spark_writes(ours: Ours, ledger: Ledger, session: Any, room: Path) -> None:
    table = session.read.parquet(str(ours.room / "parquet-plain")).repartition(3)
    ways: Sequence[tuple[str, dict[str, str]]] = [
        ("parquet", {"compression": "snappy"}),
        ("parquet", {"compression": "zstd", "parquet.block.size": "8192"}),
        ("parquet", {"compression": "gzip", "parquet.writer.version": "v2"}),
        ("parquet", {TIMES: "INT96"}),
        ("parquet", {LEGACY: "true"}),
        ("avro", {"compression": "snappy"}),
        ("avro", {"compression": "zstandard"}),
        ("avro", {"compression": "xz"}),
        ("avro", {"compression": "uncompressed"}),
    ]
    for number, (form, options) in enumerate(ways):
        target = room / f"{form}-{number}"
        settings = {TIMES: "TIMESTAMP_MICROS", LEGACY: "false", **options}
        for name in (TIMES, LEGACY):
            session.conf.set(name, settings[name])
        table.write.format(form).options(**options).save(str(target))
        wanted = ours.own(form)
        if options.get(TIMES) == "INT96":
            wanted = [in_int96(one) for one in wanted]
        ledger.note(f"we read Spark's {form} {options}", ours.read(form, target), wanted)
    flat = csv_of(session.read).load(str(ours.room / "csv-plain")).repartition(3)
    csv_of(flat.write).save(str(room / "csv"))
    ledger.note("we read Spark's csv", ours.read("csv", room / "csv"), CSV_ROWS)


PEERS: dict[str, Callable[[Ours, Ledger, Path], None]] = {"hadoop": hadoop, "spark": spark}


def main() -> int:
    """Run the peers that are named, or all; 0 if every record was as it should be."""
    os.environ.pop("MRSTREAM_CLUSTER", None)
    os.environ["TZ"] = "UTC"
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    ledger = Ledger()
    for name in sys.argv[1:] or PEERS:
        with tempfile.TemporaryDirectory(prefix=f"records-{name}-") as place:
            PEERS[name](Ours(Path(place) / "ours"), ledger, Path(place) / "peer")
    print(f"{ledger.wrong} wrong", flush=True)
    return 1 if ledger.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
