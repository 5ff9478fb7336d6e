"""Builds of Horovod with real compilers: which there are, what counts as expected, what a root sees of the machine."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import deeplearning_contract
from cdk_rehearsal.errors import UnavailableError
from deeplearning_provision.horovod import cuda_toolkit
from deeplearning_provision.horovod import plan as horovod_plan
from tests.horovod_builds import __main__ as command
from tests.horovod_builds import row_trial
from tests.horovod_builds.build_program import RESULT
from tests.horovod_builds.build_rows import HOROVOD, ROWS, BuildOutcome, judge_outcome
from tests.horovod_builds.row_trial import CONTRACT, PRODUCT, find_binds, read_outcome, try_row

CPU, CUDA = ROWS[0], next(row for row in ROWS if row.name == "debian-12-torch-2.15.0-cuda")
CPU_FACTS = {"toolkit": "", "standard": "17", "has_nccl": False, "ranks": 2}
CUDA_FACTS = {"toolkit": "pypi", "standard": "20", "has_nccl": True, "ranks": 2}


def test_the_rows_cover_compilers_standards_and_toolkits() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    assert all(name.endswith("-cuda") == bool(row.capability) for name, row in zip(names, ROWS, strict=True) if row)
    assert {row.suite for row in ROWS} == {"bookworm", "trixie", "noble"}
    assert {row.toolkit for row in ROWS} == {"", cuda_toolkit.PYPI, cuda_toolkit.UBUNTU}
    assert {row.standard for row in ROWS} == {"17", "20"}
    assert HOROVOD in horovod_plan.SOURCES


@pytest.mark.parametrize(
    ("row", "facts", "difference"),
    [
        (CPU, CPU_FACTS, ""),
        (CUDA, CUDA_FACTS, ""),
        (CUDA, CUDA_FACTS | {"ranks": 1}, "ranks must be 2, got 1"),
        (CUDA, CUDA_FACTS | {"has_nccl": False}, "has_nccl must be True, got False"),
        (CPU, CPU_FACTS | {"toolkit": "image"}, "toolkit must be '', got 'image'"),
        (CPU, CPU_FACTS | {"has_nccl": True}, "has_nccl must be False, got True"),
        (CPU, {**CPU_FACTS, "ranks": 1, "standard": "20"}, "standard must be '17', got '20'; ranks must be 2, got 1"),
    ],
)
def test_an_outcome_is_expected_when_toolkit_standard_nccl_and_ranks_are(row, facts, difference) -> None:
    assert judge_outcome(row, BuildOutcome(facts)) == difference


def test_the_last_line_with_facts_is_the_outcome() -> None:
    facts = json.dumps(CPU_FACTS | {"seconds": 252})
    assert read_outcome(CPU, 0, ["making", f"{RESULT}{facts}"]) == BuildOutcome(json.loads(facts), "", seconds=252)
    failed = read_failure("pip wheel failed; read the log")
    assert failed == BuildOutcome({}, "pip wheel failed; read the log")
    assert read_outcome(CPU, 1, ["one", "Killed"]).failure == "ended with status 1: one | Killed"
    assert read_outcome(CPU, 0, ["one"]).failure == "ended with status 0: one"


def read_failure(text: str, **more: bool) -> BuildOutcome:
    return read_outcome(CPU, 0, [RESULT + json.dumps({"failure": text, **more})])


def test_a_framework_that_the_index_does_not_offer_is_reported_in_one_line() -> None:
    """Pip names the last of the row's requirements, since each is tried; the line names all."""
    outcome = read_failure("pip install failed; last lines: ERROR: No matching distribution found for torch==2.13.0")
    said = "pip's index offers no torch==2.13.0+cpu and no torch==2.13.0 for the Python that builds"
    assert outcome == BuildOutcome({}, said, is_unavailable=True)


def test_a_network_that_does_not_answer_leaves_a_row_out() -> None:
    assert read_failure("pip install did not reach its index", may_pass=True).is_unavailable


def test_a_package_that_the_product_names_and_no_index_has_is_a_failure() -> None:
    outcome = read_failure("ERROR: No matching distribution found for nvidia-cuda-nvcc-cu12==12.0.140", may_pass=False)
    assert not outcome.is_unavailable
    assert "nvidia-cuda-nvcc-cu12" in outcome.failure


