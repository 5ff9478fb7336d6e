"""Parts of its image that a node of the lab has: those of the public parameter that names the image, and no more."""

import stat

import pytest

from cdk_rehearsal.assembly import AssemblyStack
from cdk_rehearsal.embedded_aws.ec2.images import ImageCatalogue
from cdk_rehearsal.image_families import find_image_parts
from cdk_rehearsal.lab.images.base_root import NODE_PYTHON
from cdk_rehearsal.lab.images.image_parts import PACKAGES, PART_STAND_INS, SOFTWARE, write_image_part
from cdk_rehearsal.lab.images.stand_in_layer import FI_INFO, NCCL_PLUGIN, STAND_INS, Image
from cdk_rehearsal.lab.node_programs import dnf, fi_info
from cdk_rehearsal.place import Place
from deeplearning_cdk import NodeImage
from deeplearning_node.health.network import count_devices
from deeplearning_node.programs import Programs

AMI = "/aws/service/deeplearning/ami"
EFS_UTILS = ["install", "--assumeyes", "amazon-efs-utils"]


@pytest.fixture
def catalogue(aws):
    return ImageCatalogue(Place("123456789012", "us-east-1", "http://127.0.0.1:1"), {})


@pytest.mark.parametrize(
    ("parameter", "user", "parts"),
    [
        (NodeImage.deep_learning_ubuntu().parameter, "ubuntu", {"compilers", "pytorch"}),
        (
            f"{AMI}/arm64/oss-nvidia-driver-gpu-pytorch-2.9-ubuntu-22.04/latest/ami-id",
            "ubuntu",
            {"compilers", "pytorch"},
        ),
        (f"{AMI}/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id", "ubuntu", {"compilers"}),
        (NodeImage.ubuntu().parameter, "ubuntu", set()),
        (NodeImage.deep_learning_amazon_linux().parameter, "ec2-user", {"compilers", "pytorch", "amazon-linux"}),
        (
            f"{AMI}/x86_64/base-oss-nvidia-driver-gpu-amazon-linux-2023/latest/ami-id",
            "ec2-user",
            {"compilers", "python3.12", "amazon-linux"},
        ),
        ("/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64", "ec2-user", {"amazon-linux"}),
        ("/aws/service/ami-amazon-linux-latest/amzn2-ami-hvm-x86_64-gp2", "ec2-user", set()),
    ],
)
def test_an_image_has_what_its_parameter_promises_and_no_more(catalogue, parameter, user, parts):
    image_id = catalogue.seed_parameter(parameter)
    assert (catalogue.login_user(image_id), catalogue.parts(image_id)) == (user, parts)


def test_an_image_of_the_users_own_has_no_part(catalogue):
    catalogue.admit("ami-0123456789abcdef0")
    assert catalogue.parts("ami-0123456789abcdef0") == set()


@pytest.mark.parametrize(
    "image",
    [
        NodeImage.deep_learning_ubuntu(),
        NodeImage.ubuntu(),
        NodeImage.deep_learning_amazon_linux(),
        NodeImage.deep_learning_amazon_linux("base-oss-nvidia-driver-gpu-amazon-linux-2023"),
    ],
    ids=lambda image: image.parameter.split("/")[-3],
)
def test_user_data_finds_its_interpreter_on_every_image_of_the_library(catalogue, tmp_path, image):
    parts = catalogue.parts(catalogue.seed_parameter(image.parameter))
    for part in parts:
        write_image_part(tmp_path / "layers", part)
    in_layer = (tmp_path / "layers" / image.interpreter.lstrip("/")).is_symlink() or (
        "pytorch" in parts and image.interpreter == "/opt/pytorch/bin/python"
    )
    assert in_layer is (image.interpreter != "/usr/bin/python3")


def test_the_layer_of_all_images_has_none_of_the_parts(tmp_path):
    Image("http://10.0.0.1", 1).write(tmp_path / "image")
    of_all = _list(tmp_path / "image")
    for part in PART_STAND_INS.keys() - SOFTWARE:
        write_image_part(tmp_path / part, part)
        assert _list(tmp_path / part)
        assert not _list(tmp_path / part) & of_all


def test_amazon_linux_has_dnf_and_hides_apt_and_headers_and_has_no_efs_utils_yet(tmp_path):
    write_image_part(tmp_path / "layer", "amazon-linux")
    for path in ("usr/bin/apt-get", f"usr/include/python{NODE_PYTHON}/Python.h"):
        hidden = (tmp_path / "layer" / path).stat()
        assert stat.S_ISCHR(hidden.st_mode)
        assert hidden.st_rdev == 0
    assert (tmp_path / "layer/usr/bin/dnf").stat().st_mode & 0o111
    assert (tmp_path / "layer/usr/bin/yum").read_text() == (tmp_path / "layer/usr/bin/dnf").read_text()
    assert not (tmp_path / "layer/usr/sbin/mount.efs").exists()


