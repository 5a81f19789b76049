"""Commands that are called as by a user."""

from called import call_tare  # noqa: F401 - a fixture
