"""The stand-in of EMR's instance controller, on a folder instead of a node, with orders instead of a channel."""

import gzip
import io
import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from cdk_rehearsal.lab.node_programs.emr_controller import Controller, list_descendants
from cdk_rehearsal.lab.node_programs.session_agent import AgentError
from cdk_rehearsal.lab.node_programs.yarn import render
from tests.real_time import wait_until

SCRIPT = b'#!/bin/sh\necho "$1|$2|$PWD"\necho trouble >&2\nexit ${3:-0}\n'
SCRIPT_RUNNER = "s3://us-east-1.elasticmapreduce/libs/script-runner/script-runner.jar"


class Bucket:
    """S3 and KMS as the role of the instance sees them: objects by their paths, and the actions with the key."""

    def __init__(self, objects):
        self.objects = objects
        self.headers = {}
        self.asked = []
        self.refused = ("/nobodys/",)
        self.may = ("GenerateDataKey", "Decrypt")

    def call(self, service, method, path, body="", *, headers=None):
        if service == "kms":
            action = headers["X-Amz-Target"].removeprefix("TrentService.")
            self.asked.append((action, json.loads(body)))
            if action not in self.may:
                raise AgentError("kms answers 400")
            return io.BytesIO(b'{"CiphertextBlob": "c2VhbGVk", "Plaintext": "b3Blbg=="}')
        assert service == "s3"
        if method == "PUT":
            if path.startswith(self.refused):
                raise AgentError("s3 answers 403: no")
            self.objects[path], self.headers[path] = body, headers
        elif path not in self.objects:
            raise AgentError("s3 answers 403")
        return io.BytesIO(self.objects[path])


@pytest.fixture
def node(tmp_path):
    """A controller whose reports are kept, with a bucket that has a script."""
    controller = Controller("http://192.0.2.1/channel", root=tmp_path, user=None)
    controller.reports = []
    controller.report = lambda **report: controller.reports.append(report)
    controller._caller = Bucket({"/bucket/scripts/setup.sh": SCRIPT})
    (tmp_path / "usr/lib/lab/hadoop").mkdir(parents=True)
    (tmp_path / "usr/lib/lab/hadoop/yarn").write_text("yarn")
    return controller


def bootstrap(node, *actions, log_key="", disk_key=""):
    rows = [{"path": path, "arguments": list(arguments)} for path, *arguments in actions]
    order = {"info": {"instance.json": {"isMaster": True}}, "actions": rows, "logs": "s3://logs/j-1/node/i-1/"}
    node._bootstrap({**order, "log_key": log_key, "disk_key": disk_key})


def read_log(node, path):
    return gzip.decompress(node._caller.objects[f"/logs/{path}.gz"]).decode()


def test_bootstrap_actions_run_in_order_with_their_arguments_and_before_hadoop(node, tmp_path):
    bootstrap(node, ("s3://bucket/scripts/setup.sh", "a b", "c"), ("file:/usr/bin/env",))
    assert node.reports == [{"event": "bootstrapped"}]
    folder = tmp_path / "emr/instance-controller/lib/bootstrap-actions/1"
    assert read_log(node, "j-1/node/i-1/bootstrap-actions/1/stdout") == f"a b|c|{folder}\n"
    assert read_log(node, "j-1/node/i-1/bootstrap-actions/1/stderr") == "trouble\n"
    assert "ended with exit code 0" in read_log(node, "j-1/node/i-1/bootstrap-actions/1/controller")
    assert "PATH=" in (tmp_path / "mnt/var/log/bootstrap-actions/2/stdout").read_text()
    assert json.loads((tmp_path / "mnt/var/lib/info/instance.json").read_text()) == {"isMaster": True}
    assert (tmp_path / "usr/bin/yarn").exists()


def test_the_first_action_that_fails_is_the_last(node, tmp_path):
    bootstrap(node, ("s3://bucket/scripts/setup.sh", "a", "b", "3"), ("file:/usr/bin/env",))
    assert node.reports == [{"event": "bootstrap-failed", "action": 1, "cause": "code", "last_line": "trouble"}]
    assert not (tmp_path / "mnt/var/log/bootstrap-actions/2").exists()
    assert not (tmp_path / "usr/bin/yarn").exists()


def test_an_action_that_the_role_may_not_read_fails_to_download(node):
    bootstrap(node, ("s3://bucket/scripts/other.sh",))
    assert node.reports == [{"event": "bootstrap-failed", "action": 1, "cause": "download"}]
    assert "s3 answers 403" in read_log(node, "j-1/node/i-1/bootstrap-actions/1/controller")


def test_a_script_without_an_interpreter_does_not_run(node):
    node._caller.objects["/bucket/scripts/setup.sh"] = b"echo no interpreter\n"
    bootstrap(node, ("s3://bucket/scripts/setup.sh",))
    assert node.reports == [{"event": "bootstrap-failed", "action": 1, "cause": "code"}]


def test_logs_are_encrypted_with_the_key_of_the_cluster(node):
    bootstrap(node, ("file:/usr/bin/env",), log_key="arn:aws:kms:us-east-1:1:key/1")
    assert node._caller.headers["/logs/j-1/node/i-1/bootstrap-actions/1/stdout.gz"] == {
        "x-amz-server-side-encryption": "aws:kms",
        "x-amz-server-side-encryption-aws-kms-key-id": "arn:aws:kms:us-east-1:1:key/1",
    }


