"""Waiting for nodes to bring what jobs need."""

import json
import time

import pytest

from cdk_rehearsal.errors import PromiseError, RehearsalError
from deeplearning_contract.names import PROVISION_FILE
from deeplearning_contract.reason import Reason
from deeplearning_contract.setting_parts import DataSettings, EnvironmentSettings, JobNeeds
from deeplearning_provision.program_log import follow_pip
from deeplearning_provision.status import Status
from deeplearning_rehearsal.checks.provision_watch import ProvisionProgress, ProvisionWatch, name_steps
from tests.real_time import GENEROUS_SECONDS


class Files:
    """Status documents of each node, one for each read."""

    def __init__(self, **documents):
        self._documents = documents

    def read(self, node, _path):
        rest = self._documents[node]
        document = rest.pop(0) if len(rest) > 1 else rest[0]
        if document is None:
            raise RehearsalError("no such file")
        return document if isinstance(document, bytes) else json.dumps({"boot": "b", "steps": document}).encode()


def _step(state, detail="", *, final=False):
    return {"environment": {"state": state, "detail": detail, "final": final}}


def _wait(files, *nodes, seconds=GENEROUS_SECONDS):
    ProvisionWatch(files.read, ("environment",)).wait(nodes, time.monotonic() + seconds)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr("deeplearning_rehearsal.checks.provision_watch._INTERVAL_SECONDS", 0.0)


def test_steps_are_named_by_what_the_settings_ask_for():
    data = (DataSettings("coco", "bucket", "coco.tar", "efs"), DataSettings("more", "bucket", "", "stream"))
    assert name_steps(JobNeeds({}, data)) == ("data:coco", "data:more")
    assert name_steps(JobNeeds({}, data, EnvironmentSettings("requirements")))[-1] == "environment"
    assert name_steps(JobNeeds({})) == ()


def test_the_wait_ends_when_every_node_is_done():
    files = Files(
        master=[None, b"{half", _step("running", "2 of 44"), _step("running", "9 of 44"), _step("done")],
        worker=[_step("waiting"), _step("done")],
    )
    _wait(files, "master", "worker")
    for node in ("master", "worker"):
        assert b'"done"' in files.read(node, "")


def test_a_step_that_failed_for_good_ends_the_wait_with_its_cause():
    files = Files(master=[_step("failed", "numpy has another hash", final=True)])
    with pytest.raises(PromiseError, match="environment of master failed: numpy has another hash"):
        _wait(files, "master")


def test_a_step_that_will_be_tried_again_is_waited_for():
    files = Files(master=[_step("failed", "no route"), _step("done")])
    _wait(files, "master")
    assert b'"done"' in files.read("master", "")


def test_a_step_that_is_not_done_in_time_is_named():
    with pytest.raises(PromiseError, match=r"still waiting for environment of master \(running, 2 of 44\)"):
        _wait(Files(master=[_step("running", "2 of 44")]), "master", seconds=0)


class Node:
    """A node that writes how far it is as nodes do, and what is told of it as seconds pass."""

    def __init__(self, root):
        self.now = 0.0
        self._root = root
        self._file = root / PROVISION_FILE.lstrip("/")
        self._file.parent.mkdir(parents=True)
        self._progress = ProvisionProgress(self.read)
        self.status = Status(root, self)

    def read(self):
        return self.now

    def say(self, detail, done=0, total=0, unit=""):
        self.status.start("environment", detail, total, unit, done)
        return self.look()

    def look(self):
        return list(self._progress.describe("i-0", self._root))

    def log(self, *lines):
        with self._file.with_name("environment.log").open("a") as log:
            log.writelines(f"{line}\n" for line in lines)


@pytest.fixture
def node(tmp_path):
    return Node(tmp_path)


def test_a_node_that_has_said_nothing_or_waits_for_another_has_nothing_to_tell(node):
    assert node.look() == []
    node.status.wait("environment", "i-1 is compiling Horovod 0.28.1 for torch")
    assert node.look() == []


def test_the_progress_of_apt_is_the_last_line_of_its_output(node):
    node.log("Unpacking g++-12 (12.2.0-14+deb12u1) ...", "Setting up g++-12 (12.2.0-14+deb12u1) ...", "")
    said = node.say("installing g++, make, python3-dev with apt-get")
    what = "environment: installing g++, make, python3-dev with apt-get"
    assert said == [f"{what} (Setting up g++-12 (12.2.0-14+deb12u1) ...)"]


def test_a_long_or_foul_line_of_a_log_is_shortened_and_cleaned(node):
    wheel = "torch-2.13.0%2Bcpu-cp311-cp311-manylinux_2_28_x86_64.whl (190.2 MB)"
    node.log(f"  Downloading http://100.64.0.1:4567/simple/torch/{wheel}")
    (said,) = node.say("resolving the packages that the image lacks")
    assert said.endswith(f" (Downloading {wheel[:58]} ...)")
    node.log("\x1b[2J\xff")
    node.now = 10.0
    (said,) = node.look()
    assert said.isprintable()


def test_downloads_are_counted_and_the_compilation_has_its_percentage(node):
    first = node.say("downloading torch (190.2 MB)", 3, 17, "packages")
    assert first == ["environment: downloading torch (190.2 MB): 3 of 17 packages"]
    assert node.say("compiling Horovod 0.28.1 for torch", 45, 100, "%") == [
        "environment: compiling Horovod 0.28.1 for torch: 45 %"
    ]
    packing = node.say("packing the environment for the other nodes", 250, 1000, "bytes")
    assert packing == ["environment: packing the environment for the other nodes: 25 %"]


def test_a_running_part_is_reported_every_ten_seconds_and_a_new_one_at_once(node):
    heard = []
    for second in range(31):
        node.now = float(second)
        heard += [second for _ in node.say("compiling Horovod 0.28.1 for torch", second, 100, "%")]
    assert heard == [0, 9, 18, 27]
    assert node.say("testing Horovod") == ["environment: testing Horovod"]


def test_a_part_without_news_is_reported_every_minute_with_how_long_it_stays_so(node):
    """A first rehearsal on two cores shows 98 % for half of the time that the compilation takes."""
    heard = {}
    for second in range(300):
        node.now = float(second)
        percent = min(second, 98)
        for line in node.say("compiling Horovod; the last files take longest", percent, 100, "%"):
            heard[second] = line.removeprefix("environment: compiling Horovod; the last files take longest: ")
    assert {second: line for second, line in heard.items() if second > 90} == {
        99: "98 %",
        159: "98 %, for 1 min",
        219: "98 %, for 2 min",
        279: "98 %, for 3 min",
    }
    assert len(set(heard.values())) == len(heard)


def test_packages_that_are_installed_are_no_longer_counted_as_downloads(node):
    heard = []
    read = follow_pip(lambda *said: heard.extend(node.say(*said)), 14)
    read("  Downloading torch-2.13.0-cp312.whl (190.2 MB)")
    read("Installing collected packages: torch, numpy")
    for second in range(48):
        node.now = float(second)
        heard += node.look()
    assert heard == [
        "environment: downloading torch (190.2 MB): 0 of 14 packages",
        "environment: installing the packages, all 14 downloaded",
    ]


def test_an_end_is_reported_once_with_its_result(node):
    node.status.finish("environment", "Horovod 0.28.1 for torch, 17 packages")
    assert node.look() == ["environment is done: Horovod 0.28.1 for torch, 17 packages"]
    node.now = 100.0
    assert node.look() == []
    node.status.fail("environment", Reason("no route", "see the route"), is_final=False)
    assert node.look() == ["environment is failed: no route; see the route"]
    assert node.look() == []
