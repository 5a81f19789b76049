"""The process that serves a run's page, as tests start it: a busy machine may keep it waiting for long.

It answers as on a machine with an idle CPU, unless its priority is what is tested.
"""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path

from waiting import ENOUGH_SECONDS

from tare.live import serving, watchers
from tare.live.server import Server

if __name__ == "__main__":
    vars(serving)["Server"] = partial(Server, seconds=ENOUGH_SECONDS)
    watchers._SILENT_SECONDS = ENOUGH_SECONDS
    if "TARE_TEST_PRIORITY" not in os.environ:
        os.sched_setscheduler = lambda *_: None
    serving.main(int(sys.argv[1]), Path(sys.argv[2]))
