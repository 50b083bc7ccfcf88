"""Whatever is no markup stays text (web/pages/markup.py)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mrstream.web.pages.markup import element, text, url, visible
from tests.unit.web_pages.reading import Reader


@given(st.text())
def test_any_words_come_out_of_an_element_as_they_went_in(words: str) -> None:
    class Whole(Reader):
        def handle_data(self, data: str) -> None:
            self.words.append(data)

    read = Whole(element("p", words, title=words))

    assert "".join(read.words) == visible(words)
    assert read.tags == [("p", {"title": visible(words)})]
    assert read.wrong == []


@given(st.text())
def test_what_is_shown_has_no_character_that_hides_or_turns_others(words: str) -> None:
    shown = visible(words)

    assert not any(ord(sign) < 0x20 and sign not in "\t\n" for sign in shown)
    assert not any(sign in shown for sign in "\x7f\x9b\u202e\u2066\ufeff\u2028")


def test_an_escape_sequence_is_shown_as_signs() -> None:
    assert visible("\x1b[31mred\x07") == "␛[31mred␇"
    assert visible("gnp.\u202eexe") == "gnp.\\u202eexe"


def test_attributes_are_left_out_bare_or_quoted() -> None:
    made = element("input", cls="a", data_label='"x"', hidden=True, value=None, checked=False)

    assert made == '<input class="a" data-label="&#34;x&#34;" hidden>'


def test_children_may_be_nested_and_none() -> None:
    assert element("ul", [element("li", 1), None, ["<"]]) == "<ul><li>1</li>&lt;</ul>"


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])), st.text())
def test_a_link_stays_on_this_host(path: str, value: str) -> None:
    made = url("/" + path, find=value.encode("utf-8", "replace").decode())

    assert made.startswith("/") and not made.startswith("//")
    assert made.isascii() and not set(made) & set("\"'<> \\")


def test_text_is_escaped_once() -> None:
    assert text("&amp;") == "&amp;amp;"
