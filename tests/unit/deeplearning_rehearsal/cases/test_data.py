"""Made-up data in S3, and what a case sees of it on the nodes."""

import hashlib
import io
import json
import subprocess
import tarfile
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deeplearning_contract.names import DATA_SETS
from deeplearning_rehearsal.cases.format.account import DIGEST_COMMAND, DataObject, digest_tree, fill_account
from deeplearning_rehearsal.cases.format.case import Case, CaseError
from deeplearning_rehearsal.cases.format.expectations import (
    CaseObservations,
    Expectations,
    NodeObservations,
    check_expectations,
)
from deeplearning_rehearsal.cases.format.triggers import parse_target, parse_trigger
from deeplearning_rehearsal.cases.run.cloud_faults import add_faults, make_cloud_options
from deeplearning_rehearsal.cases.verdict.observations import list_sources, look_at_needs
from deeplearning_rehearsal.software.kept_environments import KeptEnvironments
from tests.unit.deeplearning_rehearsal.trial import Account, parse_trial

OBJECT = DataObject("bucket", "coco.tar", files=10, file_bytes=100)
NOTHING_KEPT = KeptEnvironments(Path("/nonexistent"), None, print)
CASE = """
title = "Data comes"
expect = "formed"
context = { "storage.data" = '[{"name": "coco", "bucket": "bucket", "key": "coco.tar"}]' }
[[object]]
bucket = "bucket"
key = "coco.tar"
files = 10
file_bytes = 100
[cloud]
object_seconds = 0.5
[seen]
data_complete = ["coco"]
"""


def test_each_archive_holds_the_same_made_up_files() -> None:
    tree = OBJECT.make_tree()
    assert len(tree) == 10
    assert {len(content) for content in tree.values()} == {100}
    for ending in (".tar", ".tar.gz", ".tgz"):
        (body,) = replace(OBJECT, key=f"coco{ending}").make_objects().values()
        with tarfile.open(fileobj=io.BytesIO(body)) as archive:
            assert {Path(name).name for name in archive.getnames()} == {Path(path).name for path in tree}
        assert (body[:2] == b"\x1f\x8b") == (ending != ".tar")
    (body,) = replace(OBJECT, key="coco.zip").make_objects().values()
    assert sorted(zipfile.ZipFile(io.BytesIO(body)).namelist()) == sorted(replace(OBJECT, key="coco.zip").make_tree())
    assert set(replace(OBJECT, key="coco/").make_objects()) == {f"coco/{path}" for path in tree}
    assert OBJECT.make_tree() == tree


