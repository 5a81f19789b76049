"""Fleet: one suite on many machines through Ansible, with its connections, users and secrets (`tare fleet`).

`controller` measures, keeps its progress in `state`, and polls machines by the scripts there. `comparison` infers
results for machines that were not measured; it reads the `headline_cache` of each run instead of its journal.
"""

from tare.plugins.feature import Feature

FEATURE = Feature(commands={"fleet": "commands:fleet"}, group="Measure", after_run=("headline_cache:store_if_usable",))
