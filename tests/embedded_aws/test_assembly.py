"""Reading a cloud assembly."""

import os

import pytest

from cdk_rehearsal.assembly import read_stack
from cdk_rehearsal.embedded_aws.cloud import zip_folder
from cdk_rehearsal.errors import AssemblyError


def test_takes_place_and_assets_from_the_manifest(assemble, sample_template, tmp_path):
    stack = read_stack(assemble(tmp_path / "here", sample_template, "aws://unknown-account/eu-west-1"), None)

    assert (stack.name, stack.account, stack.region) == ("sample", "123456789012", "eu-west-1")
    assert [(asset.packaging, asset.key) for asset in stack.assets] == [("zip", "sample-function.zip")]


def test_takes_the_tags_of_the_stack_from_the_manifest(assemble, sample_template, tmp_path):
    stack = read_stack(assemble(tmp_path / "tagged", sample_template, tags={"Cost Center": "ml"}), None)
    assert stack.tags == {"Cost Center": "ml"}
    assert read_stack(assemble(tmp_path / "plain", sample_template), None).tags == {}


def test_says_which_stacks_there_are(assemble, sample_template, tmp_path):
    folder = assemble(tmp_path / "here", sample_template)
    with pytest.raises(AssemblyError, match=r"stack must name one of \['sample'\], got 'other'"):
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
