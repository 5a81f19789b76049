"""Published claims, and whether a run confirms them."""

from tare.plugins.feature import Feature

FEATURE = Feature(
    commands={"claims": "commands:claims", "popularity": "commands:popularity"},
    sections=("claims_page:page_section",),
    figures=("claims_page:figures",),
)
