"""Interpreting the Data: Parallel Analysis with Sawzall (Pike, Dorward, Griesemer, Quinlan):
its programs run, and do what their sections say.

Records come as JSON where the paper reads protocol buffers, and `locationinfo` is a static map.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta

from mrstream.saw.program import compiled
from tests.support.saw_runs import csv_of, packed, shown


def test_section_3_count_sum_and_sum_of_squares() -> None:
    """SZ-29, SZ-04: the complete program of §3, on floats as text."""
    program = """
    count: table sum of int;
    total: table sum of float;
    sum_of_squares: table sum of float;
    x: float = input;
    emit count <- 1;
    emit total <- x;
    emit sum_of_squares <- x * x;
    """

    assert csv_of(program, ["1.5", "2", "-4"]) == "count,3\ntotal,-0.5\nsum_of_squares,22.25\n"


def test_section_7_conversions() -> None:
    """SZ-21: explicit conversions, some with parameters, and the implicit one of an initialiser."""
    program = """
    t: table collection of string;
    f: float;
    s: string = "1.234";
    f = float(s);
    emit t <- string(f);
    emit t <- string(1234, 16);
    b: bytes = "Hello, world!\\n";
    c: bytes = bytes("Hello, world!\\n", "UTF-8");
    emit t <- string(b == c);
    """

    assert csv_of(program) == "t,1.234\nt,4d2\nt,true\n"


def test_section_7_1_submits_through_the_week() -> None:
    """SZ-29, SZ-13: 10,080 bins, one a minute of the week that begins on Monday."""
    program = """
    type P4ChangelistStats = { time: time };
    submitsthroughweek: table sum[minute: int] of count: int;
    log: P4ChangelistStats = jsonof(P4ChangelistStats, input);
    t: time = log.time; # microseconds
    minute: int = minuteof(t)+60*(hourof(t)+24*(dayofweek(t)-1));
    emit submitsthroughweek[minute] <- 1;
    """
    monday = datetime(2005, 1, 3, tzinfo=UTC)
    minutes = [*range(10_080), 0, 0, 10_079]
    moments = [monday + timedelta(minutes=m, weeks=m % 3) for m in minutes]
    records = [json.dumps({"time": int(m.timestamp()) * 10**6}) for m in moments]
    expected = "".join(
        f"submitsthroughweek,{minute},{count}\n"
        for minute, count in sorted(Counter(minutes).items())
    )

    assert csv_of(program, records) == expected
    assert len(expected.splitlines()) == 10_080


def test_section_7_2_every_aggregator_of_the_list() -> None:
    """SZ-05 … SZ-10: as they are declared there."""
    program = """
    c: table collection of string;
    s: table sample(100) of string;
    u: table sum of { count: int, revenue: float };
    m: table maximum(10) of string weight length: int;
    q: table quantile(101) of response_in_ms: int;
    t: table top(10) of language: string;
    n: table unique(10000) of string;
    w: string = input;
    emit c <- w; emit s <- w; emit t <- w; emit n <- w;
    emit u <- { 1, 0.5 };
    emit m <- w weight len(w);
    emit q <- len(w);
    """
    words = ["a" * length for length in range(1, 102)]

    lines = csv_of(program, words).splitlines()

    kinds = Counter(line.partition(",")[0] for line in lines)
    assert kinds == {"c": 101, "s": 100, "u": 1, "m": 10, "q": 101, "t": 10, "n": 1}
    assert "u,101,50.5" in lines and "n,101" in lines and lines[101 + 100 + 1].endswith(",101")
    quantiles = [line for line in lines if line.startswith("q,")]
    assert quantiles[50] == "q,51" and quantiles[99] == "q,100"


def test_section_7_4_indexed_tables_come_out_in_index_order() -> None:
    """SZ-13: top(1000)[country][hour], created on demand."""
    program = """
    t: table top(1000)[country: string][hour: int] of request: string;
    f: array of string = splitcsvline(input);
    emit t[f[0]][int(f[1])] <- f[2];
    """
    records = ["us,10,/a", "de,9,/b", "us,9,/a", "us,10,/b", "us,10,/b", "de,-1,/c"]

    assert csv_of(program, records) == (
        "t,de,-1,/c,1\nt,de,9,/b,1\nt,us,9,/a,1\nt,us,10,/b,2\nt,us,10,/a,1\n"
    )


def test_section_8_2_an_exact_top_by_a_chain_of_two_programs() -> None:
    """SZ-19: an indexed sum, whose CSV the second program reads for its maximum."""
    first = "count: table sum[word: string] of int;\nemit count[string(input)] <- 1;"
    second = """
    best: table maximum(2) of word: string weight n: int;
    f: array of string = splitcsvline(input);
    emit best <- f[1] weight int(f[2]);
    """

    counted = csv_of(first, ["b,b", "b,b", "a", "b,b", "c", "a", "c", "c"])

    assert csv_of(second, counted.splitlines()) == 'best,"b,b",3\nbest,c,3\n'


def test_section_9_the_page_with_the_highest_rank_of_each_domain() -> None:
    """SZ-29, SZ-07."""
    program = """
    type Document = { url: string, pagerank: int };
    max_pagerank_url:
      table maximum(1)[domain: string] of url: string
      weight pagerank: int;
    doc: Document = jsonof(Document, input);
    url: string = doc.url;
    emit max_pagerank_url[domain(url)] <- url
      weight doc.pagerank;
    """
    pages = [("http://a.com/x", 5), ("http://A.com/y", 9), ("http://b.org/", 1)]
    records = [json.dumps({"url": url, "pagerank": rank}) for url, rank in pages]

    assert csv_of(program, records) == (
        "max_pagerank_url,a.com,http://A.com/y,9\nmax_pagerank_url,b.org,http://b.org/,1\n"
    )


QUERIES = """
type QueryLogProto = { ip: string, time_usec: time };
type Location = { lat: float, lon: float };
static locations: map[string] of Location = {
  "1.1.1.1": { 52.9, 13.4 },
  "2.2.2.2": { -0.5, -70.7 }
};
static RESOLUTION: int = 5; # minutes; must be divisor of 60
log_record: QueryLogProto = jsonof(QueryLogProto, input);
queries_per_degree: table sum[t: time][lat: int][lon: int] of int;
loc: Location = locations[log_record.ip];
if (def(loc)) {
  t: time = log_record.time_usec;
  m: int = minuteof(t); # within the hour
  m = m - m % RESOLUTION;
  t = trunctohour(t) + time(m * int(MINUTE));
  emit queries_per_degree[t][int(loc.lat)][int(loc.lon)] <- 1;
}
"""


def test_section_11_1_queries_per_degree_in_steps_of_five_minutes() -> None:
    """SZ-29, SZ-23: a place that is not known is undefined, and the record is passed over."""
    start = 1_130_000_100
    hits = [("1.1.1.1", 0), ("1.1.1.1", 299), ("2.2.2.2", 300), ("9.9.9.9", 0)]
    records = [json.dumps({"ip": ip, "time_usec": (start + s) * 10**6}) for ip, s in hits]

    assert csv_of(QUERIES, records) == (
        f"queries_per_degree,{start * 10**6},52,13,2\n"
        f"queries_per_degree,{(start + 300) * 10**6},0,-70,1\n"
    )


def test_section_11_the_initialiser_of_a_time() -> None:
    """§11: the text of a time is read when the program is checked."""
    program = 't: time = "Apr 1 12:00:00 PST 2005"; c: table collection of int; emit c <- int(t);'

    assert csv_of(program) == "c,1112385600000000\n"


def test_section_11_2_quantifiers() -> None:
    """SZ-25: a common element; a common stretch of three or more, safe on short arrays."""
    program = """
    share: table sum of int;
    three: table sum of int;
    h: array of string = split(string(input), "|");
    a: array of string = split(h[0], " ");
    b: array of string = split(h[1], " ");
    when(i, j: some int; a[i] == b[j]) {
      emit share <- 1;
    }
    when(i0, i1, j0, j1: some int; a[i0:i1] == b[j0:j1] &&
         i1 >= i0+3) {
      emit three <- 1;
    }
    """

    assert csv_of(program, ["1 2 3 4|9 2 3 4", "1 2|2 1", "1|2", "a b c d|a b d c"]) == (
        "share,3\nthree,1\n"
    )


def test_section_12_words_of_queries() -> None:
    """SZ-25: two quantifiers in one `when`, bound in order."""
    program = """
    result: table sum[key: string][month: int][day: int] of int;
    static keywords: array of string =
      { "hitchhiker", "benedict", "vytorin",
        "itanium", "aardvark" };
    querywords: array of string = split(string(input), " ");
    month: int = 2;
    day: int = 3;
    when (i: each int; j: some int; querywords[i] == keywords[j])
      emit result[keywords[j]][month][day] <- 1;
    """

    assert csv_of(program, ["the hitchhiker", "aardvark aardvark", "none"]) == (
        "result,aardvark,2,3,2\nresult,hitchhiker,2,3,1\n"
    )


def test_section_10_the_wrong_counter_counts_nothing() -> None:
    """SZ-01: for each record, the count is set to zero, incremented, and thrown away."""
    assert csv_of("count: int = 0;\ncount++;", ["a", "b"]) == ""


def test_section_7_3_emitting_is_aggregating_before_anything_is_sent() -> None:
    """SZ-12: a map sends one record an index, however many were emitted."""
    program = compiled("t: table sum[string] of int; emit t[string(input)] <- 1;")

    states = packed(program, [b"a", b"b"] * 5000)

    assert len(states) == 2
    assert shown(program, states) == "t,a,5000\nt,b,5000\n"
