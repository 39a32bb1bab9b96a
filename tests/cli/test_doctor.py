"""bench doctor: what is there, what is missing, and whether that matters."""

from __future__ import annotations

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from fake_plugins import plugin_folder

from retargetbench.cli import doctor, main

if TYPE_CHECKING:
    from pathlib import Path


def diagnosis(capsys: pytest.CaptureFixture[str], *, code: int = 0) -> dict[str, dict[str, Any]]:
    assert main(["doctor", "--json"]) == code
    return {finding["topic"]: finding for finding in json.loads(capsys.readouterr().out)}


def test_a_good_installation_is_found_good(capsys: pytest.CaptureFixture[str]):
    findings = diagnosis(capsys)
    for topic in (
        "python",
        "retargetbench",
        "torch",
        "mlflow",
        "device",
        "working folder",
        "plugin core",
        "plugin copy",
    ):
        assert findings[topic]["state"] == "ok", findings[topic]
    assert findings["python"]["detail"].startswith("3.")
    assert {"warp", "gradio", "playwright", "chromium", "node", "shared files", "mlflow store"} <= set(findings)


@pytest.mark.parametrize("topic", ["gradio", "playwright", "chromium"])
def test_what_only_the_coming_page_needs_is_not_called_needed(
    topic: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    find_spec = doctor.find_spec
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    monkeypatch.setattr(doctor, "find_spec", lambda name: None if name == topic else find_spec(name))
    finding = diagnosis(capsys)[topic]
    assert finding["state"] == "missing"
    assert finding["detail"].startswith("not needed yet, but for what is still to come: ")


def test_for_people_it_is_one_line_each(capsys: pytest.CaptureFixture[str]):
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith(("ok ", "- ", "BROKEN ")) for line in lines)
    assert len(lines) == len(diagnosis(capsys))


def test_a_broken_plugin_is_named_but_not_essential(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    with plugin_folder(tmp_path, monkeypatch) as folder:
        folder.add("bad", "raise OSError('no disk')")
        folder.add_method("alpha", "shared")
        folder.add_method("beta", "shared")
        findings = diagnosis(capsys)
    assert (findings["plugin bad"]["state"], findings["plugin bad"]["detail"]) == ("broken", "OSError: no disk")
    assert findings["method shared"]["state"] == "broken"


def test_a_missing_requirement_is_essential(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    wanted = ["torch>=2.4", "no-such-package>=1; python_version > '3'", "absent; extra == 'test'"]
    monkeypatch.setattr(doctor, "requires", lambda name: wanted)
    findings = diagnosis(capsys, code=1)
    assert findings["no-such-package"]["state"] == "broken"
    assert "pip install 'no-such-package>=1'" in findings["no-such-package"]["detail"]
    assert "absent" not in findings


def test_a_torch_that_cannot_be_imported_is_essential(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "torch cannot be used" in diagnosis(capsys, code=1)["device"]["detail"]


def test_mlflow_writes_where_the_variable_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/here.db")
    finding = diagnosis(capsys)["mlflow store"]
    assert (finding["state"], finding["detail"]) == ("ok", f"sqlite:///{tmp_path}/here.db")


def test_by_default_mlflow_writes_into_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    findings = diagnosis(capsys)
    assert findings["mlflow store"]["detail"] == "sqlite:///mlflow.db"
    assert str(tmp_path) in findings["working folder"]["detail"]
    assert list(tmp_path.iterdir()) == []


def test_an_mlflow_server_is_asked_for_its_health():
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            """Stay silent."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    uri = f"http://127.0.0.1:{server.server_port}/"
    assert doctor.find_tracking_problem(uri) is None
    server.shutdown()
    server.server_close()
    assert asked == ["/health"]
    assert "does not answer" in (doctor.find_tracking_problem(uri) or "")


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("sqlite:////no/such/folder/mlflow.db", "/no/such/folder is not writable or does not exist"),
        ("./mlruns", "plain folders"),
        ("file:///tmp/mlruns", "plain folders"),
        ("http://", "does not answer"),
        ("postgresql://somewhere/db", None),
    ],
)
def test_a_store_that_cannot_work_is_explained(uri: str, problem: str | None):
    found = doctor.find_tracking_problem(uri)
    assert found is None if problem is None else problem in (found or "")


def test_an_unreachable_store_is_not_essential(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:////no/such/folder/mlflow.db")
    assert "bench push" in diagnosis(capsys)["mlflow store"]["detail"]
