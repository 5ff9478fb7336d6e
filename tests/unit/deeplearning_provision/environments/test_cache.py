"""A bucket of finished environments: filled by the first cluster, used by the next, and never in anybody's way."""

import json

import pytest

from deeplearning_contract.setting_parts import EnvironmentCacheSettings
from deeplearning_node.aws_clients import AwsClients
from deeplearning_provision.environments import flow
from deeplearning_provision.environments.cache import CacheError, EnvironmentCache
from deeplearning_provision.python import pip as pip_program
from deeplearning_provision.s3 import ObjectStore
from tests.unit.deeplearning_provision.data_lab import BUCKET, BriefClock, Fault
from tests.unit.deeplearning_provision.environment_lab import LookingClock, Stand

CACHE = EnvironmentCacheSettings("bucket", "environments/")
KEPT, MISSING = "0123456789abcdef01234567", "fedcba9876543210fedcba98"


@pytest.fixture
def make_cluster(parts, build, proxy, tmp_path, monkeypatch):
    """Return a function that makes a cluster with a file system of its own; all have one cache."""
    monkeypatch.setattr(flow, "build_environment", build)
    names = iter(range(10))

    def make():
        return Stand(tmp_path / f"cluster{next(names)}", parts / "index", parts / "image")

    with Stand(tmp_path / "settings", parts / "index", parts / "image").pip_settings():
        yield make


@pytest.fixture
def bucket(proxy):
    """The bucket, as somebody else reads and writes it."""
    s3 = AwsClients("eu-west-1").s3
    s3.create_bucket(Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})

    class Bucket:
        def names(self):
            return [entry["Key"] for entry in s3.list_objects_v2(Bucket="bucket").get("Contents", [])]

        def name(self, end):
            (found,) = [name for name in self.names() if name.endswith(end)]
            return found

        def read(self, key):
            return s3.get_object(Bucket="bucket", Key=key)["Body"].read()

        def write(self, key, data):
            s3.put_object(Bucket="bucket", Key=key, Body=data)

    return Bucket()


def provide(cluster, number=0):
    node = cluster.node(number, "pure\n", cache=CACHE, clock=LookingClock(lambda: None))
    node.provide()
    return node


@pytest.mark.usefixtures("bucket")
def test_the_first_cluster_fills_it_and_the_next_needs_no_pip(make_cluster, monkeypatch, proxy):
    first = provide(make_cluster())
    assert first.step.detail.endswith("uploaded to s3://bucket/environments/")
    monkeypatch.setattr(pip_program.Pip, "run", None)
    monkeypatch.setattr(flow, "build_environment", None)
    later = make_cluster()
    master = provide(later)
    maker = first.facts.instance_id
    assert master.step.detail == f"2 packages; copied from s3://bucket/environments/, built by {maker}"
    assert master.ask("import pure; print(pure.version)") == "1.0"
    proxy.decide = lambda *_: Fault(status=500)
    worker = provide(later, 1)
    assert worker.step.detail.startswith("2 packages; copied from the shared file system")
    assert worker.ask("import inner; print(inner.version)") == "0.9"


def test_it_holds_a_note_a_list_and_an_archive_named_by_its_digest_which_are_uploaded_once(make_cluster, bucket, proxy):
    cluster = make_cluster()
    provide(cluster)
    manifest = cluster.manifest
    (memo,) = [name for name in bucket.names() if name.count("/") == 1]
    key = manifest["key"]
    assert bucket.names() == sorted(
        [memo, f"environments/{key}/complete.json", f"environments/{key}/{manifest['archive']['sha256']}.tar"]
    )
    assert json.loads(bucket.read(memo)) == {"key": key, "boot": ""}
    proxy.calls.clear()
    assert provide(cluster).step.detail == "2 packages; already installed"
    assert {method for method, _ in proxy.calls} == {"GET"}


@pytest.mark.usefixtures("bucket")
def test_a_denied_bucket_is_named_and_does_not_prevent_the_build(make_cluster, proxy):
    proxy.decide = lambda *_: Fault(status=403, code="AccessDenied")
    cluster = make_cluster()
    node = cluster.node(0, "pure\n", cache=CACHE)  # Its clock raises at the first wait.
    detail = node.provide().detail
    assert node.step.state == "done"
    assert "packages; built here in" in detail
    assert "s3://bucket/environments/ was not used: " in detail
    assert "AccessDenied" in detail
    assert node.ask("import pure; print(pure.version)") == "1.0"


