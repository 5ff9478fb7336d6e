"""Data is named by what can be brought, and nodes are told exactly that."""

from collections.abc import Callable
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3

from deeplearning_cdk import DataSource, JobEnvironment, LustreFileSystem, TrainingCluster
from deeplearning_cdk.nodes.user_data import LIMIT
from deeplearning_cdk.storage.data_source import check_data
from deeplearning_contract.names import NodeRole
from deeplearning_contract.setting_parts import DataSettings, HardwareSettings

DIGEST = "0123456789abcdef" * 4


@pytest.mark.defect("D56")
@pytest.mark.parametrize("key", ["a.tar", "a.tar.gz", "a/b.tgz", "a.zip"])
def test_every_archive_that_can_be_named_is_one_that_nodes_unpack(key: str) -> None:
    source = DataSource("train", "bucket", key, sha256=DIGEST)
    assert (source.is_archive, source.is_prefix) == (True, False)
    assert source.settings == DataSettings("train", "bucket", key, "efs", DIGEST)


@pytest.mark.parametrize("key", ["", "train/", "a b/c(1)/"])
def test_prefixes_and_whole_buckets_are_no_archives(key: str) -> None:
    source = DataSource("train", "bucket", key, "stream")
    assert (source.is_archive, source.is_prefix) == (False, True)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "a/b"}, "data name must be letters, digits and ._- that begin with a letter or digit, 64 at most, "),
        ({"name": ".."}, "data name must be letters, "),
        ({"name": ""}, "data name must be letters, "),
        ({"bucket": "s3://bucket"}, "data bucket must be a bucket's name, got 's3://bucket'; leave s3:// and / out"),
        (
            {"key": "train.tar.bz2"},
            "data key must be an archive (.tar, .tar.gz, .tgz, .zip) or a prefix that ends with /, got ",
        ),
        ({"key": "/train/"}, "data key must be a path of at most 1017 printable bytes without a first /, "),
        ({"key": "tr*in/"}, "data key must be a path of at most 1017 printable bytes without a first /, "),
        ({"key": "${aws:username}/"}, "data key must be a path of at most 1017 printable bytes without a first /, "),
        ({"key": "a\n/"}, "data key must be a path of at most 1017 printable bytes without a first /, "),
        (
            {"target": "nvme"},
            "data target must be one of efs, lustre, local, stream, got 'nvme'; write one of them",
        ),
        (
            {"key": "a.tar", "sha256": "ABC"},
            "data sha256 must be 64 lower-case hex digits, got 'ABC'; ",
        ),
        ({"key": "a/", "sha256": DIGEST}, "data sha256 must be left out without an archive, got one for 'a/'; "),
        ({"key": "a.tar", "target": "lustre"}, "data key must be a prefix with the target lustre, which unpacks "),
        ({"key": "a.zip", "target": "stream"}, "data key must be a prefix with the target stream, which unpacks "),
    ],
)
def test_what_cannot_be_brought_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="must") as caught:
        DataSource(**{"name": "train", "bucket": "bucket", **values})
    assert str(caught.value).startswith(message)


def test_two_sources_of_one_name_are_refused(synthesize: Any) -> None:
    sources = [DataSource("a", "one", "x/"), DataSource("a", "two", "x/")]
    with pytest.raises(ValueError, match="data must have different names, got 'a' twice; rename one"):
        synthesize(data=sources)


def test_lustre_as_a_target_wants_a_lustre(synthesize: Any) -> None:
    source = DataSource("train", "bucket", "train/", "lustre")
    with pytest.raises(ValueError, match="lustre must be given for data train with the target lustre, got none; "):
        synthesize(data=[source])
    assert check_data([source], has_lustre=True) == (source,)


@pytest.mark.parametrize("role", list(NodeRole))
def test_nodes_are_told_of_their_data_with_the_buckets_of_this_stack_by_name(
    make_stack: Callable[..., cdk.Stack], read_stack: Any, role: NodeRole
) -> None:
    stack = make_stack()
    bucket = s3.Bucket(stack, "Data")
    TrainingCluster(stack, "Cluster", data=[DataSource("train", bucket, "t.tar"), DataSource("all", "other")])
    synthesis = read_stack(stack)
    (name,) = synthesis.of_type("AWS::S3::Bucket")
    assert synthesis.settings(role).needs.data == (
        DataSettings("train", f"<{name}>", "t.tar", "efs"),
        DataSettings("all", "other", "", "efs"),
    )


# --- Hardware -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "facts",
    [
        HardwareSettings("p5.48xlarge", gpu_count=8, network_cards=32, efa_cards=32, compute_capability="9.0"),
        HardwareSettings("p4d.24xlarge", gpu_count=8, network_cards=4, efa_cards=4, compute_capability="8.0"),
        HardwareSettings("p3dn.24xlarge", gpu_count=8, network_cards=1, efa_cards=1, compute_capability="7.0"),
        HardwareSettings("g5.xlarge", gpu_count=1, network_cards=1, efa_cards=0, compute_capability="8.6"),
        HardwareSettings("m5.large", gpu_count=0, network_cards=1, efa_cards=0),
        # It could have one, but nodes without an accelerator get a plain interface.
        HardwareSettings("c5n.18xlarge", gpu_count=0, network_cards=1, efa_cards=0),
    ],
    ids=lambda facts: facts.instance_type,
)
@pytest.mark.parametrize("role", list(NodeRole))
def test_every_node_knows_the_hardware_of_both_roles(synthesize: Any, role: NodeRole, facts: HardwareSettings) -> None:
    synthesis = synthesize(worker_instance_type=facts.instance_type)
    assert synthesis.settings(role).needs.hardware == {"master": facts, "worker": facts}


def test_roles_of_different_types_are_told_apart(synthesize: Any) -> None:
    synthesis = synthesize(worker_instance_type="p5.48xlarge", master_instance_type="m5.large")
    hardware = synthesis.settings(NodeRole.MASTER).needs.hardware
    assert (hardware["master"].instance_type, hardware["worker"].instance_type) == ("m5.large", "p5.48xlarge")


def test_the_largest_type_with_data_lustre_and_environment_fits_into_user_data(
    make_stack: Callable[..., cdk.Stack], read_stack: Any, tmp_path: Any
) -> None:
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("torch\n")
    stack = make_stack()
    bucket = s3.Bucket(stack, "Data")
    TrainingCluster(
        stack,
        "Cluster",
        worker_instance_type="p5.48xlarge",
        lustre=LustreFileSystem(stack, "Lustre"),
        data=[DataSource(f"train-{k}", bucket, f"{'long/' * 20}{k}/", "lustre") for k in range(8)],
        environment=JobEnvironment.from_requirements(str(requirements), horovod="0.28.1"),
        environment_cache=bucket,
    )
    size = len(read_stack(stack).user_data(NodeRole.MASTER).encode())
    print(f"user data with data, Lustre and environment: {size} of {LIMIT} bytes before what deployment fills in")
    assert size < LIMIT