def test_the_outcome_of_a_row_is_kept_before_the_next_row_is_tried(tmp_path: Path) -> None:
    command.keep_outcome(CPU, BuildOutcome(CPU_FACTS, seconds=252), tmp_path)
    kept = json.loads((tmp_path / f"{CPU.name}.json").read_text())
    assert kept["row"]["name"] == CPU.name
    assert kept["outcome"]["facts"] == CPU_FACTS
    assert kept["result"] == "as expected"


def test_a_build_that_cannot_be_had_here_is_neither_right_nor_wrong() -> None:
    away = BuildOutcome({}, "no root of noble can be made here", is_unavailable=True)
    right, wrong = BuildOutcome(CPU_FACTS, seconds=251.6), BuildOutcome({}, "pip wheel failed")
    assert command.choose_status({CPU: right, CUDA: away}) == 0
    assert command.choose_status({CPU: right, CUDA: wrong}) == 1
    assert command.choose_status({CUDA: away}) == 2
    facts = CPU_FACTS | {"framework": "torch 2.13.0", "compilers": {"g++": "12.2.0"}, "bytes": 17_600_000}
    head, first, second, third = command.render_table(
        {CPU: replace(right, facts=facts), CUDA: away, ROWS[1]: wrong}
    ).splitlines()
    assert head.split()[:3] == ["build", "framework", "compilers"]
    assert first.split() == [CPU.name, "torch", "2.13.0", "g++", "12.2.0", "17", "252", "17.6", "as", "expected"]
    assert second.endswith("not available here: no root of noble can be made here")
    assert third.endswith("pip wheel failed")


def test_a_root_sees_the_product_and_what_pip_installs_from(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "index" / "simple").mkdir(parents=True)
    configuration = tmp_path / "home" / ".config/pip/pip.conf"
    configuration.parent.mkdir(parents=True)
    configuration.write_text(f"[global]\nextra-index-url = file://{tmp_path}/index/simple file:///nowhere/simple\n")
    environment = {"HOME": str(tmp_path / "home"), "PIP_FIND_LINKS": f"{tmp_path}/wheels"}
    binds = find_binds(tmp_path / "cache", environment)
    product = Path(horovod_plan.__file__).parents[2]
    assert binds[str(product)] == PRODUCT
    assert binds[str(Path(deeplearning_contract.__file__).parents[1])] == CONTRACT
    assert binds[str(tmp_path / "cache" / "pip")] == "/root/.cache/pip"
    assert binds[str(configuration)] == "/root/.config/pip/pip.conf"
    assert binds[f"{tmp_path}/wheels"] == f"{tmp_path}/wheels"
    assert binds[f"{tmp_path}/index"] == f"{tmp_path}/index"
    assert not any("nowhere" in source for source in binds)


def test_a_root_without_packages_leaves_a_row_out_and_nothing_behind(tmp_path, monkeypatch) -> None:
    def refuse(*_):
        raise UnavailableError("no root of bookworm can be made here")

    monkeypatch.setattr(row_trial, "prepare_root", refuse)
    outcome = try_row(CPU, tmp_path / "cache", tmp_path, print)
    assert outcome == BuildOutcome({}, "no root of bookworm can be made here", is_unavailable=True)
    assert not list(tmp_path.glob("*.work"))


def test_a_stock_root_has_no_compiler_and_ubuntus_has_the_component_of_its_nvcc(tmp_path, monkeypatch) -> None:
    made = {}

    def record(root: Path, suite: str, packages: tuple[str, ...], option: str, **_) -> None:
        made[suite] = (packages, option)
        root.mkdir()

    monkeypatch.setattr(row_trial, "bootstrap_root", record)
    monkeypatch.setattr(row_trial, "install_missing_packages", lambda _: None)
    for suite in ("noble", "bookworm"):
        row_trial.prepare_root(tmp_path, suite, print)
    stock = ("apt", "python3", "ca-certificates")
    assert made == {
        "trixie": ((*stock, "ubuntu-archive-keyring"), "--components=main"),
        "noble": (stock, "--components=main,universe,multiverse"),
        "bookworm": (stock, "--components=main"),
    }


def test_the_command_names_its_rows(capsys) -> None:
    with pytest.raises(SystemExit):
        command.main(["--only", "debian-11"])
    assert "debian-12-torch-2.15.0-cuda" in capsys.readouterr().err


def test_make_runs_it() -> None:
    root = Path(__file__).parents[2]
    shown = subprocess.run(
        ["make", "--dry-run", "horovod-builds", "ONLY=a"], cwd=root, capture_output=True, text=True, check=True
    )
    assert "-m tests.horovod_builds --only a" in shown.stdout
