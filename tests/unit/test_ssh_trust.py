"""SSH of the shipped programs: no forwarded key agent, and no trust in a host without a verified key."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("cli", "constructs", "contract", "examples", "lambda", "stacks", "userdata")
FORWARDED = re.compile(r"ForwardAgent[ =]+[\"']?yes|\bssh\b[^\n]* -A\b|[\"']-A[\"'], [\"']-o[\"']")
UNCHECKED = re.compile(r"StrictHostKeyChecking[ =]+[\"']?(no|off|accept-new)\b")
SEED_LOOP = {"userdata/deeplearning_command/check/contract.py"}
"""Runs the predecessor's own loop, which must work; the hosts' keys are known before."""


def find(pattern, root=ROOT):
    """Return the programs and templates in which a pattern occurs."""
    files = (path for name in FOLDERS for path in sorted((root / name).rglob("*")))
    kept = (path for path in files if path.suffix in {".py", ".sh"} and "node_modules" not in path.parts)
    return {path.relative_to(root).as_posix() for path in kept if pattern.search(path.read_text())}


@pytest.mark.defect("D61", "D74")
def test_no_program_of_ours_forwards_a_users_agent():
    assert find(FORWARDED) == set()


@pytest.mark.defect("D61")
def test_no_program_of_ours_leaves_a_host_key_unchecked():
    assert find(UNCHECKED) == SEED_LOOP


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (FORWARDED, 'return f"ssh -A {user}@{host}"'),
        (FORWARDED, 'options = ["-A", "-o", "BatchMode=yes"]'),
        (FORWARDED, "ForwardAgent yes"),
        (UNCHECKED, '"-o", "StrictHostKeyChecking=no"'),
        (UNCHECKED, "StrictHostKeyChecking accept-new"),
    ],
)
def test_a_planted_trust_is_found(tmp_path, pattern, text):
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "ssh.py").write_text(text)
    assert find(pattern, tmp_path) == {"cli/ssh.py"}
