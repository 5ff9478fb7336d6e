"""Sources that can be prepared, and destinations."""

import pytest

from deeplearning_cli.data.sources import (
    PRESETS,
    Destination,
    InputError,
    Source,
    check_sources,
    read_destination,
    read_path,
    read_url,
)

DIGEST = "ab" * 32


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("https://h/a/b.zip", Source("b.zip", "https://h/a/b.zip")),
        (f"https://h/b.zip={DIGEST.upper()}", Source("b.zip", "https://h/b.zip", None, DIGEST)),
        ("http://h/b.zip?version=2", Source("b.zip", "http://h/b.zip?version=2")),
        (f"http://h/b.zip?v=2={DIGEST}", Source("b.zip", "http://h/b.zip?v=2", None, DIGEST)),
        ("http://h/b%20c.zip", Source("b c.zip", "http://h/b%20c.zip")),
    ],
)
def test_a_url_may_bring_its_digest(text, source):
    assert read_url(text) == source


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("https://h/b.zip=abc", "must be URL or URL=SHA256 with 64 hex digits"),
        ("ftp://h/b.zip", "must begin with http:// or https://"),
        ("file:///etc/passwd", "must begin with http:// or https://"),
        ("b.zip", "must begin with http:// or https://"),
        ("https://h/", "must name a file"),
        ("https://h/a/..", "must name a file"),
        ("https://h/%2e%2e", "must name a file"),
        ("https://h/a%2F..%5Cb", "must name a file"),
    ],
)
def test_a_url_that_names_no_file_is_refused(text, message):
    with pytest.raises(InputError, match=message):
        read_url(text)


def test_a_local_source_must_be_there(tmp_path):
    assert read_path(str(tmp_path)).path == tmp_path
    with pytest.raises(InputError, match="must be a file or a folder"):
        read_path(str(tmp_path / "none"))


def test_sources_must_be_some_and_must_not_overwrite_each_other():
    with pytest.raises(InputError, match="sources must be given"):
        check_sources([])
    with pytest.raises(InputError, match=r"different names, got 'a\.zip' twice"):
        check_sources([Source("a.zip", "http://h/a.zip"), Source("a.zip", "http://i/a.zip")])


@pytest.mark.parametrize(
    "text", ["s3://b/a.tar", "s3://b/", "b-u.cket/a.tar", "s3://Bucket/a.tar", "s3://192.168.0.1/a.tar",
             "s3://-bucket/a.tar", "s3://bu..cket/a.tar", "s3://bucket//a.tar", "s3://bucket/../a.tar",
             "s3://bucket/a\n.tar", "s3://bucket/a*.tar", "s3://bucket/$a.tar", "s3://bucket/a.zip", "s3://bucket/.tar",
             "s3://bucket/a/", "s3://bucket", f"s3://bucket/{'a' * 1020}.tar"]
)  # fmt: skip
def test_a_place_that_s3_or_the_cluster_would_refuse_is_refused_first(text):
    with pytest.raises(InputError, match=r"must .*, got .*; "):
        read_destination(text, is_bundle=True, ending=".tar")


def test_a_prefix_ends_with_a_slash_or_is_the_whole_bucket():
    assert read_destination("s3://bucket/a/", is_bundle=False, ending=".tar") == Destination("bucket", "a/")
    assert read_destination("s3://bucket", is_bundle=False, ending=".tar") == Destination("bucket", "")
    with pytest.raises(InputError, match="prefix must end with a slash, got 'a'; write a/"):
        read_destination("s3://bucket/a", is_bundle=False, ending=".tar")


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("a/coco-2017.tar", "coco-2017"),
        ("digits/", "digits"),
        ("", "bucket"),
        ("a/ä b.tar", "data"),
        ("a b.zip", "a-b"),
    ],
)
def test_the_data_gets_a_name_that_a_cluster_takes(key, name):
    assert Destination("bucket", key).data_name == name


def test_the_preset_is_the_predecessors_data_set():
    """Public facts, as data: nothing here is fetched."""
    names = [source.name for source in PRESETS["coco-2017"]]
    assert names == [
        "train2017.zip",
        "val2017.zip",
        "annotations_trainval2017.zip",
        "ImageNet-R50-AlignPadding.npz",
        "COCO-R50FPN-MaskRCNN-Standard.npz",
    ]
    assert all(source.url.endswith(source.name) for source in PRESETS["coco-2017"])
    check_sources(PRESETS["coco-2017"])