def test_dnf_brings_efs_utils_to_the_node(tmp_path):
    write_image_part(tmp_path / "layer", "amazon-linux")
    assert dnf.main(EFS_UTILS, tmp_path / "layer" / PACKAGES, tmp_path / "node") == 0
    program = tmp_path / "node/usr/sbin/mount.efs"
    assert 'main("mount.efs", sys.argv[1:])' in program.read_text()
    assert program.stat().st_mode & 0o111


def test_the_report_names_the_stand_in_for_python_3_9():
    entry = PART_STAND_INS["amazon-linux"]
    assert "python3" in entry.name
    assert "says that it is 3.9" in entry.behaviour


def test_dnf_brings_the_compilers_of_debian_by_the_names_of_amazon_linux(tmp_path):
    program = tmp_path / "apt"
    program.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/calls\n[ ! -e {tmp_path}/broken ]\n')
    program.chmod(0o755)
    names = ["gcc-c++", "make", f"python{NODE_PYTHON}-devel", f"python{NODE_PYTHON}-pip"]
    assert set(names) == set(dnf.DEBIAN)
    write_image_part(tmp_path / "layer", "amazon-linux")
    install = ["install", "--assumeyes", *names]
    assert dnf.main(install, tmp_path / "layer" / PACKAGES, tmp_path / "node", [str(program)]) == 0
    update, line = (tmp_path / "calls").read_text().splitlines()
    assert update.startswith("update")
    assert {package for each in dnf.DEBIAN.values() for package in each} < set(line.split())
    (tmp_path / "broken").touch()
    assert dnf.main(install, tmp_path / "layer" / PACKAGES, tmp_path / "node", [str(program)]) == 1


@pytest.mark.parametrize("arguments", [["update", "-y"], ["-y", "upgrade"]])
def test_an_update_finds_nothing(tmp_path, capsys, arguments):
    """AL2023 user guide, "Deterministic upgrades through versioned repositories"."""
    assert dnf.main(arguments, tmp_path, tmp_path / "node") == 0
    assert capsys.readouterr().out == "Nothing to do.\nComplete!\n"


@pytest.mark.parametrize("name", ["python3.12-devel", "python3.13-devel", "python3-dev", "g++"])
def test_dnf_knows_no_package_of_another_python_or_of_debian(tmp_path, capsys, name):
    write_image_part(tmp_path / "layer", "amazon-linux")
    assert dnf.main([*EFS_UTILS, name], tmp_path / "layer" / PACKAGES, tmp_path / "node") == 1
    assert f"No match for argument: {name}\n" in capsys.readouterr().err
    assert not (tmp_path / "node").exists()


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ([*EFS_UTILS, "amazon-efs-util"], "Error: Unable to find a match: amazon-efs-util\n"),
        (["install", "amazon-efs-utils"], "Operation aborted.\n"),
        (["groupinstall", "--assumeyes", "tools"], "only install and update are implemented"),
        (["install", "--assumeyes"], "only install and update are implemented"),
    ],
)
def test_dnf_refuses_the_rest_and_installs_nothing(tmp_path, capsys, arguments, rule):
    write_image_part(tmp_path / "layer", "amazon-linux")
    assert dnf.main(arguments, tmp_path / "layer" / PACKAGES, tmp_path / "node") == 1
    assert rule in capsys.readouterr().err
    assert not (tmp_path / "node").exists()


def test_an_image_named_anywhere_in_a_template_decides_which_layers_are_made():
    template = {
        "Parameters": {"Image": {"Default": NodeImage.deep_learning_ubuntu().parameter}},
        "Resources": {"Template": {"ImageId": "{{resolve:ssm:" + NodeImage.ubuntu().parameter + "}}"}},
    }

    def find(*templates):
        stack = AssemblyStack("s", "123456789012", "us-east-1", templates[0], (), nested=dict(enumerate(templates[1:])))
        return find_image_parts([stack])

    assert find(template) == find({}, template) == {"compilers", "pytorch"}
    assert find({"Resources": template["Resources"]}) == set()
    resolved = {"ImageId": f"{{{{resolve:ssm:{AMI}/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id:3}}}}"}
    assert find(resolved) == {"compilers"}


def _list(folder):
    return {path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir() or path.is_symlink()}


@pytest.mark.parametrize(("gpus", "is_there"), [(1, True), (0, False)])
def test_nodes_with_gpus_are_said_to_have_one_efa_and_others_nothing_of_it(tmp_path, gpus, is_there):
    Image("http://127.0.0.1:1", gpus).write(tmp_path)
    found = [(tmp_path / path).exists() for path in (FI_INFO, NCCL_PLUGIN)]
    assert found == [is_there] * 2
    assert any(entry.name.startswith("fi_info") for entry in STAND_INS)


def test_the_stand_in_for_fi_info_answers_the_agents_question_and_no_other(tmp_path, capsys):
    assert fi_info.main(["-p", "efa", "-t", "FI_EP_RDM"]) == 0
    program = tmp_path / FI_INFO
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\ncat <<'ANSWER'\n{capsys.readouterr().out}ANSWER\n")
    program.chmod(0o755)
    assert count_devices(Programs(), tmp_path) == 1
    assert fi_info.main(["-p", "tcp"]) == 1
    assert "answers -p efa -t FI_EP_RDM only, got -p tcp" in capsys.readouterr().err
