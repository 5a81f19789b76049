"""An application on real instances: the service under test finds those beside it by name, and the load drives it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fakes import run_trial

from tare import plugins
from tare.images.micro import SERVER
from tare.model.trials import ImageWanted
from tare.runner.context import RunContext
from tare.suites.plan import Step
from tare.workloads.application import OfSeveral
from tare.workloads.loads.application import Application, Load, OwnService
from tare.workloads.loads.http import HTTP_PORT
from tare.workloads.loads.own_metrics import OwnMetric

pytestmark = pytest.mark.machine

PROXY = """\
daemon off;
user root;
pid /srv/tare-web.pid;
error_log stderr;
worker_processes 1;
events { worker_connections 64; }
http {
    access_log off;
    server {
        listen 18081;
        location / { proxy_pass http://stock:18080; }
    }
}
"""
# nginx looks the name up when it starts, and ends if it does not find it.
WRITTEN = 'printf %s "$1" > /srv/tare-web.conf && exec nginx -e stderr -c /srv/tare-web.conf'
SHOP = Application(
    name="shop",
    under_test=OwnService("web", ImageWanted(), ("sh", "-c", WRITTEN, "sh", PROXY), 18081, ready="/"),
    beside=(OwnService("stock", ImageWanted(), (SERVER, "--listen", "{listen}"), HTTP_PORT, ready="/"),),
    load=Load(
        ("curl", "--silent", "--output", "/dev/null", "--write-out", "status %{http_code}\n", "{address}:{port}/"),
        (OwnMetric(name="status", better="higher", pattern="^status ([0-9]+)$"),),
    ),
)


@pytest.mark.parametrize("technology", ["native", "crun", "docker", "qemu-tcg"])
def test_the_service_under_test_finds_the_one_beside_it_by_its_name(testbed: RunContext, technology: str) -> None:
    here = replace(testbed, images=replace(testbed.images, sidecars={ImageWanted(): testbed.images.main}))
    step = Step("application-0", "application", technology, 0, 0)
    trial, _ = run_trial(here, step, here.spec(plugins.find("technologies", technology)()), OfSeveral(SHOP))
    assert (trial.reason, trial.status) == ("", "ok")
    status, ready = trial.values
    assert (status.metric, status.value, ready.metric) == ("status", 200.0, "service-ready")
    assert testbed.live == []
