"""Effects, output and exit statuses of `deeplearning provision` and `deeplearning data`."""

import fcntl
import json
import sys
import types

import pytest

from deeplearning_command.context import Context
from deeplearning_command.main import main
from deeplearning_command.remote.nodes import HostResult, Remote
from deeplearning_contract.reason import Reason
from deeplearning_contract.setting_parts import EnvironmentSettings
from deeplearning_node.node_facts import InstalledMembership
from deeplearning_node.programs import Programs
from deeplearning_node.provision_status import Step, read_status
from deeplearning_provision.status import Status
from deeplearning_provision.steps import ProvisionFailure
from tests.unit.deeplearning_provision.data_lab import MASTER, BriefClock, make_archive, make_tree

ENTRY = {"a": ("file", b"1", False)}


@pytest.fixture
def command(data_lab, capsys):
    """Run `deeplearning` on a node; return its status and what it printed."""

    def run(*arguments, instance=MASTER, clock=None):
        status = main(arguments, data_lab.root(instance), Programs(str(data_lab.programs)), clock or BriefClock())
        return status, *capsys.readouterr()

    return run


@pytest.mark.parametrize(
    ("sources", "status", "states"),
    [
        ([("set.tar", "efs")], 0, {"data:set": ("done", False)}),
        ([], 0, {}),
        ([("missing.tar", "efs")], 1, {"data:set": ("failed", True)}),
        ([("set/", "lustre")], 75, {"data:set": ("failed", False)}),
    ],
    ids=["all is there", "nothing to do", "a user must act", "a retry may help"],
)
def test_provisioning_ends_with_a_status_that_the_service_understands(data_lab, command, sources, status, states):
    data_lab.put("set.tar", make_archive("tar", ENTRY))
    data_lab.facts(MASTER, *(data_lab.source(key, target=target) for key, target in sources), lustre="/mnt/efs")
    assert command("provision")[0] == status
    steps = read_status(data_lab.root(MASTER))
    assert {name: (step.state, step.final) for name, step in steps.items()} == states


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, (0, "done")),
        (ProvisionFailure("no wheel", "mend it"), (1, "failed")),
        (RuntimeError("odd"), (75, "failed")),
    ],
)
def test_the_environment_is_made_beside_the_data(data_lab, command, monkeypatch, error, expected):
    data_lab.put("set.tar", make_archive("tar", ENTRY))
    facts = data_lab.facts(MASTER, data_lab.source("set.tar"))
    needs = type(facts.needs)({}, facts.needs.data, EnvironmentSettings("container", image="image"))
    type(facts)(**{**vars(facts), "needs": needs}).write(data_lab.root(MASTER))

    def build_or_install(_facts, own, *_):
        own.start("environment", "pulling")
        if error:
            raise error

    module = types.SimpleNamespace(build_or_install=build_or_install)
    monkeypatch.setitem(sys.modules, "deeplearning_provision.environments.kinds", module)
    status = command("provision")[0]
    steps = read_status(data_lab.root(MASTER))
    assert steps["data:set"].state == "done"
    assert (status, steps["environment"].state) == expected


def test_only_the_login_user_provisions(data_lab, command, monkeypatch):
    data_lab.facts(MASTER)
    monkeypatch.setattr("os.geteuid", lambda: 4242)
    for arguments in (["provision"], ["data", "--stage"]):
        status, _, errors = command(*arguments)
        assert status == 2
        assert "the user must be" in errors


def test_a_node_without_sources_or_preparation_is_reported(data_lab, command):
    data_lab.root(MASTER)
    assert command("data")[0] == 2
    data_lab.facts(MASTER)
    assert command("data")[:2] == (0, "the cluster's props name no data\n")


def test_the_table_has_a_line_a_source_with_cause_and_remedy(data_lab, command):
    data_lab.put("set.tar", make_archive("tar", ENTRY))
    data_lab.stage(data_lab.source("set.tar", "good"), data_lab.source("missing.tar", "bad", "local"))
    status, output, _ = command("data")
    head, good, bad = output.splitlines()
    assert status == 1
    assert head.split() == ["SOURCE", "TARGET", "STATE", "PROGRESS", "DETAIL"]
    assert good.split()[:6] == ["good", "efs", "done", "100%", "of", "10.0"]
    assert good.endswith("; at /opt/deeplearning/data/good")
    assert bad.split()[:3] == ["bad", "local", "failed"]
    assert "missing.tar must exist, got NoSuchKey" in bad
    assert bad.endswith("; upload it, or correct the key of the source and deploy")


def test_json_is_one_line_that_programs_read(data_lab, command):
    data_lab.put("set.tar", make_archive("tar", ENTRY))
    data_lab.stage(data_lab.source("set.tar"), data_lab.source("set.tar", "far", "stream"))
    status, output, _ = command("data", "--json")
    assert status == 0
    assert output.count("\n") == 1
    document = json.loads(output)
    assert document["instance_id"] == MASTER
    assert [(s["name"], s["state"], s["path"], s["uri"]) for s in document["sources"]] == [
        ("set", "done", "/opt/deeplearning/data/set", "s3://training-data/set.tar"),
        ("far", "done", "/opt/deeplearning/data/far.s3", "s3://training-data/set.tar"),
    ]