def test_a_bucket_that_does_not_exist_is_named_too(make_cluster):
    step = provide(make_cluster()).step
    assert step.state == "done"
    assert "NoSuchBucket" in step.detail


@pytest.mark.parametrize(
    ("end", "harm", "words"),
    [
        (".tar", lambda data: data[:-9000] + b"?" + data[-8999:], "its archive was refused: sha256 of s3://bucket/"),
        (".tar", lambda data: data[:-512], "its archive was refused: sha256 of s3://bucket/"),
        ("complete.json", lambda data: data[:-3], "was refused: "),
    ],
)
def test_a_corrupt_entry_is_refused_rebuilt_and_replaced(make_cluster, bucket, end, harm, words):
    provide(make_cluster())
    name = bucket.name(end)
    bucket.write(name, harm(bucket.read(name)))
    second = make_cluster()
    detail = provide(second).step.detail
    assert "built here in" in detail
    assert words in detail
    assert detail.endswith("; uploaded to s3://bucket/environments/")
    assert [path.name for path in second.kept.iterdir() if path.name.startswith(".")] == []
    assert "copied from s3://bucket/environments/" in provide(make_cluster()).step.detail


def test_an_upload_that_was_interrupted_counts_as_none_and_is_made_up_for(make_cluster, bucket, monkeypatch):
    class Interruption(BaseException):
        pass

    def interrupt(*_):
        raise Interruption

    first = make_cluster()
    with monkeypatch.context() as patch:
        patch.setattr(EnvironmentCache, "_put", interrupt)
        with pytest.raises(Interruption):
            provide(first)
    (archive,) = bucket.names()
    assert archive.endswith(".tar")
    assert "built here in" in provide(make_cluster()).step.detail
    assert provide(first).step.detail == "2 packages; already installed"


@pytest.mark.usefixtures("bucket")
def test_a_download_goes_on_through_broken_connections(make_cluster, proxy):
    provide(make_cluster())
    left = [2]

    def decide(method, path, _limits):
        if method == "GET" and path.endswith(".tar") and left[0]:
            left[0] -= 1
            return Fault(cut_after=1000)
        return None

    proxy.decide = decide
    assert "copied from s3://bucket/environments/" in provide(make_cluster()).step.detail
    assert left == [0]


@pytest.mark.usefixtures("bucket")
def test_a_master_lost_while_it_fetches_leaves_nothing_that_counts(make_cluster, proxy, monkeypatch):
    provide(make_cluster())
    later = make_cluster()
    real = EnvironmentCache.fetch

    def fetch(self, manifest, archive, folder, on_bytes):
        real(self, manifest, archive, folder, on_bytes)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(EnvironmentCache, "fetch", fetch)
        with pytest.raises(KeyboardInterrupt):
            provide(later)
    assert [path.name for path in later.folders if not path.name.startswith(".")] == []
    assert "copied from s3://bucket/environments/" in provide(later).step.detail
    assert [path.name for path in later.kept.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    ("name", "refused", "message"),
    [
        (MISSING, f"{MISSING}.json", ""),
        (KEPT, f"{KEPT}.json", rf"could not read {KEPT}\.json: .*AccessDenied"),
        (MISSING, "", r"could not read .*: .*AccessDenied"),
    ],
    ids=["no listing shows it", "a listing shows it", "the listing is refused"],
)
def test_an_entry_is_missing_or_forbidden_by_what_a_listing_shows(data_lab, name, refused, message):
    """S3 answers 403 for both to a role whose right to list names a prefix (S3 API, "GetObject", permissions)."""
    data_lab.put(f"environments/{KEPT}.json", b"{}")
    data_lab.proxy.decide = lambda _method, path, _limits: (
        Fault(status=403, code="AccessDenied") if path.endswith(refused) else None
    )
    cache = EnvironmentCache(EnvironmentCacheSettings(BUCKET, "environments/"), ObjectStore("us-east-1", BriefClock()))
    if message:
        with pytest.raises(CacheError, match=message):
            cache.find(name)
    else:
        assert cache.find(name) is None
