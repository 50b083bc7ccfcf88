"""The language: undefined values, values that are copied, faults with their places, readers."""

from __future__ import annotations

import re

import pytest

from mrstream.saw.program import ProgramStopped, compiled
from mrstream.saw.source import Refused
from tests.support.saw_runs import csv_of, packed, shown, value_of

TABLE = "t: table sum of int; "


def refusal(text: str) -> str:
    """Give what is said about a program that is refused."""
    with pytest.raises(Refused) as caught:
        compiled(text, "p.szl")
    return str(caught.value)


def stop(text: str, *records: str) -> str:
    """Give what is said about a program that stops."""
    with pytest.raises(ProgramStopped) as caught:
        csv_of(text, records or ("",))
    return str(caught.value)


# ---- undefined values (§11.1) ------------------------------------------------------------------


def test_an_undefined_value_in_an_initialiser_makes_the_variable_undefined() -> None:
    """SZ-23."""
    text = TABLE + "v: int = int(string(input)); if (def(v)) emit t <- v; else emit t <- 100;"

    assert csv_of(text, ["5", "x"]) == "t,105\n"


@pytest.mark.parametrize(
    ("statements", "total", "skipped"),
    [
        ("switch (v) { case 1: emit t <- 1; default: emit t <- 10; }", 1, 1),
        ("switch (1) { case v: emit t <- 1; default: emit t <- 10; }", 1, 1),
        ("switch (2) { case v: emit t <- 1; default: emit t <- 10; }", 10, 1),
        ("for (i: int = v; i < 3; i++) emit t <- 1;", 2, 1),
        ("i: int = 0; for (i = v; i < 3; i++) emit t <- 1;", 2, 1),
        ("for (i: int = 0; i < 2; i = i + v) emit t <- 1;", 2 + 1, 1),
        ("for (i: int = 0; i < 2; i = i + v) { emit t <- 1; continue; }", 2 + 1, 1),
        ("i: int = 0; while (i < v) { emit t <- 1; i++; }", 1, 1),
        ("do emit t <- 1; while (v > 5);", 2, 1),
        ("if (v > 0) emit t <- 1; else emit t <- 10;", 1, 1),
        ("f: function(): int { return v; }; emit t <- f();", 1, 1),
    ],
)
def test_with_ignore_undefs_a_statement_is_skipped_whole(
    statements: str, total: int, skipped: int
) -> None:
    """SZ-24. A switch took the value that it had at the record before, and a loop whose step was
    undefined never ended."""
    text = f"t: table sum of int; v: int = int(string(input)); {statements}"

    assert csv_of(text, ["1", "x"], ignore_undefs=True) == f"t,{total}\n_undef_cnt,{skipped}\n"


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("emit t <- 1 / zero;", "division by zero"),
        ("emit t <- a[2];", "an index outside"),
        ("emit t <- a[-1];", "an index outside"),
        ('emit t <- m["b"];', "the map has no key 'b'"),
        ('emit t <- int("x");', "'x' is no int"),
        ("emit t <- v;", "v is undefined"),
        ("v = v + 1;", "v is undefined"),
        ("if (v > 1) emit t <- 1;", "v is undefined"),
        ("while (v > 1) emit t <- 1;", "v is undefined"),
        ("emit t <- f(v);", "v is undefined"),
        ("emit t <- f(2);", "an index outside"),
        ('assert(zero == 1, "so it is not");', "so it is not"),
    ],
)
def test_elsewhere_it_stops_the_program_with_its_place(statement: str, reason: str) -> None:
    """SZ-23: the report has the line, the reason and the record."""
    text = f"""t: table sum of int;
    zero: int = 0; a: array of int = {{ 1, 2 }}; m: map[string] of int = {{ "a": 1 }};
    f: function(i: int): int {{ return a[i]; }};
    v: int;
    {statement}"""

    said = stop(text, "the record")

    assert said.startswith("p.szl:5:") or "f(2)" in statement
    assert reason in said
    assert said.endswith("record: the record")


