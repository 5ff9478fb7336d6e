"""An environment is one file that stands alone, or an image, and nodes get its digest."""

import hashlib

import pytest

from deeplearning_cdk import EnvironmentCache, JobEnvironment, NodeImage, Spending
from deeplearning_cdk.warnings import add_warnings
from deeplearning_contract.names import NodeRole
from deeplearning_contract.setting_parts import EnvironmentCacheSettings, EnvironmentSettings
from tests.unit.deeplearning_cdk.clusters import plan
from tests.unit.deeplearning_cdk.test_public_api import VARIANTS


@pytest.fixture
def requirements(tmp_path):
    path = tmp_path / "requirements.txt"
    path.write_text("--extra-index-url https://example.com/simple\ntorch==2.9.1  # the framework\n\n")
    return path


def test_settings_contain_the_cache_and_the_file_as_an_asset_with_its_digest(synthesize, requirements):
    environment = JobEnvironment.from_requirements(str(requirements), horovod="0.28.1")
    cache = EnvironmentCache("team-environments", "train/")
    synthesis = synthesize(**{"software.environment": environment, "software.environment_cache": cache})
    for role in NodeRole:
        found = synthesis.settings(role).needs.environment
        assert found is not None
        assert (found.kind, found.image, found.horovod) == ("requirements", "", "0.28.1")
        assert found.cache == EnvironmentCacheSettings("team-environments", "train/")
        assert found.file is not None
        assert found.file.sha256 == hashlib.sha256(requirements.read_bytes()).hexdigest()
        assert found.file.key.endswith(".txt")


def test_settings_contain_the_kind_of_conda_files_and_containers(synthesize, tmp_path):
    path = tmp_path / "environment.yml"
    path.write_text("name: train\n")
    conda = plan({"software.environment": JobEnvironment.from_conda(str(path))}).environment
    assert conda is not None
    assert (conda.kind, conda.path, conda.image) == ("conda", str(path), "")
    image = "registry.example.com:5000/team/train@sha256:" + "0" * 64
    container = synthesize(**{"software.environment": JobEnvironment.from_container(image)}).settings(NodeRole.WORKER)
    assert container.needs.environment == EnvironmentSettings("container", image=image)


def test_without_an_environment_nodes_use_the_images_own(synthesize):
    assert synthesize(**VARIANTS["network.isolated"]).settings(NodeRole.MASTER).needs.environment is None


def test_an_environment_that_cannot_be_built_is_refused(requirements, tmp_path):
    with pytest.raises(ValueError, match=r"horovod must be one of 0\.28\.1, got '0\.1'; write one, or leave it out"):
        JobEnvironment.from_requirements(str(requirements), horovod="0.1")
    with pytest.raises(ValueError, match=r"path must be a file, got 'nowhere\.txt'; pass its path from "):
        JobEnvironment.from_requirements("nowhere.txt")
    with pytest.raises(ValueError, match=r"path must be a \.yml or \.yaml file for conda, got "):
        JobEnvironment.from_conda(str(requirements))
    with pytest.raises(ValueError, match=r"version must be one of 0\.28\.1, got '0\.27\.0'; write one"):
        JobEnvironment.with_horovod("0.27.0")
    requirements.write_text("\n")
    with pytest.raises(ValueError, match="path must be a file with at least one requirement, got none in "):
        JobEnvironment.from_requirements(str(requirements))
    requirements.write_text("torch==2.13.0\nHorovod[torch]==0.28.1\n")
    with pytest.raises(
        ValueError, match=r"horovod must be left out with a file that lists Horovod, got '0\.28\.1' and 'Horo"
    ):
        JobEnvironment.from_requirements(str(requirements), horovod="0.28.1")
    assert JobEnvironment.from_requirements(str(requirements)).path == str(requirements)
    for image in ("", "two words", "$(id)"):
        with pytest.raises(ValueError, match=r"^image must be the name of an image, got "):
            JobEnvironment.from_container(image)


def test_isolated_nodes_are_warned_that_they_reach_no_index(make_stack, requirements):
    image = NodeImage.from_ami_id("ami-0123456789abcdef0", login_user="ubuntu", has_packages=True)
    environment = JobEnvironment.from_requirements(str(requirements))
    props = {"workers.instance_type": "m5.large", "software.environment": environment, "software.image": image}
    for isolated in (True, False):
        stack, found = make_stack(), plan({"network.isolated": isolated, **props})
        add_warnings(stack, found, Spending(), isolated=isolated, has_lustre=False)
        assert any("no public package index" in str(entry.data) for entry in stack.node.metadata) is isolated
