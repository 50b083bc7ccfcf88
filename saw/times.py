"""Times: microseconds since 1970, their parts in a time zone, texts for and from them.

Functions of the language call these with the zone's name; for UTC the generated code computes most
parts itself. Offsets of other zones change at quarter hours, so one lookup serves a quarter.
"""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
WEEK = 7 * DAY
_QUARTER = 15 * MINUTE
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_ABBREVIATIONS = {
    "utc": 0, "gmt": 0, "z": 0, "est": -5, "edt": -4, "cst": -6, "cdt": -5, "mst": -7, "mdt": -6,
    "pst": -8, "pdt": -7, "cet": 1, "cest": 2, "bst": 1, "wet": 0, "eet": 2, "eest": 3, "jst": 9,
}  # fmt: skip
_CLOCK = r"(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?P<fraction>\.\d{1,6})?)?"
_ZONE = r"(?P<zone>[A-Za-z]+(?:/[A-Za-z_]+)*|[+-]\d{2}:?\d{2})"
_DATE_TEXT = re.compile(
    rf"(?:[A-Za-z]{{3}},?\s+)?(?P<month>[A-Za-z]{{3}})\s+(?P<day>\d{{1,2}})\s+{_CLOCK}"
    rf"(?:\s+{_ZONE})?\s+(?P<year>\d{{4}})"
)
_ISO = re.compile(
    rf"(?P<year>\d{{4}})[-/](?P<month>\d{{2}})[-/](?P<day>\d{{2}})(?:[T: ]{_CLOCK}\s*{_ZONE}?)?"
)
_LOG = re.compile(
    rf"(?P<day>\d{{2}})/(?P<month>[A-Za-z]{{3}})/(?P<year>\d{{4}}):{_CLOCK}(?:\s+{_ZONE})?"
)


@lru_cache(maxsize=256)
def zone_of(name: str) -> tzinfo:
    """Return a time zone by its name, such as America/Los_Angeles or PST; ValueError if unknown."""
    if name.lower() in _ABBREVIATIONS:
        return timezone(timedelta(hours=_ABBREVIATIONS[name.lower()]))
    if re.fullmatch(r"[+-]\d{2}:?\d{2}", name):
        minutes = int(name[1:3]) * 60 + int(name[-2:])
        return timezone(timedelta(minutes=-minutes if name[0] == "-" else minutes))
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError(f"there is no time zone {name!r}") from None


@lru_cache(maxsize=65_536)
def _offset(quarter: int, zone: str) -> int:
    offset = moment(quarter * _QUARTER).astimezone(zone_of(zone)).utcoffset()
    assert offset is not None
    return int(offset.total_seconds()) * SECOND


