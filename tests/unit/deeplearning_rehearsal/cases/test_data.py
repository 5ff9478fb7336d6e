"""Made-up data in S3, and what a case sees of it on the nodes."""

import hashlib
import io
import json
import subprocess
import tarfile
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from deeplearning_contract.names import DATA_SETS
from deeplearning_rehearsal.cases.account import DIGEST_COMMAND, DataObject, digest_tree, fill_account
from deeplearning_rehearsal.cases.case import CloudFaults
from deeplearning_rehearsal.cases.provisioned_data import (
    find_failure,
    find_incomplete,
    has_provisioned,
    list_sources,
    read_steps,
)
from deeplearning_rehearsal.cases.run.cloud_faults import add_faults, make_cloud_options
from deeplearning_rehearsal.software.kept_environments import KeptEnvironments
from tests.unit.deeplearning_rehearsal.trial import Account, make_trial

OBJECT = DataObject("bucket", "coco.tar", files=10, file_bytes=100)
NOTHING_KEPT = KeptEnvironments(Path("/nonexistent"), None, print)
CASE = make_trial(
    expect="formed",
    context={"storage.data": [{"name": "coco", "bucket": "bucket", "key": "coco.tar"}]},
    objects=[OBJECT],
    cloud=CloudFaults(object_seconds=0.5),
)


def test_each_archive_holds_the_same_made_up_files():
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


def test_an_archive_that_is_kept_in_part_is_cut_off():
    (whole,) = OBJECT.make_objects().values()
    (part,) = replace(OBJECT, kept=0.5).make_objects().values()
    assert part == whole[: len(whole) // 2]


def test_the_digest_of_a_tree_is_what_a_shell_prints_in_its_folder(tmp_path):
    tree = OBJECT.make_tree()
    for path, content in tree.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_bytes(content)
    answer = subprocess.run(["bash", "-c", DIGEST_COMMAND], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == digest_tree(tree)
    assert digest_tree({**tree, "part0/000000.bin": b"other"}) != digest_tree(tree)


def test_a_case_puts_its_objects_into_the_account_before_its_stack_is_there():
    options, account = add_faults(make_cloud_options(), CASE, NOTHING_KEPT), Account()
    assert options.object_seconds == 0.5
    place = account
    options.prepare(place)
    bucket = {"Bucket": "bucket", "CreateBucketConfiguration": {"LocationConstraint": "eu-west-1"}}
    (content,) = OBJECT.make_objects().values()
    uploaded = {"Bucket": "bucket", "Key": "coco.tar", "Body": content}
    assert account.calls == [("create_bucket", bucket), ("put_object", uploaded)]
    fill_account(place, (OBJECT, replace(OBJECT, key="other.tar")), (), NOTHING_KEPT)
    assert [arguments.get("Key") for _, arguments in account.calls[2:]] == [None, "coco.tar", "other.tar"]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"key": "coco.rar"}, r"key must end with / or one of \.tar"),
        ({"kept": 1.5}, r"kept must be a part of an archive"),
        ({"data_set": "coco-2017"}, "files must be left out with data_set, which has its own"),
        ({"files": None}, "files must be given"),
    ],
)
def test_invalid_data_of_a_case_is_refused(keys, message):
    with pytest.raises(ValueError, match=message):
        replace(OBJECT, **keys)


class Lab:
    """Nodes with a status file, and digests by node."""

    def __init__(self, folder, digests, steps):
        self._folder = folder
        self._digests = digests
        for node in digests:
            file = folder / node / "opt/deeplearning/provision/status.json"
            file.parent.mkdir(parents=True)
            file.write_text(json.dumps({"boot": "b", "steps": steps}))

    def disk(self, instance_id):
        return self._folder / instance_id

    def run(self, instance_id, argv, **options):
        assert (options["user"], options.get("login_shell", False)) == ("ubuntu", False)
        assert options["timeout"] > 60
        assert argv[2].startswith("cd /opt/deeplearning/data/coco ")
        digest = self._digests[instance_id]
        return subprocess.CompletedProcess(list(argv), 0 if digest else 1, digest + "\n", "")


def _find_incomplete(folder, **digests):
    lab = Lab(folder, {name.replace("_", "-"): digest for name, digest in digests.items()}, {})
    machines = tuple(SimpleNamespace(instance_id=name.replace("_", "-")) for name in digests)
    fleet = SimpleNamespace(machines=lambda: machines)
    return find_incomplete(CASE, lab, fleet, "ubuntu", "coco")


def test_data_is_complete_when_each_node_has_what_s3_holds(tmp_path):
    digest, other = digest_tree(OBJECT.make_tree()), hashlib.sha256(b"other").hexdigest()
    assert list_sources(CASE) == {"coco": OBJECT}
    assert _find_incomplete(tmp_path / "a", i_0=digest, i_1=digest) == {}
    assert _find_incomplete(tmp_path / "b", i_0=digest, i_1=other) == {"i-1": other}
    assert _find_incomplete(tmp_path / "c", i_0=digest, i_1="") == {"i-1": "absent"}
    assert _find_incomplete(tmp_path / "d") == {"any node": "absent"}


STEP = {"state": "failed", "detail": "coco.tar is cut off; upload it again", "final": True}


def test_a_failure_is_one_for_good():
    assert find_failure([{}, {"data:coco": STEP}], "data:coco") == "coco.tar is cut off; upload it again"
    assert find_failure([{"data:coco": STEP | {"final": False}}], "data:coco") == ""
    assert find_failure([{"data:coco": STEP | {"state": "done"}}], "data:coco") == ""


def test_data_is_waited_for_on_every_node_and_a_failure_on_one(tmp_path):
    done, failed = {"data:coco": {"state": "done"}}, {"data:coco": {"state": "done"}, "environment": STEP}
    assert has_provisioned([done, done], ["data:coco"])
    assert not has_provisioned([done, {}], ["data:coco"])
    assert not has_provisioned([done, done], ["data:coco"], "environment")
    assert has_provisioned([done, failed], ["data:coco"], "environment")
    lab = Lab(tmp_path, {"i-0": "", "i-1": ""}, done)
    assert [read_steps(lab, name) for name in ("i-0", "i-2")] == [done, {}]


def test_a_known_data_set_made_small_has_every_part_that_jobs_ask_for():
    tree = DataObject("bucket", "coco-2017.tar", data_set="coco-2017").make_tree()
    for path in DATA_SETS["coco-2017"].values():
        assert any(found == path or found.startswith(f"{path}/") for found in tree), path
    train = json.loads(tree["annotations/instances_train2017.json"])
    assert all(f"train2017/{image['file_name']}" in tree for image in train["images"])
