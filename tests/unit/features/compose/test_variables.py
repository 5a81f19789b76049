"""Variables of compose files: what their places and files of them mean, as the Compose specification says."""

from __future__ import annotations

import pytest

from tare.features.compose.syntax import Variables, interpolate, read_variables

VALUES = {"NAME": "value", "EMPTY": "", "a_1": "b"}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ("plain {text}", "plain {text}"),
        ("$NAME-$a_1", "value-b"),
        ("${NAME}s and $NAME.", "values and value."),
        ("$$NAME and $${NAME}", "$NAME and ${NAME}"),
        ("${NONE:-usual} ${EMPTY:-usual} ${NAME:-usual}", "usual usual value"),
        ("${NONE-usual} ${EMPTY-usual}.", "usual ."),
        ("${NAME:+other} ${EMPTY:+other}${NONE:+other}.", "other ."),
        ("${EMPTY+other}${NONE+other}", "other"),
        ("${NONE:-a ${NONE-${NAME}} $$}.", "a value $."),
        ("${NAME:?is needed}", "value"),
        ("${NAME:+${EMPTY:-x}}", "x"),
        ("${NONE:-}", ""),
        ("${NAME:-${NONE}}", "value"),  # what is not needed may be missing
    ],
)
def test_places_are_filled_as_an_engine_does(text: str, filled: str) -> None:
    assert interpolate(text, Variables(VALUES)) == filled


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("${EMPTY:?say $NAME}", "the variable EMPTY is not set: say value$"),
        ("${NONE?}", "the variable NONE is not set$"),
        ("5 $ a", r"'\$ a' is no variable: a dollar sign is written \$\$$"),
        ("$1", r"'\$1' is no variable"),
        ("${}", r"'\$\{\}' is no variable"),
        ("${NAME", "a brace is not closed in "),
        ("${NAME:-${X}", "a brace is not closed in "),
        ("${NAME/a/b}", r"'\$\{NAME/a/b\}' is no variable: after its name come"),
    ],
)
def test_what_has_no_value_or_is_no_place_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        interpolate(text, Variables(VALUES))


def test_a_variable_that_is_not_set_is_empty_and_noted() -> None:
    variables = Variables(VALUES)
    assert interpolate("${NONE}:$NAME ${EMPTY}${OTHER:-$ALSO}$NONE", variables) == ":value "
    assert [*variables.unset] == ["NONE", "ALSO"]


def test_names_whose_values_were_used_are_noted() -> None:
    variables = Variables(VALUES)
    interpolate("${NAME:-x} ${NONE:-$a_1}", variables)
    assert variables.used == {"NAME", "a_1"}


FILE = """\
# a comment
A=1
 export B = two words   # a comment
C='$A # literal'
D="a \\"quoted\\" $A\\tand \\$A"
E=${A}#no-comment

F=
G=
H: yes
NAME
NOBODY
I="two
lines"
J=  # nothing
K=${NONE:-$E}
"""


def test_a_file_of_variables_is_read_with_quotes_comments_and_places() -> None:
    assert read_variables(FILE.replace("\n", "\r\n"), VALUES) == read_variables(FILE, VALUES)
    assert read_variables(FILE, VALUES) == {
        "A": "1",
        "B": "two words",
        "C": "$A # literal",
        "D": 'a "quoted" 1\tand $A',
        "E": "1#no-comment",
        "F": "",
        "G": "",
        "H": "yes",
        "NAME": "value",
        "I": "two\nlines",
        "J": "",
        "K": "1#no-comment",
    }
    assert read_variables("", VALUES) == {}
    assert read_variables("A=x", VALUES) == {"A": "x"}


def test_a_variable_around_counts_more_than_one_of_the_lines_before() -> None:
    assert read_variables("NAME=own\nB=$NAME\n", VALUES) == {"NAME": "own", "B": "value"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("A=1\nB='open\n", "^line 2: neither NAME=value nor a comment$"),
        ('\n\nB="x" y\n', "^line 3: neither"),
        ("1A=1\n", "^line 1: neither"),
        ("{\n", "^line 1: neither"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_variables(text, {})


def test_a_file_notes_the_variables_that_are_not_set() -> None:
    unset: dict[str, None] = {}
    assert read_variables("A=1\nB=$NONE$A\n", {}, unset) == {"A": "1", "B": "1"}
    assert [*unset] == ["NONE"]