def test_an_archive_that_is_kept_in_part_is_cut_off() -> None:
    (whole,) = OBJECT.make_objects().values()
    (part,) = replace(OBJECT, kept=0.5).make_objects().values()
    assert part == whole[: len(whole) // 2]


def test_the_digest_of_a_tree_is_what_a_shell_prints_in_its_folder(tmp_path: Path) -> None:
    tree = OBJECT.make_tree()
    for path, content in tree.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(content)
    answer = subprocess.run(["bash", "-c", DIGEST_COMMAND], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == digest_tree(tree)
    assert digest_tree({**tree, "part0/000000.bin": b"other"}) != digest_tree(tree)


def test_a_case_puts_its_objects_into_the_account_before_its_stack_is_there() -> None:
    case = parse_trial(CASE)
    assert case.objects == (OBJECT,)
    options, account = add_faults(make_cloud_options(), case, NOTHING_KEPT), Account()
    assert options.object_seconds == 0.5
    place: Any = account
    options.prepare(place)
    bucket = {"Bucket": "bucket", "CreateBucketConfiguration": {"LocationConstraint": "eu-west-1"}}
    (content,) = OBJECT.make_objects().values()
    uploaded = {"Bucket": "bucket", "Key": "coco.tar", "Body": content}
    assert account.calls == [("create_bucket", bucket), ("put_object", uploaded)]
    fill_account(place, (OBJECT, replace(OBJECT, key="other.tar")), (), NOTHING_KEPT)
    assert [arguments.get("Key") for _, arguments in account.calls[2:]] == [None, "coco.tar", "other.tar"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('key = "coco.tar"\nfiles', 'key = "coco.rar"\nfiles', r"object\[0\]\.key must end with / or one of \.tar"),
        ("file_bytes = 100", "file_bytes = 100\nkept = 1.5", r"object\[0\]\.kept must be a part of an archive"),
        ("file_bytes = 100", "file_bytes = 100\nsize = 1", r"object\[0\]\.size must be left out"),
        ('["coco"]', "[1]", r"seen\.data_complete must be a list"),
        ('data_complete = ["coco"]', "needs_failed = { environment = 1 }", r"seen\.needs_failed must be a table whose"),
        (
            'expect = "formed"',
            'expect = "failed"',
            r"seen\.data_complete must be left out: it needs a cluster that forms",
        ),
    ],
)
def test_invalid_data_of_a_case_is_refused(old: str, new: str, message: str) -> None:
    assert old in CASE
    with pytest.raises(CaseError, match=message):
        parse_trial(CASE.replace(old, new))


class Lab:
    """Nodes with a status file, and digests by node."""

    def __init__(self, folder: Path, digests: dict[str, str], steps: dict[str, Any]) -> None:
        self._folder = folder
        self._digests = digests
        for node in digests:
            file = folder / node / "opt/deeplearning/provision/status.json"
            file.parent.mkdir(parents=True)
            file.write_text(json.dumps({"boot": "b", "steps": steps}))

    def disk(self, instance_id: str) -> Path:
        return self._folder / instance_id

    def run(self, instance_id: str, argv: Sequence[str], **options: Any) -> "subprocess.CompletedProcess[str]":
        assert (options["user"], options.get("login_shell", False)) == ("ubuntu", False)
        assert options["timeout"] > 60
        assert argv[2].startswith("cd /opt/deeplearning/data/coco ")
        digest = self._digests[instance_id]
        return subprocess.CompletedProcess(list(argv), 0 if digest else 1, digest + "\n", "")


def _look(case: Case, lab: Lab) -> NodeObservations:
    return look_at_needs(case, lab, ("i-0", "i-1"), "ubuntu")


def _judge(case: Case, observations: NodeObservations) -> tuple[bool, str]:
    (finding,) = check_expectations(case.seen, CaseObservations(needs=observations))
    return finding.is_held, finding.found


def test_data_is_complete_when_each_node_has_what_s3_holds(tmp_path: Path) -> None:
    case, digest = parse_trial(CASE), digest_tree(OBJECT.make_tree())
    assert list_sources(case) == {"coco": OBJECT}
    whole = _look(case, Lab(tmp_path / "a", {"i-0": digest, "i-1": digest}, {}))
    assert _judge(case, whole) == (True, "2 nodes have it")
    other = hashlib.sha256(b"other").hexdigest()
    wrong = _look(case, Lab(tmp_path / "b", {"i-0": digest, "i-1": other}, {}))
    assert _judge(case, wrong) == (False, f"i-1: {other}")
    missing = _look(case, Lab(tmp_path / "c", {"i-0": digest, "i-1": ""}, {}))
    assert _judge(case, missing) == (False, "i-1: absent")
    assert _judge(case, NodeObservations()) == (False, "any node: absent")


def test_a_failure_for_good_is_seen_only_with_its_words_and_nothing_in_place(tmp_path: Path) -> None:
    failing = replace(parse_trial(CASE), seen=Expectations(needs_failed={"data:coco": "is cut off"}))
    step = {"state": "failed", "detail": "coco.tar is cut off; upload it again", "final": True}

    def judge(name: str, digest: str, **changes: Any) -> bool:
        lab = Lab(tmp_path / name, {"i-0": digest, "i-1": ""}, {"data:coco": step | changes})
        return _judge(failing, _look(failing, lab))[0]

    assert judge("as-promised", "")
    assert not judge("half-extracted", "0" * 64)
    assert not judge("tried-again", "", final=False)
    assert not judge("other-words", "", detail="no route")
    assert not judge("done", "", state="done")


def test_a_moment_of_provisioning_comes_with_its_part() -> None:
    trigger = parse_trigger("master has 40 % of data:coco")
    assert trigger is not None
    assert trigger.values == {"target": parse_target("master"), "step": "data:coco", "percent": 40}

    class Situation:
        part = 0.39

        def instance(self, _target: Any) -> str:
            return "i-0"

        def provisioned(self, instance_id: str, step: str) -> float:
            assert (instance_id, step) == ("i-0", "data:coco")
            return self.part

    situation: Any = Situation()
    assert not trigger.is_due(situation, 0.0)
    situation.part = 0.4
    assert trigger.is_due(situation, 0.0)
    assert parse_trigger("somebody has 40 % of data:coco") is None


def test_a_known_data_set_made_small_has_every_part_that_jobs_ask_for() -> None:
    tree = DataObject("bucket", "coco-2017.tar", data_set="coco-2017").make_tree()
    for path in DATA_SETS["coco-2017"].values():
        assert any(found == path or found.startswith(f"{path}/") for found in tree), path
    train = json.loads(tree["annotations/instances_train2017.json"])
    assert all(f"train2017/{image['file_name']}" in tree for image in train["images"])


def test_made_up_files_and_those_of_a_data_set_are_not_asked_for_together() -> None:
    text = CASE.replace("file_bytes = 100", 'file_bytes = 100\ndata_set = "coco-2017"')
    with pytest.raises(CaseError, match="files"):
        parse_trial(text)
