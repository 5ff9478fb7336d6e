"""A job that attacks another of its stack, as root with the whole shared file system and the role of all jobs."""

import hashlib
import hmac
import json
import logging
from dataclasses import replace

import pytest

from deeplearning_contract.cluster_state import ClusterState
from deeplearning_jobs.plan.checkpoints import find_newest
from deeplearning_jobs.runs.job_folder import JobFolder
from deeplearning_member.cluster_folder import ClusterFolder
from deeplearning_member.membership_service import FRESH_SECONDS
from deeplearning_member.sagemaker.rounds import Round, RoundFile
from deeplearning_member.signed_file import UNSIGNED, Signer
from tests.unit.deeplearning_member.conftest import (
    CLUSTER_ID,
    cluster,  # noqa: F401 - pytest finds fixtures by their names
)
from tests.unit.deeplearning_member.kubernetes.conftest import (
    JOB_UID,
    pods,  # noqa: F401 - pytest finds fixtures by their names
)
from tests.unit.deeplearning_member.sagemaker.conftest import containers  # noqa: F401 - the same
from tests.unit.node_lab import agent_folder, lab, make_lab, ticking_clock  # noqa: F401 - the same

HOSTILE_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHostileHostileHostileHostileHostileHost"
OTHER_SECRET = "0f" * 32
SIGNERS = [UNSIGNED, Signer(OTHER_SECRET), Signer("guess")]


@pytest.fixture
def formed(pods):  # noqa: F811 - the fixture
    """Pods of one job that have formed."""
    pods.start(0, 1, 2)
    for _ in range(3):
        state = pods.turn(1, 2, 0)
    assert state is not None
    return pods


def count_refusals(caplog, name):
    return sum(record.message.startswith("ignored ") and name in record.message for record in caplog.records)


def read_state(pods, index):  # noqa: F811 - the fixture
    """Return the membership as a pod of the job reads it."""
    state = pods.services[index][1]._folder.read_membership()
    assert state is not None
    return state


@pytest.mark.parametrize("signer", SIGNERS, ids=["unsigned", "another job's", "guessed"])
def test_a_membership_that_another_job_wrote_reaches_no_pod(formed, signer, caplog):
    state, before = read_state(formed, 1), formed.membership(1)
    node, _ = formed.services[1]
    hostile = replace(state, generation=state.generation + 1, user_key=HOSTILE_KEY)
    ClusterFolder(node, JOB_UID, signer).write_membership(hostile)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            formed.turn(1, 2)
    assert formed.membership(1) == before
    assert count_refusals(caplog, "membership.json") == 2, "one line for each pod"
    assert not any(HOSTILE_KEY in path.read_text() for path in node.root.rglob("authorized_keys"))
    assert formed.turn(0).user_key != HOSTILE_KEY
    assert read_state(formed, 1).generation > state.generation - 1, "the master writes it anew"


def test_a_signed_membership_of_an_earlier_generation_is_ignored(formed, caplog):
    path = formed.folder / "membership.json"
    earlier, before = path.read_text(), read_state(formed, 1)
    formed.start(2)
    for _ in range(3):
        formed.turn(1, 2, 0)
    later = formed.membership(1)
    assert later[0] > before.generation
    path.write_text(earlier)
    with caplog.at_level(logging.WARNING):
        formed.turn(1)
        formed.turn(1)
    assert formed.membership(1) == later
    assert count_refusals(caplog, "membership.json") == 1


def test_a_new_master_goes_on_from_the_generation_of_its_pods_though_an_earlier_one_was_put_back(formed):
    path = formed.folder / "membership.json"
    earlier = path.read_text()
    for index in (2, 1):
        formed.start(index)
        for _ in range(3):
            formed.turn(1, 2, 0)
    newest, _ = formed.membership(1)
    path.write_text(earlier)
    formed.start(0)
    for _ in range(4):
        formed.turn(0, 1, 2)
    generation, members = formed.membership(1)
    assert generation > newest
    assert members[0] == formed.services[0][0].identity.instance_id


@pytest.mark.parametrize("signer", SIGNERS, ids=["unsigned", "another job's", "guessed"])
def test_a_pod_of_another_job_is_no_member_whatever_it_announces(formed, signer, caplog):
    before = formed.membership(0)
    node, service = formed.services[1]
    member = replace(service._member, instance_id="train-digits-1-zzzzz", address="10.0.9.9")
    intruder = ClusterFolder(node, JOB_UID, signer)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            intruder.announce(member, 0)
            formed.turn(0, 1, 2)
    assert formed.membership(0) == before
    assert count_refusals(caplog, "train-digits-1-zzzzz") == 3, "one line for each pod"


