"""Meanings of pip's failures, the choice of pip, and the needed packages by its report."""

from pathlib import Path

import pytest

from deeplearning_node.programs import ProgramError, Programs
from deeplearning_provision.program_log import LARGEST_LOG, Transcript
from deeplearning_provision.python.pip import Pip, explain_pip, read_report
from deeplearning_provision.steps import ProvisionFailure

# What pip 23.0 to 25.1 wrote, shortened.
UNSATISFIABLE = """
ERROR: Could not find a version that satisfies the requirement torch==99 (from versions: 2.9.0)
ERROR: No matching distribution found for torch==99
"""
NO_NETWORK = f"""
WARNING: Retrying (Retry(total=0, connect=None)) after connection broken by 'NewConnectionError('<connection object>:
Failed to establish a new connection: [Errno 101] Network is unreachable')': /simple/torch/
{UNSATISFIABLE.replace("from versions: 2.9.0", "from versions: none")}
"""
NO_COMPILER = """
  building 'native' extension
  error: command 'x86_64-linux-gnu-gcc' failed: No such file or directory
  ERROR: Failed building wheel for native
ERROR: Failed to build one or more wheels
"""


NO_WHEEL = "ERROR: Failed building wheel for native\n"
BROKEN_SOURCE = f"native.c:7:3: error: expected ';'\n{NO_WHEEL}"


RECOVERED = NO_NETWORK.replace(UNSATISFIABLE, "")
CONFLICT = "ERROR: ResolutionImpossible: for help visit https://pip.pypa.io/\n"
NETWORK_NAMES = """
copying httpcore/ProtocolError.py
socket.cc:9:3: error: 'ConnectionResetError' was not declared in this scope; did you mean 'Connection refused'?
ERROR: Failed building wheel for native
"""
NO_LINK = "urllib3.cc: undefined reference to `ReadTimeoutError'\ncollect2: error: ld returned 1 exit status\n"
NO_DOWNLOAD = """
Could not resolve host: github.com
CMake Error at gloo-stamp/download.cmake:170 (message): error: downloading failed
"""


FULL_DISK = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n"
UNREACHABLE = "pip wheel did not reach its index"


@pytest.mark.parametrize(
    ("output", "cause", "is_final"),
    [
        (UNSATISFIABLE, "pip wheel failed", True),
        (NO_NETWORK, UNREACHABLE, False),
        (NO_COMPILER, "compilers are missing to build the requirements", True),
        (
            "native.c:1:10: fatal error: Python.h: No such file or directory\n" + NO_WHEEL,
            "compilers are missing to build the requirements",
            True,
        ),
        (BROKEN_SOURCE, "pip wheel failed", True),
        (NETWORK_NAMES, "pip wheel failed", True),
        (NO_LINK, "pip wheel failed", True),
        (RECOVERED + BROKEN_SOURCE, "pip wheel failed", True),
        (RECOVERED + CONFLICT, "pip wheel failed", True),
        ("ERROR: setup.py: Failed to download a header: HTTP Error 404: Not Found\n", "pip wheel failed", True),
        (NO_DOWNLOAD, UNREACHABLE, False),
        (FULL_DISK, "the disk is full during pip wheel", True),
        ("ERROR: HTTP error 503 while getting x.whl\n503 Server Error: Busy\n", UNREACHABLE, False),
    ],
)
def test_a_failure_is_final_unless_the_network_made_it(output, cause, is_final):
    failure = explain_pip(ProgramError("pip", output, status=1), "wheel", Path("/log"), "3.12.3")
    assert (failure.cause, failure.is_final) == (cause, is_final)


def test_pips_own_errors_are_what_the_user_reads():
    failure = explain_pip(ProgramError("pip", UNSATISFIABLE, status=1), "install", Path("/log"), "3.12.3")
    assert failure.output == UNSATISFIABLE.strip()
    assert failure.remedy == "correct the requirements (full log: /log)"


