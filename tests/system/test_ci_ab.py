"""The examples for pull and merge requests: their steps in a shell, on a real repository.

The stand-in for GitHub is a `gh` that keeps comments in a file. GitLab's is a server, to which the real curl talks.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml  # type: ignore[import-untyped]

pytestmark = pytest.mark.machine

EXAMPLES = Path(__file__).parents[2] / "examples/ci"
MARKER = "<!-- speed -->"
NOTES = "/projects/7/merge_requests/3/notes"
GH = """#!/usr/bin/env python3
import json, pathlib, subprocess, sys

assert sys.argv[1] == "api", sys.argv
words = [word for word in sys.argv[2:] if word not in ("--paginate", "--silent")]
options = {word: words[at + 1] for at, word in enumerate(words) if word.startswith("--")}
[path] = [word for word in words if word.startswith("repos/")]
file = pathlib.Path(__file__).with_name("comments.json")
comments = json.loads(file.read_text())
if "--jq" in options:
    assert path == "repos/a/b/issues/3/comments", path
    subprocess.run(("jq", "-r", options["--jq"]), input=json.dumps(comments), text=True, check=True)
    sys.exit()
body = pathlib.Path(options["--field"].removeprefix("body=@")).read_text()
if options["--method"] == "POST":
    assert path == "repos/a/b/issues/3/comments", path
    comments.append({"id": 100 + len(comments), "user": {"type": "Bot"}, "body": body})
else:
    [comment] = [each for each in comments if path == f"repos/a/b/issues/comments/{each['id']}"]
    comment["body"] = body
file.write_text(json.dumps(comments))
"""
# A program that only computes: its shell counts as far as the file `steps` says.
PROGRAM = "#!/bin/sh\ni=0\nwhile [ $i -lt STEPS ]; do i=$((i + 1)); done\n"
MAKE = 'test ! -e broken && sed "s/STEPS/$(cat steps)/" program > bench && chmod +x bench'
Commits = dict[str, str]
Jobs = Callable[..., "JobResult"]


@dataclass(frozen=True)
class JobResult:
    """Result of a job: its exit code, the comments that jobs wrote, and the summary or log."""

    code: int
    comments: list[str]
    summary: str


@dataclass
class Forge:
    """Notes of a merge request on the stand-in for GitLab."""

    url: str = ""
    notes: list[dict[str, Any]] = field(default_factory=list)


@pytest.fixture
def commits(tmp_path: Path) -> Commits:
    """A repository in the job's folder; its commits by name, and each change begins at the commit `base`."""
    job = tmp_path / "job"
    job.mkdir()

    def git(*words: str) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        return subprocess.run(("git", *who, *words), cwd=job, check=True, capture_output=True, text=True).stdout.strip()

    def commit(branch: str, files: Mapping[str, str], start: str) -> str:
        git("checkout", "-q", "-B", branch, *filter(None, [start]))
        for name, text in files.items():
            (job / name).write_text(text)
        git("add", ".")
        git("commit", "-q", "-m", branch)
        return git("rev-parse", "HEAD")

    git("init", "-q")
    base = commit("base", {"program": PROGRAM, "steps": "50000", ".gitignore": ".tare\nresult.md\n*.json\n"}, "")
    known = {
        "same": commit("same", {"notes": "nothing that counts"}, base),
        "slower": commit("slower", {"steps": "80000"}, base),
        "broken": commit("broken", {"broken": ""}, base),
        "target": commit("target", {"steps": "200000"}, base),  # went on meanwhile, and is not compared
        "base": base,
    }
    (job / ".tare").symlink_to(sys.prefix)
    return known


@pytest.fixture
def on_github(tmp_path: Path, environment: dict[str, str], commits: Commits) -> Jobs:
    """Run the job of GitHub for a commit; what it wrote before is still there."""
    job = yaml.safe_load((EXAMPLES / "github-ab.yml").read_text(encoding="utf-8"))["jobs"]["speed"]
    _, install, *steps = job["steps"]
    assert install["name"] == "Install"
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "gh").write_text(GH)
    (tools / "gh").chmod(0o755)
    kept = tools / "comments.json"
    kept.write_text(json.dumps([{"id": 5, "user": {"type": "User"}, "body": f"{MARKER} in a comment of a person"}]))

    def run(commit: str, **more: str) -> JobResult:
        clean(tmp_path / "job", commits[commit])
        temp, summary = tmp_path / "runner" / commit, tmp_path / f"{commit}.md"
        temp.mkdir(parents=True, exist_ok=True)
        known = {"GITHUB_STEP_SUMMARY": str(summary), "GITHUB_REPOSITORY": "a/b", "RUNNER_TEMP": str(temp)}
        known |= {
            "PATH": f"{tools}:{environment['PATH']}",
            "SPEED_TARGET": commits["target"],
            "SPEED_FORK": "false",
            "SPEED_NUMBER": "3",
        }
        known = environment | job["env"] | {"SPEED_BUILD": MAKE} | known | more
        code = 0
        for step in steps:
            if code == 0 or step.get("if") == "${{ !cancelled() }}":
                code = shell(tmp_path / "job", step["run"], known) or code
        written = [each["body"] for each in json.loads(kept.read_text()) if each["user"]["type"] == "Bot"]
        return JobResult(code, written, summary.read_text())

    return run


