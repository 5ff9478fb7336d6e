"""What the host downloads with pip for the nodes; pip itself is a stand-in here."""

import json
from pathlib import Path

import pytest

from deeplearning_rehearsal.errors import UnavailableError
from deeplearning_rehearsal.lab import downloads
from deeplearning_rehearsal.lab.downloads import prepare_packages

PIP = """
import json, sys
from pathlib import Path

arguments = sys.argv[1:]
folder = Path(arguments[arguments.index("--dest") + 1])
with open({log!r}, "a") as log:
    log.write(json.dumps(arguments) + "\\n")
if "--no-binary" in arguments:
    (folder / "horovod-0.28.1.tar.gz").write_text("source")
else:
    print("Collecting numpy")
    print("  Downloading numpy-1.23.5-cp311-none-any.whl.metadata (2.2 kB)")
    print("  Downloading numpy-1.23.5-cp311-none-any.whl (17.1 MB)")
    (folder / "numpy-1.23.5-cp311-none-any.whl").write_text("wheel")
    print("ERROR: planted", file=sys.stderr)
    sys.exit({status})
"""


class Pip:
    """A pip that says what it was asked for."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, status: int = 0) -> None:
        self._log = folder / "log"
        program = folder / "pip.py"
        program.write_text(PIP.format(log=str(self._log), status=status))
        monkeypatch.setattr(downloads, "_PIP", (*downloads._PIP[:1], str(program)))

    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in self._log.read_text().splitlines()] if self._log.exists() else []


@pytest.fixture
def requirements(tmp_path: Path) -> Path:
    path = tmp_path / "launchers.txt"
    path.write_text("numpy==1.23.5 \\\n    --hash=sha256:00\n")
    return path


def test_wheels_for_the_nodes_python_are_downloaded_once_with_their_hashes(
    tmp_path: Path, requirements: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip, said = Pip(tmp_path, monkeypatch), []
    folder = prepare_packages(tmp_path / "cache", requirements, "", said.append)
    assert [path.name for path in folder.iterdir()] == ["numpy-1.23.5-cp311-none-any.whl"]
    assert said[1] == "downloading numpy-1.23.5-cp311-none-any.whl (17.1 MB)"
    assert prepare_packages(tmp_path / "cache", requirements, "", said.append) == folder
    (call,) = pip.calls()
    assert call[call.index("--python-version") + 1] == "3.11"
    assert call[call.index("--only-binary") + 1] == ":all:"
    assert {"--require-hashes", "--no-deps"} < set(call)


def test_a_file_without_hashes_lets_pip_find_what_else_is_needed(
    tmp_path: Path, requirements: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requirements.write_text("numpy\n")
    pip = Pip(tmp_path, monkeypatch)
    prepare_packages(tmp_path / "cache", requirements, "", lambda _: None)
    assert not {"--require-hashes", "--no-deps"} & set(pip.calls()[0])


def test_horovods_source_comes_only_where_the_environment_builds_it(
    tmp_path: Path, requirements: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pip = Pip(tmp_path, monkeypatch)
    without = prepare_packages(tmp_path / "cache", requirements, "", lambda _: None)
    with_source = prepare_packages(tmp_path / "cache", requirements, "0.28.1", lambda _: None)
    assert without != with_source
    assert (with_source / "horovod-0.28.1.tar.gz").exists()
    assert not (without / "horovod-0.28.1.tar.gz").exists()
    assert sum("--no-binary" in call for call in pip.calls()) == 1
    with pytest.raises(UnavailableError, match=r"horovod must be 0\.28\.1 in the rehearsal, got 0\.27"):
        prepare_packages(tmp_path / "cache", requirements, "0.27", lambda _: None)


def test_a_download_that_fails_says_what_pip_said_and_is_tried_again(
    tmp_path: Path, requirements: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Pip(tmp_path, monkeypatch, status=1)
    with pytest.raises(UnavailableError, match=r"packages of launchers\.txt could not be downloaded: .*planted"):
        prepare_packages(tmp_path / "cache", requirements, "", lambda _: None)
    pip = Pip(tmp_path, monkeypatch)
    assert prepare_packages(tmp_path / "cache", requirements, "", lambda _: None).is_dir()
    assert len(pip.calls()) == 2
