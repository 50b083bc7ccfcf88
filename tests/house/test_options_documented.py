"""Every option and every property that a user may set stands in docs/guide/options.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mrstream.streaming import classes
from mrstream.streaming.command import usage
from mrstream.streaming.command.options import (
    GENERIC_OPTIONS,
    OWN_COMMANDS,
    OWN_OPTIONS,
    STREAMING_OPTIONS,
)
from mrstream.streaming.conf.jobconf import JobConf, settings
from mrstream.streaming.conf.properties import default_properties, deprecated_names
from mrstream.streaming.conf.setting import Setting

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guide" / "options.md").read_text()
OPTIONS = (*STREAMING_OPTIONS, *GENERIC_OPTIONS, *OWN_OPTIONS, *OWN_COMMANDS)


def test_every_option_is_a_row_of_the_guide() -> None:
    rows = set(re.findall(r"^\| `-(\w+)", GUIDE, re.MULTILINE))

    assert rows == {option.name for option in OPTIONS}


def test_every_option_is_in_the_usage_text() -> None:
    text = usage.full()

    assert [option.name for option in OPTIONS if f"  -{option.name}" not in text] == []


def test_every_property_that_we_honour_is_a_row_of_the_guide() -> None:
    rows = set(re.findall(r"^\| `([\w.-]+\.[\w.-]+)` \|", GUIDE, re.MULTILINE))

    assert {setting.name for _, setting in settings()} - rows == set()


def test_the_guide_names_no_property_that_nobody_reads() -> None:
    rows = set(re.findall(r"^\| `([\w.-]+\.[\w.-]+)` \|", GUIDE, re.MULTILINE))
    jobconf = (ROOT / "streaming" / "conf" / "jobconf.py").read_text()

    assert [name for name in sorted(rows) if f'"{name}"' not in jobconf] == []


def default_of(setting: Setting[Any], conf: JobConf) -> str:
    """The text that stands for a property that the job does not give."""
    if setting._ours is not None:
        return setting._ours
    return conf.get(setting.name) or setting._default


def test_the_defaults_in_the_guide_are_those_in_force() -> None:
    """Where a default is a number, or true or false; others are told in words."""
    rows = dict(re.findall(r"^\| `([\w.-]+\.[\w.-]+)` \| `?([\w.%-]*)`? \|", GUIDE, re.MULTILINE))
    conf, compared, wrong = JobConf.from_dict({}), 0, []
    for attribute, setting in settings():
        told, raw = rows.get(setting.name, "").rstrip("%"), default_of(setting, conf)
        if told in ("true", "false"):
            is_right = getattr(conf, attribute) is (told == "true")
        elif re.fullmatch(r"-?[\d.]+", told):
            is_right = bool(raw) and float(raw) == float(told)
        else:
            continue
        compared += 1
        if not is_right:
            wrong.append((setting.name, told, raw))

    assert compared > 40
    assert wrong == []


def test_settings_use_new_names() -> None:
    """A setting under an old name would never see what a job gives it."""
    assert [s.name for _, s in settings() if s.name in deprecated_names()] == []


def test_every_known_class_is_in_the_guide() -> None:
    simple = {name.rpartition(".")[2] for role in classes.ROLES for name in classes.known(role)}
    # The orders that keys have anyway need no mention.
    own_orders = {f"{key}$Comparator" for key in ("Text", "LongWritable", "BytesWritable")}

    assert [name for name in sorted(simple - own_orders) if name not in GUIDE] == []


def test_hadoops_default_properties_keep_their_old_names_out() -> None:
    assert [name for name in default_properties() if name in deprecated_names()] == []
