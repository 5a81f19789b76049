"""What the databases are filled with: lines of WordNet 3.0 as they are, and damaged ones; users and passwords."""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

import pytest
from database import PASSWORD_ROUNDS, SCHEMA, password_of, senses_in, users_of

SAMPLE = Path(__file__).parents[2] / "samples" / "dictionary" / "data.wordnet"
LINES = SAMPLE.read_text(encoding="utf-8").splitlines(keepends=True)
ENTITY = next(line for line in LINES if " entity 0 " in line)


def words_of(line: str) -> list[str]:
    (found,) = [each for each in LINES if each.startswith(line)]
    return [word for word, _, _ in senses_in([found])]


def test_every_word_of_a_line_has_its_class_and_its_gloss() -> None:
    senses = list(senses_in(LINES))
    assert senses[0] == (
        "entity",
        "n",
        "that which is perceived or known or inferred to have its own distinct existence (living or nonliving)",
    )
    assert Counter(kind for _, kind, _ in senses) == {"n": 23, "v": 16, "a": 1, "s": 14, "r": 3}
    assert [word for word, _, _ in senses[1:3]] == ["abstraction", "abstract entity"]
    assert words_of("08350919 14 n ") == ["federal reserve bank", "reserve bank"]
    assert {"airheaded", "silly", "light-headed"} < set(words_of("02120829 00 s "))


def test_where_an_adjective_stands_is_no_part_of_it() -> None:
    assert words_of("00014358 00 s ") == ["abounding", "galore"]  # galore(ip)
    assert words_of("00019731 00 s ") == ["handy", "ready to hand"]  # ready_to_hand(p)
    assert words_of("00020103 00 s ") == ["outback", "remote"]  # outback(a)


def test_a_count_of_words_is_hexadecimal() -> None:
    found = words_of("03218545 06 n 12 ")
    assert [found[0], found[-1], len(found)] == ["doodad", "widget", 18]
    assert len(words_of("00044149 29 v 10 ")) == 16


@pytest.mark.parametrize(
    "line",
    [
        ENTITY[:30],
        ENTITY.replace(" | ", "   "),
        ENTITY.replace(" 01 ", " 00 "),
        ENTITY.replace(" 01 ", " ff "),
        ENTITY.replace(" n ", " x ", 1),
        ENTITY.replace("00001740", "1740", 1),
        "entity\n",
        " " + ENTITY,
    ],
)
def test_a_damaged_line_is_refused_with_its_number(line: str) -> None:
    with pytest.raises(ValueError, match="line 2 is none of WordNet's"):
        list(senses_in(["  1 its license\n", line]))


def test_an_empty_file_has_no_words() -> None:
    assert list(senses_in([])) == list(senses_in(["\n", "  29 its license\n"])) == []


def test_users_have_unique_names_and_the_password_that_the_load_sends() -> None:
    users = list(users_of(81))
    assert len({name for name, *_ in users}) == 81
    assert Counter(company for _, _, company, *_ in users) == {"company-0": 40, "company-1": 40, "company-2": 1}
    name, email, _, licenses, salt, hashed = users[7]
    assert (name, email, licenses) == ("user-7", "user-7@company-0.example", 40)
    given = hashlib.pbkdf2_hmac("sha256", password_of(name).encode(), salt.encode(), PASSWORD_ROUNDS)
    assert given.hex() == hashed
    assert hashed != users[8][-1]


def test_php_counts_as_many_rounds_of_a_password() -> None:
    site = Path(__file__).parents[3] / "examples" / "dictionary" / "services" / "site" / "index.php"
    assert f"const PASSWORD_ROUNDS = {PASSWORD_ROUNDS};" in site.read_text(encoding="utf-8")


def test_the_tables_have_room_for_what_is_put_there() -> None:
    assert sum("CREATE TABLE" in each for each in SCHEMA) == 4
    assert all(len(row[0]) <= 40 and len(row[4]) == 32 and len(row[5]) == 64 for row in users_of(2))
