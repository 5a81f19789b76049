"""Labels: a number with a check digit (Luhn)."""

import json
import re


def check_digit(number: str) -> int:
    """Return the digit that completes a number."""
    total = 0
    for place, digit in enumerate(reversed(number)):
        doubled = int(digit) * (2 if place % 2 == 0 else 1)
        total += doubled - 9 if doubled > 9 else doubled
    return -total % 10


def write_label(depot: str, number: int) -> str:
    """Return a label as one line of JSON."""
    digits = f"{number:09}"
    return json.dumps({"depot": depot, "number": f"{digits}{check_digit(digits)}"}, sort_keys=True)


def read_label(line: str) -> tuple[str, int]:
    """Return depot and number of a label; raise ValueError if its check digit is wrong."""
    label = json.loads(line)
    match = re.fullmatch(r"(\d{9})(\d)", label["number"])
    if match is None or check_digit(match[1]) != int(match[2]):
        raise ValueError(f"not a label: {line}")
    return label["depot"], int(match[1])
