"""Reading a cloud assembly."""

import json
import os

import pytest

from cdk_rehearsal.assembly import read_stack, require_no_images
from cdk_rehearsal.embedded_aws.cloud import zip_folder
from cdk_rehearsal.embedded_aws.cloudformation.template import BOOTSTRAP_VERSION
from cdk_rehearsal.errors import AssemblyError
from cdk_rehearsal.place import Place
from cdk_rehearsal.plan import Plan, rehearse
from deeplearning_rehearsal.template import read_cluster


def test_takes_place_and_assets_from_the_manifest(assemble, sample_template, tmp_path):
    stack = read_stack(assemble(tmp_path / "here", sample_template, "aws://unknown-account/eu-west-1"), None)

    assert (stack.name, stack.account, stack.region) == ("sample", "123456789012", "eu-west-1")
    assert [(asset.packaging, asset.key) for asset in stack.assets] == [("zip", "sample-function.zip")]


def test_takes_the_tags_of_the_stack_from_the_manifest(assemble, sample_template, tmp_path):
    stack = read_stack(assemble(tmp_path / "tagged", sample_template, tags={"Cost Center": "ml"}), None)
    assert stack.tags == {"Cost Center": "ml"}
    assert read_stack(assemble(tmp_path / "plain", sample_template), None).tags == {}


def test_an_account_has_the_bootstrap_stack_that_a_stack_requires(assemble, start_cloud, tmp_path):
    folder, name = assemble(tmp_path / "here", {"Resources": {}}), "/cdk-bootstrap/mine/version"
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["artifacts"]["sample"]["properties"]["bootstrapStackVersionSsmParameter"] = name
    (folder / "manifest.json").write_text(json.dumps(manifest))
    cloud = start_cloud()
    cloud.deploy(folder)
    assert cloud.client("ssm").get_parameter(Name=name)["Parameter"]["Value"] == BOOTSTRAP_VERSION


def test_says_which_stacks_there_are(assemble, sample_template, tmp_path):
    folder = assemble(tmp_path / "here", sample_template)
    with pytest.raises(AssemblyError, match=r"stack must name one of sample, got 'other'"):
        read_stack(folder, "other")


def test_says_which_asset_is_missing(assemble, sample_template, tmp_path):
    folder = assemble(tmp_path / "here", sample_template)
    (folder / "asset.sample").rename(folder / "elsewhere")
    with pytest.raises(AssemblyError, match="asset must exist"):
        read_stack(folder, None)


def test_zips_the_same_files_to_the_same_bytes(tmp_path):
    for name, order in (("one", "ab"), ("two", "ba")):
        (tmp_path / name / "sub").mkdir(parents=True)
        for letter in order:
            (tmp_path / name / "sub" / letter).write_text(letter)
        os.utime(tmp_path / name / "sub" / "a", (0, len(name + order)))
    os.utime(tmp_path / "two" / "sub" / "a", (1e9, 1e9))

    assert zip_folder(tmp_path / "one") == zip_folder(tmp_path / "two")


def add_image(folder, **source):
    """Add an image to the assets of an assembly, as aws_ecr_assets.DockerImageAsset does."""
    path = folder / "sample.assets.json"
    (folder / "asset.image").mkdir()
    (folder / "asset.image" / source.get("dockerFile", "Dockerfile")).write_text("FROM base\n")
    destination = {"repositoryName": "images-${AWS::AccountId}-${AWS::Region}", "imageTag": "5ca1ab1e"}
    image = {"source": {"directory": "asset.image", **source}, "destinations": {"here": destination}}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"dockerImages": {"5ca1ab1e": image}}))
    return folder


def test_an_image_is_found_by_the_uri_that_a_created_resource_has(assemble, sample_template, tmp_path):
    folder = add_image(
        assemble(tmp_path / "here", sample_template), dockerFile="Other", dockerBuildArgs={"COLOUR": "red"}
    )
    stack, place = read_stack(folder, None), Place("123456789012", "cn-north-1", "http://localhost")
    uri = "123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn/images-123456789012-cn-north-1:5ca1ab1e"
    found = stack.find_image(uri, place)

    assert found is not None
    assert (found.directory, found.dockerfile) == (folder / "asset.image", folder / "asset.image/Other")
    assert found.build_args == {"COLOUR": "red"}
    for other in ("images:5ca1ab1e", f"1{uri}", uri.replace("north", "south"), f"{uri}0"):
        assert stack.find_image(other, place) is None


def test_an_image_is_refused_only_where_nothing_would_run_it(assemble, sample_template, tmp_path):
    require_no_images(read_stack(assemble(tmp_path / "without", sample_template), None))
    stack = read_stack(add_image(assemble(tmp_path / "with", sample_template)), None)
    with pytest.raises(AssemblyError, match="no container engine, got docker images in sample; put them in a stack of"):
        require_no_images(stack)


def test_rehearsals_that_boot_nodes_refuse_an_image(assemble, sample_template, tmp_path):
    folder = add_image(assemble(tmp_path / "with", sample_template))
    with pytest.raises(AssemblyError, match="no container engine"):
        rehearse(Plan(assembly=str(folder), out=str(tmp_path / "out")))
    with pytest.raises(AssemblyError, match="no container engine"):
        read_cluster(folder, None)


def test_an_image_without_its_dockerfile_or_of_another_program_is_refused(assemble, sample_template, tmp_path):
    folder = add_image(assemble(tmp_path / "here", sample_template))
    (folder / "asset.image/Dockerfile").unlink()
    with pytest.raises(AssemblyError, match=r"asset must exist, got .*Dockerfile; synthesize again"):
        read_stack(folder, None)
    path = folder / "sample.assets.json"
    path.write_text(path.read_text().replace('"directory": "asset.image"', '"executable": ["build"]'))
    with pytest.raises(AssemblyError, match="images must be built from a folder of the assembly"):
        read_stack(folder, None)