@pytest.fixture
def on_gitlab(tmp_path: Path, environment: dict[str, str], commits: Commits, forge: Forge) -> Jobs:
    """Run the job of GitLab for a commit; what it wrote before is still there."""
    job = yaml.safe_load((EXAMPLES / "gitlab-ab.yml").read_text(encoding="utf-8"))["speed"]
    create, install, *script = job["script"]
    assert "venv" in create
    assert "pip install" in install

    def run(commit: str, **more: str) -> JobResult:
        clean(tmp_path / "job", commits[commit])
        known = {"CI_API_V4_URL": forge.url, "CI_MERGE_REQUEST_PROJECT_ID": "7", "CI_MERGE_REQUEST_IID": "3"}
        known |= {"CI_MERGE_REQUEST_DIFF_BASE_SHA": commits["base"], "CI_COMMIT_SHA": commits[commit]}
        variables = {name: str(value) for name, value in job["variables"].items()}
        known = environment | variables | {"SPEED_BUILD": MAKE, "SPEED_TOKEN": "secret"} | known | more
        code = shell(tmp_path / "job", "\n".join(script), known)
        assert shell(tmp_path / "job", "\n".join(job["after_script"]), known) == 0
        written = [each["body"] for each in forge.notes if each["id"] != 5]
        return JobResult(code, written, (tmp_path / "job/comment.md").read_text())

    return run


@pytest.fixture(params=["github", "gitlab"])
def run_job(request: pytest.FixtureRequest) -> Jobs:
    if request.param == "github" and shutil.which("jq") is None:
        pytest.skip("the stand-in of gh filters with jq, which is not installed")
    jobs: Jobs = request.getfixturevalue(f"on_{request.param}")
    return jobs


@pytest.fixture
def forge() -> Iterator[Forge]:
    """A stand-in for GitLab's server, with a note of a person."""
    known = Forge(notes=[{"id": 5, "body": f"> {MARKER} in a comment of a person"}])
    with serving(known):
        yield known


@contextmanager
def serving(forge: Forge) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert urlsplit(self.path).path == NOTES
            self.respond(forge.notes)

        def do_POST(self) -> None:
            assert self.path == NOTES
            forge.notes.append({"id": 100 + len(forge.notes), "body": self.sent_body()})
            self.respond(forge.notes[-1])

        def do_PUT(self) -> None:
            [note] = [each for each in forge.notes if self.path == f"{NOTES}/{each['id']}"]
            note["body"] = self.sent_body()
            self.respond(note)

        def sent_body(self) -> str:
            assert self.headers["PRIVATE-TOKEN"] == "secret"
            [body] = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())["body"]
            return body

        def respond(self, document: object) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(document).encode())

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        forge.url = f"http://127.0.0.1:{server.server_port}"
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()


def clean(job: Path, commit: str) -> None:
    """Check a commit out as a runner does, without the files of the job before."""
    for words in (("checkout", "-q", "--detach", commit), ("clean", "-qffdx", "-e", ".tare"), ("worktree", "prune")):
        subprocess.run(("git", *words), cwd=job, check=True)


def shell(folder: Path, script: str, variables: Mapping[str, str]) -> int:
    known = {name: text for name, text in variables.items() if not text.startswith("${{")} | {"NO_PROXY": "*"}
    return subprocess.run(("bash", "-e", "-c", script), cwd=folder, env=known, check=False).returncode


# The margins are wide, so that few blocks decide on a busy machine; the budgets are limits that are not reached.
@pytest.mark.slow
def test_one_comment_has_the_last_result(run_job: Jobs) -> None:
    slower = run_job("slower")
    assert slower.code == 1
    [first] = slower.comments
    assert first.startswith(f"{MARKER}\n### tare ab\n")
    assert re.search(r"change takes \d+(\.\d)? % longer than base \\\[\d.*, \d.*\\\], n = \d+\.", first)
    assert first in slower.summary
    same = run_job("same", SPEED_MARGIN="30%")
    assert same.code == 0
    [second] = same.comments  # instead of the first
    assert re.search(r"change and base are equivalent within 30 %: .?\d+(\.\d)? % \\\[", second)
    assert second in same.summary


def test_a_change_that_cannot_be_built_replaces_the_last_result(run_job: Jobs) -> None:
    undecided = run_job("same", SPEED_BENCH="sleep 0.1", SPEED_BUDGET="1s")
    assert undecided.code == 3
    [first] = undecided.comments
    assert "Undecided: too few blocks for an interval of change" in first
    assert not re.search(r"✅|✓|✔|🟢|👍|:white_check_mark:|pass|succe|\bok\b", first.lower())
    broken = run_job("broken")
    assert broken.code == 1
    assert broken.comments == [
        f"{MARKER}\nNothing was compared: the log of the job has the error of the build or the benchmark.\n"
    ]


@pytest.mark.parametrize(
    ("forge_name", "variables"), [("github", {"SPEED_FORK": "true"}), ("gitlab", {"SPEED_TOKEN": ""})]
)
def test_the_result_of_a_fork_is_in_the_summary(
    forge_name: str, variables: dict[str, str], request: pytest.FixtureRequest
) -> None:
    result = request.getfixturevalue(f"on_{forge_name}")("same", SPEED_BENCH="false", **variables)
    assert result.code == 3
    assert result.comments == []
    assert "Nothing was compared" in result.summary
