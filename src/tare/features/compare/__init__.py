"""What is computed from finished runs for people."""

from tare.plugins.feature import Feature

FEATURE = Feature(commands={"compare": "commands:compare", "history": "commands:history"})
