"""Published claims, and whether a run confirms them."""

from tare.plugins.feature import Feature

FEATURE = Feature(
    commands={"claims": "commands:claims", "popularity": "commands:popularity"},
    formats_on_request={"papers": "tables:render"},
    sections=("claims_page:page_section",),
    figures=("claims_page:figures",),
)
