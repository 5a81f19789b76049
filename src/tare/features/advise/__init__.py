"""What an application uses: how it is found, watched and counted, and the file that says so."""

from tare.plugins.feature import Feature

FEATURE = Feature(
    commands={"advise": "commands:advise", "prices": "commands:prices", "profile": "profiler.command:profile"}
)
