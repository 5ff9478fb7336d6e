"""Downloads of the host with pip for the nodes; pip itself is a stand-in here."""

import json

import pytest

from cdk_rehearsal.errors import UnavailableError
from deeplearning_rehearsal.software import downloads
from deeplearning_rehearsal.software.downloads import prepare_horovod, prepare_packages

PIP = """
import json, sys
from pathlib import Path

arguments = sys.argv[1:]
folder = Path(arguments[arguments.index("--dest") + 1])
asked = Path(arguments[arguments.index("--requirement") + 1]).read_text()
with open({log!r}, "a") as log:
    log.write(json.dumps({{"arguments": arguments, "asked": asked}}) + "\\n")
if "--no-binary" in arguments:
    (folder / "horovod-0.28.1.tar.gz").write_text("source")
elif "+cpu" in asked and not {has_cpu}:
    sys.exit("ERROR: No matching distribution found for torch==2.13.0+cpu")
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

    def __init__(self, folder, monkeypatch, status=0, *, has_cpu=True):
        self._log = folder / "log"
        program = folder / "pip.py"
        program.write_text(PIP.format(log=str(self._log), status=status, has_cpu=has_cpu))
        monkeypatch.setattr(downloads, "_PIP", (*downloads._PIP[:1], str(program)))

    def calls(self):
        return [json.loads(line) for line in self._log.read_text().splitlines()] if self._log.exists() else []


@pytest.fixture
def requirements(tmp_path):
    path = tmp_path / "launchers.txt"
    path.write_text("numpy==1.23.5 \\\n    --hash=sha256:00\n")
    return path


def test_wheels_for_the_nodes_python_are_downloaded_once_with_their_hashes(tmp_path, requirements, monkeypatch):
    pip, said = Pip(tmp_path, monkeypatch), []
    folder = prepare_packages(tmp_path / "cache", requirements, said.append)
    assert [path.name for path in folder.iterdir()] == ["numpy-1.23.5-cp311-none-any.whl"]
    assert said[1] == "downloading numpy-1.23.5-cp311-none-any.whl (17.1 MB)"
    assert prepare_packages(tmp_path / "cache", requirements, said.append) == folder
    (call,) = [call["arguments"] for call in pip.calls()]
    assert call[call.index("--python-version") + 1] == "3.11"
    assert call[call.index("--only-binary") + 1] == ":all:"
    assert {"--require-hashes", "--no-deps"} < set(call)


def test_a_file_without_hashes_lets_pip_find_what_else_is_needed(tmp_path, requirements, monkeypatch):
    requirements.write_text("numpy\n")
    pip = Pip(tmp_path, monkeypatch)
    prepare_packages(tmp_path / "cache", requirements, lambda _: None)
    assert not {"--require-hashes", "--no-deps"} & set(pip.calls()[0]["arguments"])


def test_horovods_source_comes_with_what_builds_it_and_pytorch_for_the_cpu(tmp_path, monkeypatch):
    pip, said = Pip(tmp_path, monkeypatch), []
    folder = prepare_horovod(tmp_path / "cache", "torch==2.13.0", "0.28.1", said.append)
    assert {path.name for path in folder.iterdir()} == {"horovod-0.28.1.tar.gz", "numpy-1.23.5-cp311-none-any.whl"}
    assert prepare_horovod(tmp_path / "cache", "torch==2.13.0", "0.28.1", said.append) == folder
    assert prepare_horovod(tmp_path / "cache", "", "0.28.1", said.append) != folder
    assert [call["asked"].split()[0] for call in pip.calls() if "--no-binary" not in call["arguments"]] == [
        "torch==2.13.0+cpu",
        "numpy",
    ]
    with pytest.raises(UnavailableError, match=r"horovod must be 0\.28\.1 in the rehearsal, got 0\.27"):
        prepare_horovod(tmp_path / "cache", "", "0.27", said.append)


def test_without_an_index_for_the_cpu_the_remedy_is_reported_and_no_build_with_cuda_is_downloaded(
    tmp_path, monkeypatch
):
    pip = Pip(tmp_path, monkeypatch, has_cpu=False)
    with pytest.raises(UnavailableError, match=r"PyTorch for the CPU, got no torch==2\.13\.0\+cpu; set PIP_EXTRA"):
        prepare_horovod(tmp_path / "cache", "torch==2.13.0", "0.28.1", lambda _: None)
    assert [call["asked"].split()[0] for call in pip.calls()] == ["torch==2.13.0+cpu"]


def test_a_failed_download_is_reported_with_the_output_of_pip_and_retried(tmp_path, requirements, monkeypatch):
    Pip(tmp_path, monkeypatch, status=1)
    with pytest.raises(UnavailableError, match=r"packages of launchers\.txt could not be downloaded: .*planted"):
        prepare_packages(tmp_path / "cache", requirements, lambda _: None)
    pip = Pip(tmp_path, monkeypatch)
    assert prepare_packages(tmp_path / "cache", requirements, lambda _: None).is_dir()
    assert len(pip.calls()) == 2
