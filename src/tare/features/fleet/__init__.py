"""Many machines: one suite spread over them by Ansible, whose connections, users and secrets it uses."""

from tare.plugins.feature import Feature

FEATURE = Feature(commands={"fleet": "commands:fleet"}, after_run=("headline_cache:store_if_usable",))
