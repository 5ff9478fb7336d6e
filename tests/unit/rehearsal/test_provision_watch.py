"""Waiting for nodes to bring what jobs need."""

import json
import time
from typing import Any

import pytest

from deeplearning_contract.setting_parts import DataSettings, EnvironmentSettings, JobNeeds
from deeplearning_rehearsal.errors import PromiseError, RehearsalError
from deeplearning_rehearsal.provision_watch import ProvisionWatch, name_steps


class Files:
    """What each node says, one document a look."""

    def __init__(self, **documents: list[Any]) -> None:
        self._documents = documents

    def read(self, node: str, _path: str) -> bytes:
        rest = self._documents[node]
        document = rest.pop(0) if len(rest) > 1 else rest[0]
        if document is None:
            raise RehearsalError("no such file")
        return document if isinstance(document, bytes) else json.dumps({"boot": "b", "steps": document}).encode()


def _step(state: str, detail: str = "", *, final: bool = False) -> dict[str, Any]:
    return {"environment": {"state": state, "detail": detail, "final": final}}


def _wait(files: Files, *nodes: str, seconds: float = 60) -> list[tuple[str, str]]:
    said: list[tuple[str, str]] = []
    watch = ProvisionWatch(files.read, ("environment",), lambda node, text: said.append((node, text)))
    watch.wait(nodes, time.monotonic() + seconds)
    return said


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deeplearning_rehearsal.provision_watch._INTERVAL_SECONDS", 0.0)


def test_steps_are_named_by_what_the_settings_ask_for() -> None:
    data = (DataSettings("coco", "bucket", "coco.tar", "efs"), DataSettings("more", "bucket", "", "stream"))
    assert name_steps(JobNeeds({}, data)) == ("data:coco", "data:more")
    assert name_steps(JobNeeds({}, data, EnvironmentSettings("requirements")))[-1] == "environment"
    assert name_steps(JobNeeds({})) == ()


def test_the_wait_ends_when_every_node_is_done_and_each_change_is_told_once() -> None:
    files = Files(
        master=[None, b"{half", _step("running", "2 of 44"), _step("running", "9 of 44"), _step("done")],
        worker=[_step("waiting"), _step("done")],
    )
    said = _wait(files, "master", "worker")
    assert [text for node, text in said if node == "master"] == [
        "environment is not begun",
        "environment is running: 2 of 44",
        "environment is done",
    ]
    assert ("worker", "environment is done") in said


def test_a_step_that_failed_for_good_ends_the_wait_with_its_cause() -> None:
    files = Files(master=[_step("failed", "numpy has another hash", final=True)])
    with pytest.raises(PromiseError, match="environment of master failed: numpy has another hash"):
        _wait(files, "master")


def test_a_step_that_will_be_tried_again_is_waited_for() -> None:
    assert _wait(Files(master=[_step("failed", "no route"), _step("done")]), "master")[-1][1] == "environment is done"


def test_what_does_not_come_in_time_is_named() -> None:
    with pytest.raises(PromiseError, match=r"still waiting for environment of master \(running, 2 of 44\)"):
        _wait(Files(master=[_step("running", "2 of 44")]), "master", seconds=0)
