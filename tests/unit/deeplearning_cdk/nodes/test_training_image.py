"""A container image is built from the environment that nodes would install, by the same programs."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from aws_cdk import App, Stack, Token

from deeplearning_cdk import JobEnvironment, TrainingImage
from deeplearning_cdk.coordination.payload import find_payload
from deeplearning_contract.names import NodeRole
from deeplearning_node.deadline import Clock
from deeplearning_node.node_facts import FACTS_FILE, NodeFacts
from deeplearning_node.programs import Programs
from deeplearning_provision.environments.site import BuildSite
from deeplearning_provision.status import Status
from tests.unit.deeplearning_cdk.clusters import plan

PINNED = "torch==2.13.0\n"


class Image:
    """A synthesized image: what Docker would build, and how."""

    def __init__(self, folder, **props):
        app = App(outdir=str(folder / "cdk.out"), analytics_reporting=False, builtin_cloud_formation_validation=False)
        TrainingImage(Stack(app, "Images"), "Image", **props)
        assembly = Path(app.synth().directory)
        ((self.tag, asset),) = json.loads((assembly / "Images.assets.json").read_text())["dockerImages"].items()
        self.platform = asset["source"]["platform"]
        self.context = assembly / asset["source"]["directory"]

    def facts(self, root):
        path = root / FACTS_FILE.lstrip("/")
        path.parent.mkdir(parents=True)
        shutil.copy(self.context / "node.json", path)
        return NodeFacts.read(root)


@pytest.fixture
def requirements(tmp_path):
    path = tmp_path / "requirements.txt"
    path.write_text(PINNED)
    return path


@pytest.mark.parametrize("instance_type", ["p3dn.24xlarge", "c6i.4xlarge"])
def test_the_environment_is_that_of_a_cluster_of_the_type(tmp_path, instance_type):
    facts = Image(tmp_path, instance_type=instance_type).facts(tmp_path)
    nodes = plan({"workers.instance_type": instance_type})
    assert nodes.environment is not None
    environment = facts.needs.environment
    assert environment is not None
    assert (environment.kind, environment.horovod) == ("horovod", nodes.environment.horovod)
    assert environment.framework == nodes.environment.framework
    capability = nodes.hardware["worker"].compute_capability
    assert {each.compute_capability for each in facts.needs.hardware.values()} == {capability}
    assert (facts.role, facts.login_user) == (NodeRole.MASTER.value, "root")


def test_the_requirements_are_in_the_context_where_the_build_reads_them(tmp_path, requirements):
    environment = JobEnvironment.from_requirements(str(requirements), horovod="0.28.1")
    image = Image(tmp_path, environment=environment)
    facts, clock = image.facts(tmp_path), Clock()
    site = BuildSite(facts, Status(tmp_path, clock, lambda *_: None), tmp_path, Programs(), clock)
    shutil.copytree(image.context / "files", site.local)
    # A file that the build does not find here it would ask of S3, which no test reaches.
    assert site.fetch_file("requirements.txt").read_text() == PINNED


def test_the_dockerfile_extends_the_base_and_puts_the_environment_first_in_path(tmp_path):
    image = Image(tmp_path, base="debian:12@sha256:" + "0" * 64)
    assert (image.context / "Dockerfile").read_text().splitlines() == [
        f"FROM debian:12@sha256:{'0' * 64}",
        "RUN --mount=type=bind,target=/context sh /context/container_build.sh",
        "ENV PATH=/opt/deeplearning/environments/current/bin:$PATH",
        "ENV NVIDIA_VISIBLE_DEVICES=all",
        "ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility",
    ]
    assert {path.name for path in image.context.iterdir()} == {
        "Dockerfile", "agent.zip", "container_build.sh", "node.json"
    }  # fmt: skip


@pytest.mark.parametrize("has_python", [True, False])
def test_the_build_installs_ssh_and_where_it_lacks_python_without_questions(tmp_path, *, has_python):
    # Python brings tzdata, which asks for a time zone unless debconf's frontend is noninteractive: man 7 debconf.
    programs = tmp_path / "programs"
    programs.mkdir()
    apt_get = programs / "apt-get"
    apt_get.write_text(f'#!/bin/sh\necho "$DEBIAN_FRONTEND $*" >>{tmp_path}/calls\n[ "$1" = update ]\n')
    if has_python:
        (programs / "python3").write_text("#!/bin/sh\n")
    for program in programs.iterdir():
        program.chmod(0o755)
    script = find_payload("container_build.sh")
    subprocess.run(["/bin/sh", str(script)], env={"PATH": str(programs)}, check=False, capture_output=True)
    update, install = (tmp_path / "calls").read_text().splitlines()
    assert update == "noninteractive update"
    packages = ["iproute2", "openssh-client", "openssh-server", *([] if has_python else ["ca-certificates", "python3"])]
    assert install == f"noninteractive install --yes --no-install-recommends {' '.join(packages)}"


@pytest.mark.parametrize(
    ("instance_type", "platform"), [("g5.12xlarge", "linux/amd64"), ("c7g.4xlarge", "linux/arm64")]
)
def test_the_platform_is_the_processor_of_the_type(tmp_path, instance_type, platform):
    assert Image(tmp_path, instance_type=instance_type).platform == platform


def test_the_tag_changes_only_with_the_content(tmp_path, requirements):
    environment = JobEnvironment.from_requirements(str(requirements))
    tags = [Image(tmp_path / name, environment=environment).tag for name in ("first", "second")]
    requirements.write_text("torch==2.12.0\n")
    changed = Image(tmp_path / "third", environment=environment).tag
    assert tags[0] == tags[1] != changed


@pytest.mark.parametrize(
    ("props", "message"),
    [
        ({"environment": JobEnvironment.none()}, "^environment must be Horovod's or a requirements file, got "),
        ({"environment": JobEnvironment.from_container("a/b:1")}, "^environment must be Horovod's or a requirements "),
        ({"instance_type": "trn1.32xlarge"}, r"^environment must be given for trn1\.32xlarge, got none; "),
        ({"instance_type": "g9.large"}, r"^instance_type must be an instance type of the catalogue"),
        ({"base": "ubuntu 24.04"}, "^base must be the name of an image, got 'ubuntu 24.04'; "),
        ({"base": Token.as_string({"Ref": "Base"})}, "^base must be .*known at synth"),
        (
            {"environment": JobEnvironment.with_horovod(framework="torch==2.13.0"), "instance_type": "p3.8xlarge"},
            r"^framework must have a torch whose wheel has code for the GPUs of p3\.8xlarge",
        ),
        (
            {"environment": JobEnvironment.with_horovod(framework="tensorflow==2.15.1")},
            r"^framework must have a wheel for the image's Python 3\.12, got 'tensorflow==2\.15\.1'",
        ),
        (
            {"environment": JobEnvironment.with_horovod(framework="torch==2.12.0"), "base": "aws/pytorch-training:2.9"},
            "^framework must be left out with an image that has PyTorch, .* with aws/pytorch-training:2.9; ",
        ),
    ],
)
def test_what_cannot_be_built_is_refused(tmp_path, props, message):
    with pytest.raises(ValueError, match=message):
        Image(tmp_path, **props)
