"""Horovod's framework fits image and GPUs, or is refused before anything is made."""

import json
import re

import pytest

from deeplearning_cdk import EnvironmentCache, InstanceTypeFacts, JobEnvironment, NodeImage, Spending
from deeplearning_cdk.catalog.instance_catalog import read_catalog
from deeplearning_cdk.catalog.torch_wheels import find_unfit, suggest_versions
from deeplearning_cdk.nodes.environment_choice import _LEAST_MEMORY_MIB
from deeplearning_cdk.warnings import add_warnings
from deeplearning_contract.names import NodeRole
from deeplearning_contract.setting_parts import EnvironmentSettings
from deeplearning_provision.horovod.plan import BYTES_A_JOB
from tests.unit.deeplearning_cdk.clusters import plan
from tests.unit.deeplearning_cdk.test_public_api import VARIANTS

_SETTINGS = re.compile(r"<<'SETTINGS'\n(.*)\nSETTINGS\n")
HOROVOD = JobEnvironment.with_horovod()
STOCK = NodeImage.ubuntu()
OWN = NodeImage.from_ami_id("ami-0123456789abcdef0", login_user="ubuntu")
ISOLATED = {
    "network.isolated": True,
    "software.image": NodeImage.ubuntu(has_packages=True),
    "workers.instance_type": "m5.large",
}


def _choose(worker, environment=None, *, image=None, master=None):
    software = {"software.environment": environment, "software.image": image}
    chosen = plan({"workers.instance_type": worker, "master.instance_type": master, **software}).environment
    assert chosen is not None
    return chosen


@pytest.mark.parametrize(
    ("worker", "framework"),
    [
        ("p3dn.24xlarge", "torch==2.7.1"),
        ("g3.4xlarge", "torch==2.7.1"),
        ("m5.large", "torch==2.13.0"),
        ("c7g.large", "torch==2.13.0"),
        ("g4dn.12xlarge", "torch==2.13.0"),
        ("p5.48xlarge", "torch==2.13.0"),
        ("p6-b300.48xlarge", "torch==2.13.0"),
    ],
)
def test_the_framework_that_is_installed_fits_the_gpus(worker, framework):
    chosen = _choose(worker)
    assert (chosen.kind, chosen.horovod, chosen.framework) == ("horovod", "0.28.1", framework)
    assert _choose(worker, HOROVOD) == chosen


def test_the_gpus_of_the_master_count_too():
    assert _choose("p5.48xlarge", master="m5.large").framework == "torch==2.13.0"
    assert _choose("m5.large", master="p3dn.24xlarge").framework == "torch==2.7.1"
    with pytest.raises(
        ValueError, match=r"^framework must have a torch .* of p6-b200\.48xlarge \(compute capability 10"
    ):
        _choose("p6-b200.48xlarge", master="p3dn.24xlarge")


def test_settings_contain_horovod_and_the_framework(synthesize):
    found = synthesize(**VARIANTS["guarded-spending"])
    expected = EnvironmentSettings("horovod", horovod="0.28.1", framework="torch==2.13.0")
    assert {found.settings(role).needs.environment for role in NodeRole} == {expected}


@pytest.mark.parametrize("framework", ["torch==2.15.0", "tensorflow==2.15.1", "tensorflow==2.18.1"])
def test_an_exact_version_of_a_framework_is_taken(framework):
    environment = JobEnvironment.with_horovod(framework=framework)
    assert _choose("m5.large", environment, image=OWN).framework == framework


@pytest.mark.parametrize(
    ("framework", "rule"),
    [
        *(
            (each, "one exact version of torch or tensorflow, got ")
            for each in ("torch", "torch>=2.7", "torch==2.7", "torch==2.*", "torch==2.7.1+cu126", "mxnet==1.9.1", "")
        ),
        ("torch==2.7.1 numpy", "one exact version of torch or tensorflow, got "),
        *(
            (f"tensorflow=={each}", r"a TensorFlow up to 2\.18, against which Horovod compiles")
            for each in ("2.19.0", "2.20.0", "3.0.0")
        ),
    ],
)
def test_anything_else_is_no_framework(framework, rule):
    with pytest.raises(ValueError, match=f"^framework must be {rule}"):
        JobEnvironment.with_horovod(framework=framework)


def test_a_tensorflow_without_a_wheel_for_the_images_python_is_refused():
    early, later = (JobEnvironment.with_horovod(framework=f"tensorflow=={each}") for each in ("2.15.1", "2.16.2"))
    with pytest.raises(
        ValueError, match=r"^framework must have a wheel for the image's Python 3\.12, got 'tensorflow==2"
    ):
        _choose("m5.large", early)
    assert _choose("m5.large", later).framework == "tensorflow==2.16.2"
    assert _choose("m5.large", early, image=OWN).framework == "tensorflow==2.15.1"


