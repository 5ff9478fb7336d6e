"""Data is named by what can be brought, and nodes are told exactly that."""

import aws_cdk as cdk
import pytest
from aws_cdk import aws_s3 as s3

from deeplearning_cdk import DataSource, EnvironmentCache, JobEnvironment, Lustre, Storage, TrainingCluster
from deeplearning_cdk.nodes.user_data import LIMIT
from deeplearning_contract.names import NodeRole
from deeplearning_contract.setting_parts import DataSettings, HardwareSettings
from tests.unit.deeplearning_cdk.clusters import plan, props_of

DIGEST = "0123456789abcdef" * 4


@pytest.mark.defect("D56")
@pytest.mark.parametrize("key", ["a.tar", "a.tar.gz", "a/b.tgz", "a.zip"])
def test_every_archive_that_can_be_named_is_one_that_nodes_unpack(key):
    source = DataSource("train", "bucket", key, sha256=DIGEST)
    assert (source.is_archive, source.is_prefix) == (True, False)
    assert source.settings == DataSettings("train", "bucket", key, "efs", DIGEST)


@pytest.mark.parametrize("key", ["", "train/", "a b/c(1)/"])
def test_prefixes_and_whole_buckets_are_no_archives(key):
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
def test_an_invalid_data_source_is_refused(values, message):
    with pytest.raises(ValueError, match="must") as caught:
        DataSource(**{"name": "train", "bucket": "bucket", **values})
    assert str(caught.value).startswith(message)


def test_two_sources_of_one_name_are_refused():
    with pytest.raises(ValueError, match=r"^storage\.data must have unique names, got 'a' twice; rename one"):
        Storage(data=[DataSource("a", "one", "x/"), DataSource("a", "two", "x/")])


def test_lustre_as_a_target_wants_a_lustre():
    source = DataSource("train", "bucket", "train/", "lustre")
    said = r"^storage\.lustre must be given for data train with the target lustre, got none; pass Lustre\(\), "
    with pytest.raises(ValueError, match=said):
        Storage(data=[source])
    assert Storage(data=[source], lustre=Lustre()).data == [source]


@pytest.fixture(scope="module")
def laden(make_app, read_stack, tmp_path_factory):
    """A cluster of the largest type with all the data, the environment and the cache that it can have."""
    requirements = tmp_path_factory.mktemp("software") / "requirements.txt"
    requirements.write_text("torch\n")
    stack = cdk.Stack(make_app(), "Stack")
    bucket = s3.Bucket(stack, "Data")
    linked = [DataSource(f"train-{k}", bucket, f"{'long/' * 20}{k}/", "lustre") for k in range(8)]
    props = {
        "workers.instance_type": "p5.48xlarge",
        "storage.lustre": Lustre(),
        "storage.data": [DataSource("train", bucket, "t.tar"), DataSource("all", "other"), *linked],
        "software.environment": JobEnvironment.from_requirements(str(requirements), horovod="0.28.1"),
        "software.environment_cache": EnvironmentCache(bucket),
    }
    TrainingCluster(stack, "Cluster", **props_of(props))
    return read_stack(stack)


@pytest.mark.parametrize("role", list(NodeRole))
def test_settings_contain_the_data_with_the_buckets_of_this_stack_by_name(laden, role):
    (name,) = laden.of_type("AWS::S3::Bucket")
    assert laden.settings(role).needs.data[:2] == (
        DataSettings("train", f"<{name}>", "t.tar", "efs"),
        DataSettings("all", "other", "", "efs"),
    )


def test_the_largest_type_with_data_lustre_and_environment_fits_into_user_data(laden):
    size = len(laden.user_data(NodeRole.MASTER).encode())
    print(f"user data with data, Lustre and environment: {size} of {LIMIT} bytes before what deployment fills in")
    assert size < LIMIT


# --- Hardware -----------------------------------------------------------------------------------------

P3DN = HardwareSettings("p3dn.24xlarge", gpu_count=8, network_cards=1, efa_cards=1, compute_capability="7.0")


@pytest.mark.parametrize(
    "facts",
    [
        HardwareSettings("p5.48xlarge", gpu_count=8, network_cards=32, efa_cards=32, compute_capability="9.0"),
        HardwareSettings("p4d.24xlarge", gpu_count=8, network_cards=4, efa_cards=4, compute_capability="8.0"),
        P3DN,
        HardwareSettings("g5.xlarge", gpu_count=1, network_cards=1, efa_cards=0, compute_capability="8.6"),
        HardwareSettings("m5.large", gpu_count=0, network_cards=1, efa_cards=0),
        # It could have one, but nodes without an accelerator get a plain interface.
        HardwareSettings("c5n.18xlarge", gpu_count=0, network_cards=1, efa_cards=0),
    ],
    ids=lambda facts: facts.instance_type,
)
def test_the_hardware_of_both_roles_is_that_of_their_type(facts):
    planned = plan({"workers.instance_type": facts.instance_type})
    assert planned.hardware == {"master": facts, "worker": facts}


@pytest.mark.parametrize("role", list(NodeRole))
def test_settings_of_every_node_contain_the_hardware_of_both_roles(synthesize, role):
    assert synthesize().settings(role).needs.hardware == {"master": P3DN, "worker": P3DN}


def test_roles_of_different_types_are_distinguished():
    hardware = plan({"workers.instance_type": "p5.48xlarge", "master.instance_type": "m5.large"}).hardware
    assert (hardware["master"].instance_type, hardware["worker"].instance_type) == ("m5.large", "p5.48xlarge")
