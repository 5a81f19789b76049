"""One suite on many machines, by Ansible, whose connections, users and secrets it uses: `tare fleet`.

`controller` measures, with the state in `state`, and asks machines by its scripts. `comparison` says what holds on
machines that were not measured; it reads each run's `headline_cache` in place of its journal.
"""

from tare.plugins.feature import Feature

FEATURE = Feature(commands={"fleet": "commands:fleet"}, group="Measure", after_run=("headline_cache:store_if_usable",))