@pytest.mark.parametrize("python", ["3", "3.11", "3.12", "3.14"])
def test_the_interpreter_that_an_image_names_decides_whether_a_framework_has_a_wheel(python):
    early = JobEnvironment.with_horovod(framework="tensorflow==2.15.1")
    image = NodeImage.from_ssm_parameter(
        "/team/image", login_user="me", interpreter=f"/usr/bin/python{python}", root_device="/dev/xvda"
    )
    if python in ("3", "3.11"):
        assert _choose("m5.large", early, image=image).framework == early.framework
        return
    remedy = "write tensorflow==2.16.2, or pass an image with such a Python"
    with pytest.raises(
        ValueError, match=rf"^framework must have a wheel for the image's Python {python}, .*; {remedy}"
    ):
        _choose("m5.large", early, image=image)


def test_the_interpreter_of_the_image_is_in_the_settings_unless_it_is_the_systems(synthesize):
    base = NodeImage.deep_learning_amazon_linux("base-oss-nvidia-driver-gpu-amazon-linux-2023")
    for image, expected in ((base, "/usr/bin/python3.12"), (STOCK, None)):
        synthesis = synthesize(**{"workers.instance_type": "g5.xlarge", "software.image": image})
        for role in NodeRole:
            environment = json.loads(_SETTINGS.findall(synthesis.user_data(role))[0])["needs"]["environment"]
            assert environment.get("interpreter") == expected


def test_a_framework_beside_that_of_the_image_is_refused_because_it_would_not_be_installed():
    pinned = JobEnvironment.with_horovod(framework="torch==2.13.0")
    with pytest.raises(ValueError, match=r"^framework must be left out with an image that has PyTorch, got 'torch==2"):
        _choose("g5.12xlarge", pinned)
    assert _choose("g5.12xlarge", pinned, image=STOCK).framework == "torch==2.13.0"


# --- Code for the GPUs --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("worker", "version", "fits"),
    [
        ("p3dn.24xlarge", (2, 7), True),
        ("p3dn.24xlarge", (2, 10), True),
        ("p3dn.24xlarge", (2, 11), False),
        ("p3dn.24xlarge", (2, 15), False),
        ("g3.4xlarge", (2, 7), True),
        ("g3.4xlarge", (2, 8), False),
        ("p2.xlarge", (2, 1), False),
        ("g4dn.xlarge", (2, 15), True),
        ("g6.xlarge", (2, 1), True),
        ("p6-b200.48xlarge", (2, 7), False),
        ("p6-b200.48xlarge", (2, 8), True),
        ("p6-b300.48xlarge", (2, 8), True),
        ("g7e.2xlarge", (2, 7), False),
        ("g5g.xlarge", (2, 10), False),
        ("g5g.xlarge", (2, 13), False),
        ("m5.large", (2, 15), True),
        ("p2.xlarge", (1, 13), True),
        ("p5.48xlarge", (3, 0), True),
    ],
)
def test_wheels_of_torch_have_code_for_some_gpus_and_not_for_others(worker, version, *, fits):
    assert (find_unfit(version, (read_catalog()[worker],)) is None) is fits


@pytest.mark.parametrize(
    ("workers", "versions"),
    [
        (("p3dn.24xlarge",), "2.1 to 2.10"),
        (("g3.4xlarge",), "2.1 to 2.7"),
        (("p6-b200.48xlarge",), "2.8 and later"),
        (("p3dn.24xlarge", "p6-b200.48xlarge"), "2.8 to 2.10"),
        (("g5g.xlarge",), ""),
    ],
)
def test_versions_are_suggested_that_all_nodes_run(workers, versions):
    assert suggest_versions(tuple(read_catalog()[worker] for worker in workers)) == versions


def test_a_torch_without_code_for_the_gpus_is_refused_with_versions_that_have_it():
    with pytest.raises(ValueError, match="must have a torch") as caught:
        _choose("p3dn.24xlarge", JobEnvironment.with_horovod(framework="torch==2.15.0"))
    assert str(caught.value) == (
        "framework must have a torch whose wheel has code for the GPUs of p3dn.24xlarge (compute capability 7.0), got "
        "'torch==2.15.0', which has it for 7.5, 8.0, 8.6, 9.0, 10.0, 12.0; take one of 2.1 to 2.10"
    )


@pytest.mark.parametrize("worker", ["g5g.xlarge", "p2.xlarge"])
def test_gpus_for_which_no_wheel_has_code_are_refused_with_another_way(worker):
    with pytest.raises(ValueError, match=r"no version has it for all nodes: pass JobEnvironment\.none\(\) and bring "):
        _choose(worker)