def test_a_log_that_s3_refuses_is_reported(node):
    """A missing right, or a policy of the bucket, would leave the log bucket empty with nothing to see."""
    node._caller.refused = ("/logs/j-1/node/i-1/bootstrap-actions/1/stderr.gz",)
    bootstrap(node, ("file:/usr/bin/env",))
    (target,) = node._caller.refused
    assert node.reports == [
        {"event": "log-lost", "target": target, "error": "s3 answers 403: no"},
        {"event": "bootstrapped"},
    ]
    assert "PATH=" in read_log(node, "j-1/node/i-1/bootstrap-actions/1/stdout")


def test_a_node_requests_a_data_key_and_has_it_decrypted_after_a_reboot(node, tmp_path):
    """KMS developer guide, "How Amazon EMR uses AWS KMS"; the plaintext is kept nowhere."""
    node.ask = lambda verb: [{"do": "stop"}]
    bootstrap(node, disk_key="arn:aws:kms:us-east-1:1:key/1")
    assert node._caller.asked == [("GenerateDataKey", {"KeyId": "arn:aws:kms:us-east-1:1:key/1", "KeySpec": "AES_256"})]
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and b"b3Blbg==" in path.read_bytes()]
    node.serve()
    sealed = {"KeyId": "arn:aws:kms:us-east-1:1:key/1", "CiphertextBlob": "c2VhbGVk"}
    assert node._caller.asked[1:] == [("Decrypt", sealed)]
    assert node.reports == [{"event": "bootstrapped"}, {"event": "ready"}]


def test_a_node_whose_role_may_not_use_the_key_is_lost_at_its_launch_or_reboot(node):
    node._caller.may = ("GenerateDataKey",)
    bootstrap(node, disk_key="key")
    node.serve()
    node._caller.may = ()
    bootstrap(node, disk_key="key")
    assert node.reports == [{"event": "bootstrapped"}, {"event": "disks-locked"}, {"event": "disks-locked"}]


def run_step(node, jar, *arguments):
    order = {"do": "step", "id": "s-1", "jar": jar, "arguments": list(arguments), "logs": "s3://logs/j-1/steps/"}
    node._run_step({**order, "log_key": ""})


@pytest.mark.parametrize(("status", "code"), [("0", 0), ("7", 7)])
def test_a_step_of_script_runner_downloads_its_script(node, status, code):
    run_step(node, SCRIPT_RUNNER, "s3://bucket/scripts/setup.sh", "a", "b", status)
    last = {"last_line": "trouble"} if code else {}
    assert node.reports == [{"event": "step", "id": "s-1", "code": code, **last}]
    assert read_log(node, "j-1/steps/s-1/stdout").startswith("a|b|")


def has_ended(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("by_force", [False, True])
def test_an_interrupt_reaches_the_process_alone_and_force_all_that_it_started(node, tmp_path, by_force):
    """Management Guide, "Cancel steps": SIGTERM to the child process; SIGKILL to it and all of its descendants."""
    script = f"sleep 100 & echo $! > {tmp_path}/child; trap 'exit 5' TERM; : > {tmp_path}/ready; wait"
    step = threading.Thread(target=run_step, args=[node, "command-runner.jar", "bash", "-c", script])
    step.start()
    wait_until((tmp_path / "ready").exists)
    child = int((tmp_path / "child").read_text())
    assert list_descendants(wait_until(lambda: node._running.get("s-1")).pid) == [child]
    node.carry_out({"do": "cancel", "id": "s-1", "by_force": by_force})
    step.join()
    assert node.reports == [{"event": "step", "id": "s-1", "code": -9 if by_force else 5}]
    if by_force:
        wait_until(lambda: has_ended(child))
    else:
        assert not has_ended(child)
        os.kill(child, signal.SIGKILL)


def test_the_names_of_other_nodes_are_added_once(node, tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/hosts").write_text("10.0.0.4 ip-10-0-0-4.ec2.internal ip-10-0-0-4\n")
    for _ in range(2):
        hosts = {"ip-10-0-0-4.ec2.internal": "10.0.0.4", "ip-10-0-0-5.ec2.internal": "10.0.0.5"}
        node.carry_out({"do": "hosts", "hosts": hosts})
    lines = (tmp_path / "etc/hosts").read_text().splitlines()
    assert lines[1:] == ["10.0.0.5 ip-10-0-0-5.ec2.internal"]


def test_nodes_are_listed_in_the_form_of_yarn():
    r"""YARN 3 prints rows of NodeCLI's `%16s\t%15s\t%17s\t%28s`, as its users quote them."""
    assert render(["ip-10-0-0-5.ec2.internal"]) == (
        "Total Nodes:1\n"
        "         Node-Id\t     Node-State\tNode-Http-Address\tNumber-of-Running-Containers\n"
        "ip-10-0-0-5.ec2.internal:8041\t        RUNNING\tip-10-0-0-5.ec2.internal:8042\t                           0\n"
    )
    assert render([]).startswith("Total Nodes:0\n")


def test_a_node_reports_its_disk_and_the_age_of_the_file_of_programs_outside_of_yarn(node, tmp_path):
    """The folder of the file is there before the first action runs, as on an instance of EMR."""
    bootstrap(node, ("file:/usr/bin/touch", str(tmp_path / "emr/metricscollector/isbusy")))
    busy = tmp_path / "emr/metricscollector/isbusy"
    os.utime(busy, (0, time.time() - 40))
    node.carry_out({"do": "measure"})
    busy.unlink()
    node.carry_out({"do": "measure"})
    first, second = node.reports[1:]
    assert (first["event"], second["busy_seconds"]) == ("measured", None)
    assert first["busy_seconds"] >= 40
    assert 0 <= first["disk_percent"] <= 100
