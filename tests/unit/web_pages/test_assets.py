"""The style sheet and the script: small, from nowhere else, and readable by everyone."""

from __future__ import annotations

import re

import pytest

from mrstream.view.palette import Colour
from mrstream.web.pages import assets

CSS = assets.content("app.css").decode()
JS = assets.content("app.js").decode()
TOKENS = {
    name: (light, dark)
    for name, light, dark in re.findall(
        r"--(\w+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", CSS
    )
}
INKS = ["ink", "faint", "accent", *(c for c in Colour if c not in ("plain", "faint"))]


def test_they_are_small_and_their_names_change_with_them() -> None:
    assert len(CSS.encode()) <= 14_000
    assert len(JS.encode()) <= 4_096
    assert re.fullmatch(r"/static/app\.[0-9a-f]{12}\.css", assets.address("app.css"))
    assert assets.found(assets.address("app.js")) == "app.js"
    assert assets.found("/static/app.js") is None


def test_nothing_is_loaded_from_elsewhere() -> None:
    assert "url(" not in CSS and "@import" not in CSS
    assert "//" not in re.sub(r"^\s*//.*$", "", JS, flags=re.M).replace("text/html", "")
    assert "innerHTML" not in JS and "eval" not in JS and "document.write" not in JS


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("ground", ["ground", "panel"])
@pytest.mark.parametrize("ink", INKS)
@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_words_in_every_colour_can_be_read(ink: str, ground: str, theme: int) -> None:
    """WCAG 2, 1.4.3: 4.5 to 1; of marks without words 3 to 1 (1.4.11)."""
    needed = 3.0 if ink == "grey" else 4.5

    assert contrast(TOKENS[ink][theme], TOKENS[ground][theme]) >= needed


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_bars_and_cells_can_be_seen(theme: int) -> None:
    assert contrast(TOKENS["mark"][theme], TOKENS["panel"][theme]) >= 3.0


def test_every_colour_of_the_palette_has_its_class() -> None:
    for colour in Colour:
        if colour is not Colour.PLAIN:
            assert f".c-{colour} " in CSS