def test_ignored_undefined_values_skip_their_statement_and_are_told() -> None:
    """SZ-24: an `if` is dropped whole, a loop ends and keeps its past work."""
    text = (
        TABLE
        + """
    a: array of int = { 1, 2 };
    v: int = int(string(input));
    if (v > 0) emit t <- 1000; else emit t <- 2000;
    i: int = 0;
    while (a[i] > 0) { emit t <- a[i]; i++; }
    emit t <- 10 + a[5];
    emit t <- 100;
    """
    )
    program = compiled(text, "p.szl", ignore_undefs=True)

    states = packed(program, [b"x", b"7"])

    assert shown(program, states) == f"t,{2 * 103 + 1000}\n_undef_cnt,5\n"
    details = shown(program, states, "text", ["_undef_details"])
    assert details.splitlines() == [
        "_undef_details = 4:11: v is undefined",
        "_undef_details = 6:17: an index outside of its array or string",
        "_undef_details = 6:17: an index outside of its array or string",
        "_undef_details = 7:10: an index outside of its array or string",
        "_undef_details = 7:10: an index outside of its array or string",
    ]


def test_an_assignment_inside_a_function_stops_even_under_an_initialiser() -> None:
    text = TABLE + "f: function(a: array of int): int { x: int = 0; x = a[9]; return x; };\n"

    assert "1:70: an index outside" in stop(text + "v: int = f({ 1 });")


def test_what_a_function_returns_may_be_undefined() -> None:
    text = TABLE + "f: function(a: array of int): int { return a[9]; }; v: int = f({ 1 });"

    assert csv_of(text + "if (!def(v)) emit t <- 1;") == "t,1\n"


# ---- values (§10) --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "made",
    [
        "array of array of int = rows + rows",
        "array of array of int = reverse(rows)",
        "array of array of int = rows[0:2]",
        "array of array of int = { rows[0], rows[0] }",
        "array of array of int = new(array of array of int, 2, rows[0])",
        "map[int] of array of int = { 0: rows[0] }",
        "map[int] of array of int = convert(map[int] of array of int, by_name)",
        "array of { s: string, l: array of int } = pairs",
    ],
)
def test_a_value_made_of_others_shares_nothing_with_them(made: str) -> None:
    text = f"""
    rows: array of array of int = {{ {{ 1 }}, {{ 2 }} }};
    by_name: map[string] of array of int = {{ "0": {{ 1 }} }};
    pairs: array of {{ n: int, l: array of int }} = {{ {{ 1, {{ 1 }} }} }};
    before: string = string(rows) + string(by_name) + string(pairs);
    x: {made};
    {"x[0].l[0] = 9;" if "pairs" in made else "x[0][0] = 9;"}
    t: table collection of bool;
    emit t <- before == string(rows) + string(by_name) + string(pairs);
    """

    assert csv_of(text) == "t,true\n"


def test_nothing_is_shared() -> None:
    """SZ-27: arrays, maps and tuples are values, also inside of each other and of functions."""
    text = (
        TABLE
        + """
    type P = { x: int, inner: { a: array of int } };
    p: P = { 1, { { 5 } } };
    q: P = p;
    q.inner.a[0] = 1000; q.x = 1000;
    change: function(a: array of int): array of int { a[0] = 10000; return a; };
    b: array of int = change(p.inner.a);
    b[0] = 7;
    both: array of array of int = { b, b };
    both[0][0] = 100000;
    emit t <- p.x + p.inner.a[0] + both[1][0] + b[0];
    """
    )

    assert csv_of(text) == "t,20\n"


def test_nothing_carries_over_to_the_next_record() -> None:
    """SZ-01 (§7.1)."""
    text = TABLE + 's: string = input; x: int; if (s == "set") x = 5; if (def(x)) emit t <- x;'

    assert csv_of(text, ["set", "no", "set", "no"]) == "t,10\n"


def test_a_static_value_is_made_once() -> None:
    """SZ-20: its initialiser may be dear; what is undefined in it stays so."""
    text = (
        TABLE
        + """
    static double: function(n: int): int { return 2 * n; };
    static SIZES: array of int = { double(1), double(2) };
    static none: int = SIZES[9];
    if (!def(none)) emit t <- SIZES[0] + SIZES[1];
    """
    )

    assert csv_of(text, ["a", "b"]) == "t,12\n"


