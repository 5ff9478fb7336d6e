"""
A cache without an entry is empty, and a cache that refuses is refused, though S3 answers 403 in both cases.

It does so to a role whose right to list names a prefix, as the constructs grant it (S3 API, "GetObject", permissions).
"""

import pytest

from deeplearning_contract.setting_parts import EnvironmentCacheSettings
from deeplearning_provision.environments.cache import CacheError, EnvironmentCache
from deeplearning_provision.s3 import ObjectStore
from tests.unit.deeplearning_provision.data_lab import BUCKET, BriefClock, Fault

KEPT, MISSING = "0123456789abcdef01234567", "fedcba9876543210fedcba98"


@pytest.fixture
def cache(data_lab):
    data_lab.put(f"environments/{KEPT}.json", b"{}")
    data_lab.proxy.decide = lambda _method, path, _limits: (
        Fault(status=403, code="AccessDenied") if path.endswith(".json") else None
    )
    return EnvironmentCache(EnvironmentCacheSettings(BUCKET, "environments/"), ObjectStore("us-east-1", BriefClock()))


def test_an_entry_that_no_listing_shows_is_not_there(cache):
    assert cache.find(MISSING) is None


def test_an_entry_that_a_listing_shows_is_forbidden(cache):
    with pytest.raises(CacheError, match=rf"could not read {KEPT}\.json: .*AccessDenied"):
        cache.find(KEPT)


def test_a_bucket_that_refuses_the_listing_too_is_forbidden(cache, data_lab):
    data_lab.proxy.decide = lambda *_: Fault(status=403, code="AccessDenied")
    with pytest.raises(CacheError, match=r"could not read .*: .*AccessDenied"):
        cache.find(MISSING)
