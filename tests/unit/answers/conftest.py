"""Commands that are called as by a user; two runs, and `tare compare` on them."""

from called import call_tare  # noqa: F401 - a fixture
from compared import after_run, before_run, compare_command  # noqa: F401 - fixtures
