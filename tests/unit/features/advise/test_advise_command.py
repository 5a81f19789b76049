"""`tare advise`: what it prints, its exit codes, and bad input."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from called import Call
from compared import changed
from priced import NATIVE, SCRIPT, SERVER, STACKS, priced
from runs import DHRYSTONE, MACHINE, make_run, make_trial, measured, write

from tare.features.advise.application_profile import OperationCounts
from tare.features.advise.profiler.profile import (
    FORMAT,
    CallCount,
    Counts,
    Profile,
    Usage,
    count_operations,
    dump_profile,
)
from tare.features.advise.unit_costs import FOLDER, load_orientation_prices, read_price_list
from tare.model.operations import OPERATION_KINDS
from tare.model.run_folder import Run
from tare.suites.suite import parse_suite

_REQUESTS = 1_000_000


def profile(of: OperationCounts = SERVER, **fields: object) -> Profile:
    """What was counted of a server whose requests are such a basket."""
    each = {kind: round(count * _REQUESTS) for kind, count in of.counts.items() if kind != "user"}
    calls = [CallCount("getppid", each["call"]), CallCount("epoll_wait", each.get("poll", 0))]
    if messages := each.get("message", 0):
        calls += [CallCount("recvfrom", messages, "network", bytes=each["received"])]
        calls += [CallCount("sendto", messages, "network", bytes=each["sent"])]
    counts = Counts(10.0, tuple(calls), each.get("fault", 0), 0, 0, 0, 0, 0, _REQUESTS)
    user = of.counts["user"] * _REQUESTS
    usage = Usage(user, of.cpu_seconds * _REQUESTS - user, 30 << 20, 20 << 20)
    whole = Profile(
        FORMAT,
        "0.1.0",
        "2024-05-01T10:00:00Z",
        "nginx",
        MACHINE,
        "request",
        _REQUESTS,
        of.elapsed_seconds * _REQUESTS,
        usage,
        ("nginx", "-g", "daemon off;"),
        counts,
    )
    return replace(whole, **fields)  # type: ignore[arg-type]


@pytest.fixture(name="prices")
def prices_of_a_run(tmp_path: Path) -> Path:
    return write(replace(priced(), folder=tmp_path / "prices"))


@pytest.fixture(name="web")
def web_server(tmp_path: Path) -> Path:
    return saved(tmp_path, profile())


def saved(folder: Path, of: Profile, name: str = "app.json") -> Path:
    path = folder / name
    path.write_text(dump_profile(of), encoding="utf-8")
    return path


@pytest.fixture(name="advise")
def advise_command(call: Call) -> Call:
    return partial(call, "advise")


def test_it_ranks_the_stacks_and_says_what_to_try(web: Path, prices: Path, advise: Call) -> None:
    printed = advise(web, "--prices", prices)
    assert printed.err == ""
    rows = [line.split()[1] for line in printed.out.splitlines() if "kernel" in line]
    assert rows[:2] == ["docker", "podman"]
    assert "docker probably costs the least: +15.1 %" in printed.out
    assert printed.out.endswith("Next: tare try --on native,docker,podman -- nginx -g 'daemon off;'\n")


def test_json_has_the_cells_and_nothing_else_is_printed(web: Path, prices: Path, advise: Call) -> None:
    whole = advise(web, "--prices", prices, "--json", "--needs", "isolation=user-space-kernel").document
    assert {cell["stack"]: cell["decision"] for cell in whole["cells"]} == {
        "gvisor": "ranked",
        "qemu-tcg": "ranked",
        "docker": "excluded",
        "podman": "excluded",
    }
    found = {cell["stack"]: (cell["isolation"], cell["isolation_reason"]) for cell in whole["cells"]}
    assert found["gvisor"][0] == "user-space kernel"
    assert "behind a seccomp filter" in found["gvisor"][1]


@pytest.mark.parametrize(
    ("level", "excluded"),
    [
        ("shared-kernel", set()),
        ("user-space-kernel", {"docker", "podman"}),
        ("own-kernel", {"docker", "podman", "gvisor"}),
    ],
)
def test_a_need_names_a_level(level: str, excluded: set[str], web: Path, prices: Path, advise: Call) -> None:
    said = advise(web, "--prices", prices, "--json", "--needs", f"isolation={level}", code=None)
    cells = said.document["cells"]
    assert {cell["stack"] for cell in cells if cell["decision"] == "excluded"} == excluded


def test_another_level_is_refused_with_the_list_of_levels(web: Path, prices: Path, advise: Call) -> None:
    what, hint = advise(web, "--prices", prices, "--needs", "isolation=strong", code=2).error
    assert what == "--needs isolation=strong: unknown need"
    assert hint.endswith("isolation=shared-kernel, isolation=user-space-kernel, isolation=own-kernel")


def test_a_page_is_written_where_asked(web: Path, prices: Path, tmp_path: Path, advise: Call) -> None:
    page = tmp_path / "advice.html"
    advise(web, "--prices", prices, "--html", page, "--node-price", "0.12/h", "--load", "5000/s")
    assert "0.12/h" in page.read_text(encoding="utf-8")


def test_without_a_price_list_the_bundled_one_is_used_and_named_as_foreign(
    web: Path, tmp_path: Path, advise: Call
) -> None:
    page = tmp_path / "advice.html"
    first, *rest = advise(web, "--html", page).out.splitlines()
    answer = next(line for line in rest if "costs the least" in line)
    assert first.startswith("FOR ORIENTATION ONLY: the unit costs are of another machine (")
    assert first.endswith("tare prices --out prices")
    assert answer.startswith("On that machine, ")
    assert "FOR ORIENTATION ONLY" in page.read_text(encoding="utf-8")
    assert advise(web, "--json").document["prices"]["for_orientation"] is True


def test_the_bundled_price_list_is_complete_and_hides_where_it_was_made() -> None:
    run = load_orientation_prices()
    prices = read_price_list(run)
    assert len(prices.stacks) >= 9
    assert set(prices.known_kinds) == {work.name for work in OPERATION_KINDS}
    assert (prices.resampled_costs.blocks >= 5).all()
    assert {path.name for path in FOLDER.iterdir()} == {"run.json", "suite.toml", "trials.jsonl"}
    assert not re.search(r"/(root|home|tmp|work)/", "".join(path.read_text() for path in FOLDER.iterdir()))


def test_a_price_a_day_is_a_price_an_hour(web: Path, prices: Path, advise: Call) -> None:
    docker = advise(web, "--prices", prices, "--json", "--node-price", "24/d").document["cells"][0]
    assert docker["hourly"] == pytest.approx(docker["time"])


def test_it_ends_with_1_where_no_stack_meets_the_needs(web: Path, prices: Path, advise: Call) -> None:
    assert "None of 4 stacks meets the needs." in advise(web, "--prices", prices, "--memory", "1MiB", code=1).out


def test_it_ends_with_3_where_nothing_can_be_told(tmp_path: Path, prices: Path, advise: Call) -> None:
    other = saved(tmp_path, profile(machine=replace(MACHINE, kernel="6.12.0")))
    printed = advise(other, "--prices", prices, code=3)
    assert "cannot tell: unit costs of another machine: kernel: 6.12.0 for the profile" in " ".join(printed.out.split())
    assert printed.err.startswith("error: Cannot tell: docker: unit costs of another machine")
    advise(other, "--prices", prices, "--across-machines")


def test_references_are_runs_with_a_profile_in_their_folder(
    web: Path, prices: Path, tmp_path: Path, advise: Call
) -> None:
    words: list[object] = []
    for number in range(9):
        speeds = {"native": 1.0, "docker": 1 / 1.17, "podman": 1 / 1.18, "gvisor": 1 / (3.3 + number / 20)}
        words += ["--reference", reference(tmp_path / f"reference-{number}", speeds)]
    cells = {cell["stack"]: cell for cell in advise(web, "--prices", prices, "--json", *words).document["cells"]}
    assert cells["gvisor"]["references"] == 9
    assert cells["qemu-tcg"]["references"] == 0
    assert cells["gvisor"]["time_low"] < 3.5 < cells["gvisor"]["time_high"]
    assert [line["kind"] for line in cells["gvisor"]["lines"]][-1] == "correction"


def reference(folder: Path, speeds: Mapping[str, float]) -> Path:
    """A run of an application like the server, with its profile."""
    trials = [
        make_trial(stack, block, [measured("speed", 1000 * speed * (1 + block % 3 / 100))])
        for block in range(6)
        for stack, speed in speeds.items()
    ]
    write(make_run(trials, [DHRYSTONE], folder))
    saved(folder, profile(), "profile.json")
    return folder


def test_a_reference_without_a_profile_is_refused(web: Path, prices: Path, tmp_path: Path, advise: Call) -> None:
    bare = reference(tmp_path / "bare", {"native": 1.0, "docker": 0.9})
    (bare / "profile.json").unlink()
    what, hint = advise(web, "--prices", prices, "--reference", bare, code=2).error
    assert what == f"{bare}/profile.json: cannot be read: no such file or directory"
    assert "tare profile" in hint


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--needs", "isolation=vm"), "--needs isolation=vm: unknown need"),
        (("--needs", "kernel"), "--needs kernel: unknown need"),
        (("--memory", "256"), "--memory 256: a size needs its unit"),
        (("--starts-within", "soon"), "--starts-within soon: a duration needs its unit"),
        (("--node-price", "0.12"), "--node-price 0.12: a rate is a number above 0 per unit of time"),
        (("--node-price", "0/h"), "--node-price 0/h: a rate is a number above 0 per unit of time"),
        (("--load", "5000"), "--load 5000: a rate is a number above 0 per unit of time"),
    ],
)
def test_an_option_that_cannot_be_read_is_an_error_of_usage(
    words: tuple[str, ...], what: str, web: Path, prices: Path, advise: Call
) -> None:
    said, hint = advise(web, "--prices", prices, *words, code=2).error
    assert said == what
    assert hint


@pytest.mark.parametrize(("level", "meant"), [("strong", ""), ("own-kernal", 'did you mean "own-kernel"? ')])
def test_an_unknown_isolation_lists_the_known_ones(
    level: str, meant: str, web: Path, prices: Path, advise: Call
) -> None:
    said = advise(web, "--prices", prices, "--needs", f"isolation={level}", code=2)
    known = "isolation=shared-kernel, isolation=user-space-kernel, isolation=own-kernel"
    assert said.error[1] == f"{meant}name the least that is enough: {known}"


def without_baseline() -> Run:
    return priced({stack: prices for stack, prices in STACKS.items() if stack == "docker"})


def other_run() -> Run:
    return make_run([make_trial("native", 0, [measured("speed", 1.0)])])


@pytest.mark.parametrize(
    ("run", "what"),
    [
        (without_baseline(), "the price list has no baseline native"),
        (other_run(), "not a price list: its workloads are dhrystone"),
        (priced({"native": {}}), "has no stack but native"),
    ],
    ids=["no baseline", "another run", "no stack"],
)
def test_what_is_no_price_list_is_refused(run: Run, what: str, web: Path, tmp_path: Path, advise: Call) -> None:
    folder = write(replace(run, folder=tmp_path / "odd"))
    assert advise(web, "--prices", folder, code=2).error[0] == f"{folder}: {what}"


def test_a_folder_that_is_no_run_and_a_profile_that_is_none_are_refused(
    web: Path, prices: Path, tmp_path: Path, advise: Call
) -> None:
    assert "not a run" in advise(web, "--prices", tmp_path, code=2).error[0]
    assert "cannot be read" in advise(tmp_path / "none.json", "--prices", prices, code=2).error[0]
    web.write_text(web.read_text(encoding="utf-8")[:-40], encoding="utf-8")
    assert advise(web, "--prices", prices, code=2).error[0] == f"{web}: not a profile"


def test_a_profile_without_cpu_time_is_refused(tmp_path: Path, prices: Path, advise: Call) -> None:
    idle = saved(tmp_path, profile(usage=Usage(0.0, 0.0)))
    assert advise(idle, "--prices", prices, code=2).error[0] == "the profile of nginx has no CPU time"


def waiting(**fields: object) -> Profile:
    """The server at a thousand requests a second, for which it needs 17 ms of CPU time."""
    return replace(profile(), seconds=0.001 * _REQUESTS, command=(), **fields)  # type: ignore[arg-type]


def test_a_waiting_server_is_ranked_by_cpu_time_and_prints_no_request_time(
    tmp_path: Path, prices: Path, advise: Call
) -> None:
    app = saved(tmp_path, waiting())
    first, header, *rest = (line for line in advise(app, "--prices", prices).out.splitlines() if line.strip())
    assert first == "At this load the server is busy 2 % of the time: the stacks differ in CPU time."
    assert header.split()[:5] == ["rank", "stack", "CPU", "90", "%"]
    assert "time" not in header.split()
    gvisor = next(line for line in rest if "gvisor" in line)
    assert gvisor.split()[2] == "\N{MULTIPLICATION SIGN}3.10"
    assert "CPU: CPU time of a request; relative to native (16.6 us)" in "\n".join(rest)
    assert "docker probably costs the least CPU time: +15.1 %" in "\n".join(rest)
    whole = advise(app, "--prices", prices, "--json").document
    assert (whole["format"], whole["ranked_by"], whole["application"]["elapsed_seconds"]) == (1, "cpu", None)
    assert whole["application"]["cpus_in_use"] == pytest.approx(0.0166, rel=0.01)
    assert whole["situation"].startswith("At this load the server is busy 2 %")
    for cell in whole["cells"]:
        assert (cell["time"], cell["time_low"], cell["time_high"]) == (None, None, None)
        assert sum(line["share"] for line in cell["lines"]) == pytest.approx(cell["cpu"] - 1)
    advise(app, "--prices", prices, "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "At this load the server is busy 2 % of the time: the stacks differ in CPU time." in page
    assert "in percent of its CPU time there" in page


def test_the_next_step_of_a_server_is_a_suite_that_can_be_run(tmp_path: Path, prices: Path, advise: Call) -> None:
    printed = advise(saved(tmp_path, waiting()), "--prices", prices).out
    assert "tare try" not in printed
    step, _, text = printed.partition("Next: ")[2].partition("\n")
    assert step == (
        "save this suite as next.toml, put your server and its requests in it, and then: tare run next.toml"
    )
    suite = parse_suite(text, "next.toml")
    assert [stack.name for stack in suite.stacks] == ["native", "docker", "podman"]
    assert 'use = "service"' in text
    assert "rates = [1000]" in text


def test_an_always_busy_thread_is_the_bottleneck_even_with_idle_cpus(
    tmp_path: Path, prices: Path, advise: Call
) -> None:
    def situation(busiest: float) -> str:
        usage = Usage(10.0, 6.6, busiest_thread_seconds=busiest)
        return advise(saved(tmp_path, profile(usage=usage)), "--prices", prices).out.splitlines()[0]

    assert situation(16.0).startswith("At this load") is False
    # Four threads share the work of one CPU of two.
    assert situation(4.2) == (
        "At this load the server uses 1.0 of 2 CPUs, no thread always: the stacks differ in CPU time."
    )


def test_a_request_rate_below_the_connection_rate_is_fixed_with_a_caution(
    tmp_path: Path, prices: Path, advise: Call
) -> None:
    counts = profile().counts
    assert counts is not None
    accepted = CallCount("accept4", round(1.82 * _REQUESTS), "network")
    app = saved(tmp_path, waiting(counts=replace(counts, calls=(*counts.calls, accepted))))
    whole = advise(app, "--prices", prices, "--json").document
    assert whole["application"]["counts"]["connection"] == pytest.approx(1.0)
    [caution] = whole["application"]["cautions"]
    assert caution == (
        "the stated rate of 1000 requests a second contradicts 1.82 connections accepted for each of them: the rate of"
        " connections is used in its place, 1820 a second"
    )
    assert f"! profile: {caution}" in whole["remarks"]


def test_a_profile_without_counts_widens_the_advice(tmp_path: Path, prices: Path, advise: Call) -> None:
    few = saved(tmp_path, profile(counts=None, missing=("system calls are not counted: no bpftrace",)))
    said = advise(few, "--prices", prices, code=None)
    assert said.code in (0, 3)
    shown = " ".join(said.out.split())
    assert "profile: system calls are not counted: no bpftrace" in shown
    assert "the interval is too wide" in shown


def test_a_program_of_many_processes_is_dear_in_gvisor(tmp_path: Path, prices: Path, advise: Call) -> None:
    each = {kind: int(count) for kind, count in SCRIPT.counts.items() if kind != "user"}
    calls = (CallCount("openat", each["open"]), CallCount("newfstatat", each["stat"]), CallCount("mmap", each["map"]))
    counts = Counts(1.0, calls, each["fault"], 0, 0, each["process"], 1, 0, 1.0)
    usage = Usage(0.01, SCRIPT.cpu_seconds - 0.01)
    script = saved(tmp_path, profile(unit="run", units=1, seconds=SCRIPT.elapsed_seconds, usage=usage, counts=counts))
    cells = {cell["stack"]: cell for cell in advise(script, "--prices", prices, "--json").document["cells"]}
    assert cells["gvisor"]["lines"][0]["kind"] == "process"
    assert cells["gvisor"]["time"] == pytest.approx(6.0, rel=0.05)


def test_a_price_list_of_a_changed_machine_is_not_trusted(web: Path, tmp_path: Path, advise: Call) -> None:
    run = replace(changed(priced(), machine=replace(MACHINE, cpus=64)), folder=tmp_path / "large")
    assert "number of CPUs: 2 for the profile, 64 for the price list" in " ".join(
        advise(web, "--prices", write(run), code=3).out.split()
    )


def test_the_profile_of_these_tests_comes_to_the_basket_that_it_is_of() -> None:
    assert count_operations(profile()) == {kind: pytest.approx(count) for kind, count in SERVER.counts.items()}


@pytest.mark.parametrize("prices", [(1e-140, 1e150), (1e140, 1e-150), (1.0, 1e-300)], ids=["dear", "cheap", "tiny"])
@pytest.mark.parametrize("numbers", [{"seconds": 1e-300}, {"units": 1e-290}, {"units": 1e290}, {}], ids=str)
def test_absurd_numbers_of_a_profile_or_a_price_list_give_no_traceback(
    numbers: dict[str, float], prices: tuple[float, float], tmp_path: Path, advise: Call
) -> None:
    native, docker = (dict.fromkeys(NATIVE, each) for each in prices)
    run = write(replace(priced({"native": native, "docker": docker}), folder=tmp_path / "wild"))
    odd = saved(tmp_path, profile(SERVER, **numbers))
    for words in ((), ("--html", tmp_path / "page.html", "--json")):
        said = advise(odd, "--prices", run, *words, code=None)
        assert said.code in {0, 2, 3}
        assert "NaN" not in said.out
