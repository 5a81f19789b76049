"""Session of a suite with weights: its seconds on each stack, by level of isolation."""

from tare.plugins.feature import Feature

FEATURE = Feature(
    formats={"session": "table:render"},
    default_formats=("session",),
    sections=("table:section",),
    markdown=("table:markdown",),
    terminal=("table:terminal",),
)