def local(time: int, zone: str) -> int:
    """Return a time as if its local clock showed UTC, for parts of days that need no calendar."""
    return time if zone == "UTC" else time + _offset(time // _QUARTER, zone)


def moment(time: int) -> datetime:
    """Return a time as a datetime; ValueError beyond the years 1 to 9999."""
    try:
        return _EPOCH + timedelta(microseconds=time)
    except OverflowError:
        raise ValueError(f"time {time} is beyond the calendar") from None


def calendar(time: int, zone: str) -> datetime:
    """Return a time in a zone."""
    return moment(local(time, zone))


def _back(shown: datetime, zone: str) -> int:
    """Return the time whose local clock shows this."""
    real = shown.replace(tzinfo=zone_of(zone))
    return (real - _EPOCH) // timedelta(microseconds=1)


def minuteof(time: int, zone: str) -> int:
    return local(time, zone) // MINUTE % 60


def secondof(time: int, zone: str) -> int:
    return time // SECOND % 60


def hourof(time: int, zone: str) -> int:
    return local(time, zone) // HOUR % 24


def dayofweek(time: int, zone: str) -> int:
    """Return the day of the week; Monday is 1."""
    return (local(time, zone) // DAY + 3) % 7 + 1


def dayofmonth(time: int, zone: str) -> int:
    return calendar(time, zone).day


def monthof(time: int, zone: str) -> int:
    """Return the month, 1 to 12."""
    return calendar(time, zone).month


def yearof(time: int, zone: str) -> int:
    return calendar(time, zone).year


def dayofyear(time: int, zone: str) -> int:
    """Return the day of the year, 1 to 366."""
    return calendar(time, zone).timetuple().tm_yday


def trunctosecond(time: int, zone: str) -> int:
    return time - time % SECOND


def trunctominute(time: int, zone: str) -> int:
    return time - time % MINUTE


def trunctohour(time: int, zone: str) -> int:
    """Return the beginning of the hour that the zone's clocks show."""
    return time - local(time, zone) % HOUR


def trunctoday(time: int, zone: str) -> int:
    if zone == "UTC":
        return time - time % DAY
    return _back(calendar(time, zone).replace(hour=0, minute=0, second=0, microsecond=0), zone)


def trunctomonth(time: int, zone: str) -> int:
    shown = calendar(time, zone)
    return _back(shown.replace(day=1, hour=0, minute=0, second=0, microsecond=0), zone)


def trunctoyear(time: int, zone: str) -> int:
    shown = calendar(time, zone)
    return _back(shown.replace(month=1, day=1, hour=0, minute=0, second=0, microsecond=0), zone)


def addday(time: int, count: int, zone: str) -> int:
    """Return the same clock time some days later."""
    return _back(_moved(calendar(time, zone), count), zone)


def addweek(time: int, count: int, zone: str) -> int:
    """Return the same clock time some weeks later."""
    return addday(time, 7 * count, zone)


def addmonth(time: int, count: int, zone: str) -> int:
    """Return the same day some months later, or the last day of a shorter month."""
    shown = calendar(time, zone)
    months = shown.year * 12 + shown.month - 1 + count
    year, month = months // 12, months % 12 + 1
    if not 1 <= year <= 9999:
        raise ValueError(f"year {year} is beyond the calendar")
    day = min(shown.day, monthrange(year, month)[1])
    return _back(shown.replace(year=year, month=month, day=day), zone)


def addyear(time: int, count: int, zone: str) -> int:
    """Return the same day some years later."""
    return addmonth(time, 12 * count, zone)


def _moved(shown: datetime, days: int) -> datetime:
    try:
        return shown + timedelta(days=days)
    except OverflowError:
        raise ValueError(f"{days} days later is beyond the calendar") from None


def formattime(layout: str, time: int, zone: str) -> str:
    """Return a time as text, in the words of C's strftime."""
    return moment(time).astimezone(zone_of(zone)).strftime(layout)


def time_text(time: int, zone: str) -> str:
    """Return a time as its conversion to string does: Fri Apr  1 12:00:00 2005 with the zone."""
    shown = moment(time).astimezone(zone_of(zone))
    return f"{shown:%a %b} {shown.day} {shown:%H:%M:%S} {shown.tzname()} {shown.year}"


def parse_time(text: str, zone: str) -> int:
    """Return the time that a text means: `Apr 1 12:00:00 PST 2005`, `2005-04-01 12:00:00 PST`,
    `01/Apr/2005:12:00:00 -0800`; ValueError if it means none."""
    match = _DATE_TEXT.fullmatch(text) or _ISO.fullmatch(text) or _LOG.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:60]!r} is no time")
    part = match.groupdict()
    month = part["month"].lower()
    shown = datetime(
        int(part["year"]),
        int(month) if month.isdigit() else _MONTHS.index(month) + 1,
        int(part["day"]),
        int(part["hour"] or 0),
        int(part["minute"] or 0),
        int(part["second"] or 0),
        int(float(part["fraction"] or 0) * SECOND + 0.5),
    )
    return _back(shown, part["zone"] or zone)