# ---- faults --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("emit cuont <- 1;", "p.szl:1:6: cuont is not declared"),
        ("count: table sum of int; emit cuont <- 1;", "did you mean count?"),
        ("x: strin = 5;", "there is no type strin; did you mean string?"),
        ("x: int = lenn(input);", "there is no function lenn; did you mean len?"),
        ("t: table smu of int;", "there is no table smu; did you mean sum?"),
        ("t: table sum of string;", "sum adds ints, floats"),
        ("t: table top of string;", "top needs a parameter"),
        ("t: table quantile(1) of int;", "it must be 2 or more"),
        ("t: table unique(99999999) of int;", "it must be 1 to 10,000,000"),
        ("t: table sum of int weight w: int;", "sum takes no weight"),
        ("x: int = 1; x = 2.5;", "what is assigned is an int, not a float"),
        ("x: float = 1.5 + 1;", "cannot add float and int; write float(…) around the int"),
        ('x: int = "a" * 2;', "cannot multiply string and int"),
        ("x: int = 1; x: int = 2;", "x is declared already"),
        ("static x: int = 1; x = 2;", "x is static and never changes"),
        ("y: int = 1; static x: int = y;", "y changes with each record"),
        ("if (1) ;", "a condition is a bool, not an int"),
        ("break;", "break stands inside of loops"),
        ("x: array of int = { 1, true };", "this element is an int, not a bool"),
        ("p: { a: int } = { 1 }; x: int = p.b;", "the tuple has no field b"),
        ("m: map[array of int] of int;", "the key of a map cannot be of type array of int"),
        ("f: function(a: int): int { return; };", "returns a value of type int"),
        ("f: function(a: int) { ; }; f(1, 2);", "f takes 1 arguments, and here are 2"),
        ("b: bool = match(`[`, string(input));", "the pattern cannot be read"),
        ("b: bool = match(`a++`, string(input));", "++ is not taken in patterns"),
        ('x: int = hourof(time(5), "Mars/Base");', "there is no time zone 'Mars/Base'"),
        ('x: time = T"yesterday";', "'yesterday' is no time"),
        ("x: int = 99999999999999999999;", "is larger than an int can be"),
        ('x: string = "abc;', "the string has no end on its line"),
        ("x: int = 1 @ 2;", "'@' begins nothing"),
        ("1 + 2;", "this value is not used"),
        ("{ t: table sum of int; }", "a table is declared outside of functions and blocks"),
        ("when (i: some int; i > 5) ;", "does not say which values i may have"),
        ("t: table sum[int] of int; emit t <- 1;", "t has 1 indexes, and here are 0"),
    ],
)
def test_a_fault_says_what_is_wrong(text: str, said: str) -> None:
    """SZ-22 (§11)."""
    assert said in refusal(text)


def test_several_faults_are_told_each_with_its_line_and_a_caret() -> None:
    said = refusal("x: int = y;\nok: int = 1;\nz: int = ok + w;\n")

    assert said.splitlines() == [
        "p.szl:1:10: y is not declared",
        "  x: int = y;",
        "           ^",
        "p.szl:3:15: w is not declared",
        "  z: int = ok + w;",
        "                ^",
    ]


def test_the_caret_stands_below_its_place_behind_wide_letters() -> None:
    said = refusal('x: string = "日本e\u0301" + 1;')

    columns = len('x: string = "') + 4 + len("e") + len('" ')  # two letters of two, one of none
    assert said.splitlines()[2] == "  " + " " * columns + "^"


def test_no_more_than_ten_faults_are_told() -> None:
    said = refusal("x: int = y;\n" * 15)

    assert said.count("^") == 10 and said.endswith("5 more lines have faults")


