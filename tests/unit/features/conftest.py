"""Two runs, and `tare compare` on them."""

from compared import after_run, before_run, compare_command  # noqa: F401 - fixtures