def make_pip(folder, body):
    python = folder / "python"
    python.write_text(f'#!/bin/sh\necho "$@" >>{folder}/calls\n{body}\n')
    python.chmod(0o755)
    return Pip(python, Transcript(folder / "log", Programs()), {}, Programs(), "3.12.3")


def calls(folder):
    path = folder / "calls"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize(
    ("version", "is_builder", "expected"),
    [
        ("23.0.1", True, []),
        ("22.0.2", False, []),
        ("22.0.2", True, ["-m pip install --upgrade pip>=22.2"]),
        ("9", True, ["-m pip install --upgrade pip>=22.2"]),
        ("", False, ["-m ensurepip"]),
    ],
)
def test_the_images_pip_is_used_unless_it_has_none_or_an_old_one(tmp_path, version, is_builder, expected):
    make_pip(tmp_path, "").prepare(version, is_builder=is_builder)
    assert calls(tmp_path) == expected


def test_a_python_without_pip_and_ensurepip_is_refused(tmp_path):
    pip = make_pip(tmp_path, "echo No module named ensurepip; exit 1")
    with pytest.raises(ProvisionFailure, match="neither pip nor ensurepip") as caught:
        pip.prepare("", is_builder=True)
    assert caught.value.is_final
    assert "python3-pip" in caught.value.remedy


def test_the_report_becomes_exact_requirements():
    info = [
        {"url": "https://index/a-1.whl", "archive_info": {"hashes": {"sha256": "aa"}}},
        {"url": "https://index/b-1.tar.gz", "archive_info": {"hash": "sha256=bb"}, "subdirectory": "inner"},
        {"url": "https://index/c-1.whl", "archive_info": {"hash": "md5=cc"}},
        {"url": "https://git/d", "vcs_info": {"vcs": "git", "commit_id": "0123"}, "subdirectory": "d"},
        {"url": "file:///e", "dir_info": {}},
    ]
    names = [{"name": f"p{number}", "version": "1"} for number in range(len(info))]
    items = [{"metadata": name, "download_info": entry} for name, entry in zip(names, info, strict=True)]
    packages = read_report({"install": items})
    assert [package.line for package in packages] == [
        "p0 @ https://index/a-1.whl#sha256=aa",
        "p1 @ https://index/b-1.tar.gz#sha256=bb&subdirectory=inner",
        "p2 @ https://index/c-1.whl",
        "p3 @ git+https://git/d@0123#subdirectory=d",
        "p4 @ file:///e",
    ]
    assert [package.identity for package in packages] == [
        "p0==1 aa",
        "p1==1 bb",
        "p2==1 p2 @ https://index/c-1.whl",
        "p3==1 p3 @ git+https://git/d@0123#subdirectory=d",
        "p4==1 p4 @ file:///e",
    ]


def test_every_line_is_in_the_log_and_told_as_it_comes(tmp_path):
    lines = []
    transcript = Transcript(tmp_path / "logs" / "log", Programs(), {"WORD": "said"})
    transcript.begin()
    assert (
        transcript.run(["sh", "-c", "echo $WORD; echo and >&2"], timeout_seconds=60, on_line=lines.append)
        == "said\nand"
    )
    assert lines == ["said", "and"]
    assert transcript.log.read_text() == "$ sh -c echo $WORD; echo and >&2\nsaid\nand\n"


def test_a_program_that_does_not_end_is_killed_with_its_children(tmp_path):
    transcript = Transcript(tmp_path / "log", Programs())
    with pytest.raises(ProgramError, match=r"took longer than 0 s") as caught:
        transcript.run(["sh", "-c", "echo begun; sleep 600 & wait"], timeout_seconds=0.3)
    assert caught.value.is_late


def test_a_large_log_is_put_aside(tmp_path):
    transcript = Transcript(tmp_path / "log", Programs())
    with transcript.log.open("w") as file:
        file.truncate(LARGEST_LOG + 1)
    transcript.begin()
    assert not transcript.log.exists()
    assert (tmp_path / "log.1").stat().st_size == LARGEST_LOG + 1