# ---- library -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "kind", "value"),
    [
        ("string(255, 16)", "string", "ff"),
        ('int("ff", 16)', "int", "255"),
        ('int("0x1f")', "int", "31"),
        ("int(-2.7)", "int", "-2"),
        ("string(2.0)", "string", "2"),
        ('string(true) + string(3) + "x"', "string", "true3x"),
        ('string({ "a", "b" })', "string", '"{ ""a"", ""b"" }"'),
        ("float(3) / 2.0", "float", "1.5"),
        ('strfind("b", "abc")', "int", "1"),
        ('strreplace("aXbX", "X", "-", true)', "string", "a-b-"),
        ('join(split("a b c", " "), "+")', "string", "a+b+c"),
        ('domain("https://User@Example.COM:80/x?y")', "string", "example.com"),
        ('format("%5.2f|%-4s|%03d", 3.14159, "ab", 7)', "string", " 3.14|ab  |007"),
        ('"aé日"[2]', "int", "26085"),
        ('len(bytes("é"))', "int", "2"),
        ('"abcdef"[2:4]', "string", "cd"),
        ('"abc"[-5:99]', "string", "abc"),
        ("sort({ 3, 1, 2 })[0]", "int", "1"),
        ('lookup({ "a": 1 }, "b", 9)', "int", "9"),
        ("len(new(array of int, 7, 0))", "int", "7"),
        ('saw("key=value", `[^=]+`, skip `=`, `.*`)[1]', "string", "value"),
        ("max(3, 7)", "int", "7"),
        ("round(2.5)", "float", "3"),
        ('fingerprintof("a") == fingerprintof("a")', "bool", "true"),
        ('yearof(T"2005-04-01 23:30:00 UTC", "Asia/Tokyo")', "int", "2005"),
        ('dayofmonth(T"2005-04-01 23:30:00 UTC", "Asia/Tokyo")', "int", "2"),
        ('hourof(T"2005-07-01 12:00:00 UTC", "America/Los_Angeles")', "int", "5"),
        ('hourof(T"2005-01-01 12:00:00 UTC", "America/Los_Angeles")', "int", "4"),
        ('dayofweek(T"2005-04-01")', "int", "5"),
        ('hourof(time("2005-04-01 12:00:00", "PST"))', "int", "20"),
        ('hourof(time("2005-04-01 12:" + "00:00", "PST"))', "int", "20"),
        ('string(int(addmonth(T"2005-01-31", 1)))', "string", "1109548800000000"),
        ('formattime("%H", trunctoday(T"2005-04-01 12:00:00 UTC", "Asia/Tokyo"))', "string", "15"),
        ("1 + 2 * 3 % 4 - -1", "int", "4"),
        ("true || 1 / 0 == 1", "bool", "true"),
        ("'a' + 1", "int", "98"),
    ],
)
def test_a_function_gives_its_value(expression: str, kind: str, value: str) -> None:
    """SZ-21, SZ-30."""
    assert value_of(expression, kind) == value


def test_json_is_read_by_a_type_and_missing_fields_are_undefined() -> None:
    """SZ-26: beyond the paper's protocol buffers, records of JSON."""
    text = """
    type Hit = { user: string, took: float, tags: array of string, class: int };
    hit: Hit = jsonof(Hit, input);
    t: table sum[string] of float;
    if (!def(hit)) emit t["bad"] <- 1.0;
    else if (!def(hit.took)) emit t["no time"] <- 1.0;
    else emit t[hit.user] <- hit.took;
    """
    records = [
        '{"user": "ann", "took": 1.5, "more": [1, {"x": 2}], "tags": ["a"], "class": 1}',
        '{"user": "ann", "took": 2}',
        '{"user": "bob", "took": null}',
        '{"user": 5}',
        "junk",
        "[" * 5000,
    ]

    assert csv_of(text, records) == "t,ann,3.5\nt,bad,3\nt,no time,1\n"


def test_fields_of_records_may_be_called_as_words_of_the_language() -> None:
    """Other people's records have a `type`, a `map` and a `table`."""
    text = (
        TABLE
        + """
    type Hit = { type: string, map: { of: int }, table: int, static: int };
    hit: Hit = jsonof(Hit, input);
    if (hit.type == "x") emit t <- hit.map.of + hit.table;
    """
    )

    assert csv_of(text, ['{"type": "x", "map": {"of": 1}, "table": 2}']) == "t,3\n"


def test_csv_is_read_by_a_type() -> None:
    text = (
        TABLE
        + """
    type Sale = { shop: string, amount: int, paid: bool };
    sale: Sale = csvof(Sale, input);
    if (def(sale.amount) && sale.shop != "x") emit t <- sale.amount;
    """
    )

    assert csv_of(text, ['"a,b",5,true', "c,,true", "d,9,maybe", "x,1,true"]) == "t,5\n"


def test_a_web_servers_log_is_read() -> None:
    text = """
    log: ApacheLog = apachelog(input);
    t: table sum[status: int][hour: int] of bytes: int;
    agents: table collection of string;
    bad: table sum of int;
    if (def(log)) {
      emit t[log.status][hourof(log.time)] <- log.bytes;
      if (def(log.agent)) emit agents <- log.agent;
    } else emit bad <- 1;
    """
    start = '1.2.3.4 - ann [10/Oct/2000:13:55:36 -0700] "GET /a%20b HTTP/1.0" '

    found = csv_of(text, [start + "200 23", start + '404 - "-" "A \\"b\\""', "junk"])

    assert found == 't,200,20,23\nt,404,20,0\nagents,"A \\""b\\"""\nbad,1\n'


