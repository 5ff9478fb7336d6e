"""The digits on which rehearsals train: a file out of scikit-learn's wheel, so that no node needs scikit-learn."""

import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

from cdk_rehearsal.cache import fill_once
from cdk_rehearsal.errors import UnavailableError

DIGITS = "digits.csv.gz"
_SHA256 = "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"
_MEMBER = f"sklearn/datasets/data/{DIGITS}"
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")


def prepare_digits(cache: Path, tell: Callable[[str], None]) -> Path:
    """
    Return the file, downloaded first when the cache does not hold it.

    Args:
        cache: Folder that keeps it; made when absent.
        tell: Told a line when it is downloaded.

    Raises:
        UnavailableError: It cannot be had, or is another one.
    """

    def fill(work: Path) -> Path:
        tell("downloading scikit-learn's wheel for its digits (9 MB), once")
        command = [*_PIP, "download", "--quiet", "--no-deps", "--only-binary", ":all:", "--dest", str(work)]
        answer = subprocess.run([*command, "scikit-learn"], capture_output=True, text=True, check=False)
        wheels = list(work.glob("*.whl"))
        if answer.returncode != 0 or len(wheels) != 1:
            raise UnavailableError(f"scikit-learn's digits could not be downloaded: {answer.stderr.strip()[-600:]}")
        with zipfile.ZipFile(wheels[0]) as wheel:
            content = wheel.read(_MEMBER)
        if (found := hashlib.sha256(content).hexdigest()) != _SHA256:
            raise UnavailableError(f"SHA-256 of {_MEMBER} must be {_SHA256}, got {found} in {wheels[0].name}")
        folder = work / "digits"
        folder.mkdir()
        (folder / DIGITS).write_bytes(content)
        return folder

    return fill_once(cache, f"digits-{_SHA256[:16]}", fill, tell) / DIGITS
