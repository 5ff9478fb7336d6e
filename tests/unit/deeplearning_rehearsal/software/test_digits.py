"""The digits on which rehearsals train come out of scikit-learn's wheel; pip itself is a stand-in here."""

import hashlib

import pytest

from cdk_rehearsal.errors import UnavailableError
from deeplearning_rehearsal.software import downloads
from deeplearning_rehearsal.software.downloads import prepare_digits

PIP = """
import sys, zipfile
from pathlib import Path

folder = Path(sys.argv[sys.argv.index("--dest") + 1])
if {status}:
    sys.exit("ERROR: planted")
with zipfile.ZipFile(folder / "scikit_learn-1.0-py3-none-any.whl", "w") as wheel:
    wheel.writestr("sklearn/datasets/data/digits.csv.gz", "the digits")
"""


@pytest.fixture
def use_pip(tmp_path, monkeypatch):
    monkeypatch.setattr(downloads, "_DIGITS_SHA256", hashlib.sha256(b"the digits").hexdigest())

    def use(status=0):
        (tmp_path / "pip.py").write_text(PIP.format(status=status))
        monkeypatch.setattr(downloads, "_PIP", (*downloads._PIP[:1], str(tmp_path / "pip.py")))

    return use


def test_the_digits_are_downloaded_once(tmp_path, use_pip):
    use_pip()
    said = []
    path = prepare_digits(tmp_path / "cache", said.append)
    assert path.read_text() == "the digits"
    assert prepare_digits(tmp_path / "cache", said.append) == path
    assert len(said) == 1


def test_other_digits_are_refused_and_kept_nowhere(tmp_path, use_pip, monkeypatch):
    use_pip()
    monkeypatch.setattr(downloads, "_DIGITS_SHA256", "00")
    with pytest.raises(UnavailableError, match=r"SHA-256 of .* must be 00, got"):
        prepare_digits(tmp_path / "cache", lambda _: None)
    assert not list((tmp_path / "cache").glob("digits-*"))


def test_a_failed_download_is_reported_with_the_output_of_pip(tmp_path, use_pip):
    use_pip(status=1)
    with pytest.raises(UnavailableError, match="could not be downloaded: ERROR: planted"):
        prepare_digits(tmp_path / "cache", lambda _: None)