PARTS = """
    type I = { b: int }; type R = { a: I, l: array of I, m: map[string] of I };
    type Other = { name: int }; type Text = { b: string };
    t: table collection of string; whole: table collection of R;
    by_array: table sum[array of I] of int;
    f: function(x: Other): int { return x.name; };
    r: R = jsonof(R, input);
"""


@pytest.mark.parametrize(
    "statement",
    [
        "emit whole <- r;",
        "emit by_array[r.l] <- 1;",
        "emit t <- string(r.a);",
        "emit t <- string(r);",
        "emit t <- string(fingerprintof(r.m));",
        'if (r.a == r.l[0]) emit t <- "equal";',
        "keys: map[I] of int = {:}; keys[r.a] = 1;",
        "keys: map[I] of int = {:}; emit t <- string(lookup(keys, r.a, 5));",
        "other: Other = r.a; emit t <- string(other.name);",
        "text: Text = r.a; emit t <- text.b;",
        "emit t <- string(f(r.a));",
        'switch (r.a) { case r.l[0]: emit t <- "equal"; }',
    ],
)
def test_a_value_that_lacks_a_field_is_not_read_as_a_whole(statement: str) -> None:
    """SZ-23: what was missing came out as the word MISSING, or ended the task as a bug."""
    record = '{"a": {}, "l": [{}], "m": {"k": {}}}'

    why = stop(PARTS + statement, record)
    assert re.search("the record lacks a field|(other|text) is undefined", why)
    assert csv_of(PARTS + statement, [record], ignore_undefs=True) == "_undef_cnt,1\n"
    assert "_undef_cnt" not in csv_of(PARTS + statement, [record.replace("{}", '{"b": 1}')])


def test_a_field_that_is_missing_stays_so_in_a_copy_and_can_be_set() -> None:
    text = PARTS + "q: R = r; if (!def(q.l)) { q.l = { { 7 } }; emit t <- string(q.l[0].b); }"

    assert csv_of(text, ["{}"]) == "t,7\n"


def test_times_of_json_that_name_no_zone_are_of_the_job_s() -> None:
    text = "type R = { at: time }; r: R = jsonof(R, input); t: table sum of int;"
    program = compiled(text + "emit t <- hourof(r.at);", zone="Asia/Tokyo")
    records = [b'{"at": "2005-04-01 12:00:00"}', b'{"at": "2005-04-01 12:00:00 UTC"}']

    assert shown(program, packed(program, records)) == f"t,{12 + 21}\n"


def test_a_byte_of_a_bytes_literal_is_one_byte() -> None:
    assert value_of(r'string(B"a\xff\u00e9\\x41\n", "hex")') == "61ffc3a95c7834310a"
    assert value_of(r'string(len("a\xff"))') == "2"


def test_names_of_python_are_no_names_of_the_language() -> None:
    text = """
    class: int = 1; lambda: int = 2; _x: int = 3; len_: int = 4; records: int = 5; print: int = 6;
    t: table sum of int; t_get: int = 7;
    emit t <- class + lambda + _x + len_ + records + print + t_get;
    """

    assert csv_of(text) == "t,28\n"


def test_recursion_is_bounded() -> None:
    text = TABLE + "f: function(n: int): int { return f(n + 1); }; emit t <- f(0);"

    assert "more than 5000 deep" in stop(text)


def test_rows_as_json_and_as_text() -> None:
    text = """
    s: table sum[name: string][good: bool] of { n: int, w: float };
    p: table top(2) of string;
    x: table text of string;
    emit s["a"][true] <- { 1, 0.5 };
    emit p <- "k"; emit p <- "k";
    emit x <- "plain, text";
    """
    program = compiled(text)
    states = packed(program, [b""])

    assert shown(program, states, "json") == (
        '{"table": "s", "index": ["a", true], "value": {"n": 1, "w": 0.5}}\n'
        '{"table": "p", "value": "k", "weight": 2, "error": 0}\n'
        '{"table": "x", "value": "plain, text"}\n'
    )
    assert shown(program, states, "text") == (
        "s[a][true] = { 1, 0.5 }\np = k, 2, error 0\nplain, text\n"
    )