def test_a_type_that_the_user_describes_is_checked_by_its_facts():
    pinned = JobEnvironment.with_horovod(framework="torch==2.7.1")
    unknown = InstanceTypeFacts(name="p9.48xlarge", gpu_count=8)
    known = InstanceTypeFacts(name="p9.48xlarge", gpu_count=8, compute_capability="13.0")
    assert (
        plan({"workers.instance_type": unknown, "software.image": STOCK, "software.environment": pinned}).environment
        == pinned
    )
    with pytest.raises(ValueError, match=r"code for the GPUs of p9\.48xlarge \(compute capability 13\.0\)"):
        plan({"workers.instance_type": known, "software.image": STOCK, "software.environment": pinned})


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("numpy\ntorch == 2.15.0 \\\n    --hash=sha256:0\n", False),
        ("torch==2.15.0 ; python_version > '3'\n", True),
        ("torch==2.12.1\n", False),
        ("torch==2.10.0\n", True),
        ("torch>=2.15\n", True),
        ("torchvision==2.15.0\n", True),
        ("torch==2.15.0+cu126\n", True),
        ("--index-url https://example.com/simple\ntorch==2.15.0\n", True),
    ],
)
def test_an_exact_torch_of_a_requirements_file_is_judged_unless_another_index_may_have_it(tmp_path, text, *, fits):
    path = tmp_path / "requirements.txt"
    path.write_text(text)
    environment = JobEnvironment.from_requirements(str(path))
    if fits:
        assert _choose("p3dn.24xlarge", environment) == environment
        return
    with pytest.raises(
        ValueError, match=r"^software\.environment must have a torch .* got 'torch ?== ?2\.1.* in line [12] of '"
    ):
        _choose("p3dn.24xlarge", environment)


# --- Isolated nodes and the cache ---------------------------------------------------------------------


def test_isolated_nodes_do_not_build_horovod():
    with pytest.raises(ValueError, match="must not be built by isolated nodes") as caught:
        plan(ISOLATED)
    assert str(caught.value) == (
        "software.environment must not be built by isolated nodes, which reach no package index, got Horovod; pass "
        "JobEnvironment.none() and bring the software in the image, or a software.environment_cache that a cluster "
        "with Internet access has filled"
    )
    assert plan({"software.environment": JobEnvironment.none(), **ISOLATED}).environment is None


def test_isolated_nodes_take_horovod_from_a_cache_with_a_warning(make_stack):
    cache, stack = EnvironmentCache("team-environments"), make_stack()
    found = plan({"software.environment": HOROVOD, "software.environment_cache": cache, **ISOLATED})
    add_warnings(stack, found, Spending(), isolated=True, has_lustre=False)
    (warning,) = (str(entry.data) for entry in stack.node.metadata if "environmentWithoutInternet" in str(entry.data))
    assert "cannot build it: a cluster with Internet access" in warning


@pytest.mark.parametrize("environment", [JobEnvironment.none(), JobEnvironment.from_container("team/train:1")])
def test_a_cache_without_anything_to_keep_is_refused(environment):
    with pytest.raises(
        ValueError, match=rf"^software\.environment_cache must be left out with .* kind {environment.kind}, got one;"
    ):
        plan({"software.environment": environment, "software.environment_cache": EnvironmentCache("team-environments")})


@pytest.mark.parametrize("prefix", ["", "/", "a", "a//", "../", "a/../", "a b/", "*/", "x" * 300 + "/"])
def test_a_prefix_is_plain_folders(prefix):
    with pytest.raises(ValueError, match=r"^software\.environment_cache\.prefix must be folders of letters, digits "):
        EnvironmentCache("team-environments", prefix)


def test_other_accelerators_have_their_images_own_software_unless_the_user_wants_horovod():
    neuron = NodeImage.from_ssm_parameter("/team/neuron", login_user="ubuntu")
    assert plan({"workers.instance_type": "trn1.32xlarge", "software.image": neuron}).environment is None
    assert _choose("trn1.32xlarge", HOROVOD, image=neuron).kind == "horovod"


@pytest.mark.parametrize("kind", ["t3.micro", "t3.nano", "t4g.small", "m1.small"])
def test_types_with_less_memory_than_horovod_needs_are_refused(kind):
    assert _LEAST_MEMORY_MIB << 20 == BYTES_A_JOB
    for role in ("workers", "master"):
        props = {"workers.instance_type": "c7g.large" if kind.startswith("t4g") else "c5.large"}
        with pytest.raises(ValueError, match=rf"^instance_type must have more than 2048 MiB .*, got {kind} with "):
            plan({**props, f"{role}.instance_type": kind})
    assert plan({"workers.instance_type": kind, "software.environment": JobEnvironment.none()}).workers.name == kind