def test_a_running_step_shows_its_rate_and_remaining_time(data_lab, command):
    data_lab.facts(MASTER, data_lab.source("set.tar"))
    clock = types.SimpleNamespace(read=lambda: clock.now, now=0.0)
    status = Status(data_lab.root(MASTER), clock)
    status.start("data:set", "fetching", 400 * 2**20, "bytes", 100 * 2**20)
    clock.now = 100.0
    status.advance("data:set", 200 * 2**20)
    assert "50% of 400.0 MiB, 1.0 MiB/s, 3 min 20 s left" in command("data")[1]


def test_staging_again_takes_what_changed_and_shows_how_far_it_is(data_lab, command):
    data_lab.put("set.tar", make_archive("tar", ENTRY)[:1024])
    data_lab.stage(data_lab.source("set.tar"))
    assert command("data")[0] == 1
    data_lab.put("set.tar", make_archive("tar", make_tree(5)))
    status, output, errors = command("data", "--stage")
    assert (status, "done" in output) == (0, True)
    assert "set: 0% of " in errors
    assert "extracting s3://training-data/set.tar" in errors


def test_staging_again_is_refused_while_it_is_under_way(data_lab, command):
    data_lab.put("set.tar", make_archive("tar", ENTRY))
    data_lab.stage(data_lab.source("set.tar"))
    with (data_lab.root(MASTER) / "opt/deeplearning/provision/.data.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        status, _, errors = command("data", "--stage")
    assert status == 2
    assert "another process is staging; follow it with: deeplearning data --wait" in errors


@pytest.mark.parametrize("expected", [0, 1])
def test_waiting_ends_when_nothing_changes_any_more(data_lab, command, expected):
    data_lab.facts(MASTER, data_lab.source("set.tar"))
    status = Status(data_lab.root(MASTER), BriefClock())
    last = [
        lambda: status.finish("data:set", "there"),
        lambda: status.fail("data:set", Reason("x"), is_final=True),
    ]
    moves = [
        lambda: status.start("data:set", "fetching", 100, "bytes"),
        lambda: status.fail("data:set", Reason("a passing failure"), is_final=False),
        last[expected],
    ]

    class MovingClock(BriefClock):
        def wait(self, seconds):
            moves.pop(0)()

    code, _, errors = command("data", "--wait", clock=MovingClock())
    assert (code, moves) == (expected, [])
    assert "a passing failure" in errors


def test_a_status_of_another_boot_says_nothing(data_lab, command):
    data_lab.put("set.tar", make_archive("tar", ENTRY))
    data_lab.stage(data_lab.source("set.tar"))
    (data_lab.root(MASTER) / "proc/sys/kernel/random/boot_id").write_text("boot-2\n")
    assert read_status(data_lab.root(MASTER)) == {"data:set": Step(detail="provisioning has not come to it yet")}
    status, output, _ = command("data")
    assert status == 1
    assert "provisioning has not come to it yet" in output


def test_a_failed_step_keeps_the_parts_of_its_reason_until_it_starts_again(data_lab):
    data_lab.facts(MASTER, data_lab.source("set.tar"))
    status, reason = Status(data_lab.root(MASTER), BriefClock()), Reason("no such key", "upload it", "404")
    status.fail("data:set", reason, is_final=True)
    failed = read_status(data_lab.root(MASTER))["data:set"]
    assert (failed.detail, failed.reason) == (str(reason), reason)
    status.start("data:set", "fetching")
    assert not read_status(data_lab.root(MASTER))["data:set"].reason


def test_every_node_is_asked_and_one_that_is_silent_is_named(data_lab, command, monkeypatch):
    data_lab.put("set.tar", make_archive("tar", ENTRY))
    data_lab.stage(data_lab.source("set.tar"))
    answer = command("data", "--json")[1]

    asked = []

    class Cluster(Remote):
        hosts = ("deeplearning-worker1", "deeplearning-worker2", "deeplearning-worker3")

        def run_all(self, hosts, text, *, seconds):
            asked.append(text)
            return [
                HostResult(hosts[0], 0, f"a banner\n{answer}"),
                HostResult(hosts[1], None, "", "no route to host"),
                HostResult(hosts[2], 0, "deeplearning data: odd\n"),
            ]

    facts = data_lab.facts(MASTER, data_lab.source("set.tar"))
    cluster = Cluster(facts, InstalledMembership(), None, None, is_root=False)
    monkeypatch.setattr(Context, "open_remote", lambda _: cluster)
    status, output, _ = command("data", "--all")
    lines = [line.split()[:4] for line in output.splitlines()]
    assert status == 1
    assert lines[1] == ["deeplearning-worker1", "set", "efs", "done"]
    assert lines[2][:3] == ["deeplearning-worker2", "no", "answer"]
    assert "no route to host" in output
    assert "deeplearning data: odd" in output
    assert asked == ["/usr/local/bin/deeplearning data --json"]
    document = json.loads(command("data", "--all", "--json")[1])
    assert [sorted(node) for node in document["nodes"]] == [["host", "sources"], ["cause", "host"], ["cause", "host"]]