def test_the_announcement_of_a_pod_stands_for_no_other(formed):
    folder = formed.folder / "members"
    path = folder / f"{formed.services[1][0].identity.instance_id}.json"
    (folder / "train-digits-1-zzzzz.json").write_text(path.read_text())
    before = formed.membership(0)
    formed.turn(0, 1, 2)
    assert formed.membership(0) == before


def test_an_announcement_that_is_put_back_keeps_no_lost_pod(formed):
    node, _ = formed.services[2]
    path = formed.folder / "members" / f"{node.identity.instance_id}.json"
    earlier = path.read_text()
    formed.clock.wait(10)
    formed.turn(2)
    newest = path.read_text()
    lost = formed.services.pop(2)
    formed.turn(0)
    for _ in range(int(FRESH_SECONDS / 10) + 2):
        formed.clock.wait(10)
        path.write_text(earlier)
        formed.turn(0)
        path.write_text(newest)
        formed.turn(0)
    assert lost[1]._member.instance_id not in formed.membership(0)[1]


def test_a_signature_is_that_of_one_place_one_job_and_one_text(tmp_path):
    path = tmp_path / "file"
    Signer("a").write(path, "membership.json", "{}")
    assert Signer("a").read(path, "membership.json") == "{}"
    text, signature = path.read_text().splitlines()
    assert signature == hmac.new(b"a", b"membership.json\n{}", hashlib.sha256).hexdigest()
    for signer, place in ((Signer("b"), "membership.json"), (Signer("a"), "members/a.json")):
        with pytest.raises(ValueError, match="signature must be made by a member of this job"):
            signer.read(path, place)
    for content in ("", "{}", "{}\n", f"{text} \n{signature}\n", f"{text}\n{signature}0\n", f"{text}\n\xe9\n"):
        path.write_text(content)
        with pytest.raises(ValueError, match="signature must be made by a member of this job"):
            Signer("a").read(path, "membership.json")


def test_a_membership_that_was_deleted_is_published_anew(formed):
    _, members = formed.membership(1)
    (formed.folder / "membership.json").unlink()
    for _ in range(3):
        formed.turn(0, 1, 2)
    assert formed.membership(1)[1] == members


def test_checkpoints_of_a_job_are_not_checked(tmp_path):
    """A limit, which the page about security names: root of any container writes the shared file system."""
    checkpoints = JobFolder("train", tmp_path).checkpoints
    checkpoints.mkdir()
    (checkpoints / "epochs-1.pt").write_text("own")
    (checkpoints / "epochs-2.pt").write_text("hostile")
    assert find_newest(checkpoints).endswith("/epochs-2.pt")


def test_on_emr_the_cluster_is_the_boundary_and_memberships_are_not_signed(cluster):  # noqa: F811 - the fixture
    cluster.start(0, 1, 2)
    cluster.turn(3)
    folder = ClusterFolder(cluster.services[1]._node, CLUSTER_ID)
    state = folder.read_membership()
    assert state is not None
    folder.write_membership(replace(state, generation=state.generation + 1))
    cluster.services[1].follow()
    assert cluster.generation(1)[0] == state.generation + 1


# --- SageMaker --------------------------------------------------------------------------------------


@pytest.mark.parametrize("signer", SIGNERS, ids=["unsigned", "another job's", "guessed"])
def test_a_container_takes_no_round_and_no_membership_of_another_job(containers, signer, caplog):  # noqa: F811
    meetings = {number: containers.meet(number) for number in (1, 2, 3)}
    node = containers.node(2)
    meetings[2].take_turn()
    own = meetings[2]._round
    assert own is not None
    with caplog.at_level(logging.WARNING):
        RoundFile(node, signer).write(Round("hostile"))
        state = ClusterState.from_text(json.dumps(_describe_state(containers)))
        ClusterFolder(node, "hostile", signer).write_membership(state)
        for _ in range(3):
            assert meetings[2].take_turn() is None
    assert meetings[2]._round == own
    assert count_refusals(caplog, "round.json") == 1
    ClusterFolder(node, own.id, signer).write_membership(state)
    meetings[1].begin()
    for _ in range(3):
        for meeting in meetings.values():
            meeting.take_turn()
    assert not any(HOSTILE_KEY in path.read_text() for path in node.root.rglob("authorized_keys"))


def _describe_state(containers):  # noqa: F811 - the fixture
    member = {"instance_id": "algo-2", "address": "10.0.0.2", "gpu_count": 2, "host_key": HOSTILE_KEY}
    return {
        "cluster": containers.folder.name,
        "revision": 9,
        "generation": 9,
        "phase": "formed",
        "requested": 1,
        "expected": ["algo-2"],
        "members": [member],
        "user_key": HOSTILE_KEY,
        "has_formed": True,
    }
