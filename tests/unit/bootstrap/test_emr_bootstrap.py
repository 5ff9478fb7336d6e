"""The bootstrap action of EMR, run for real: its paths below a temporary folder, its member program a few lines."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.real_time import GENEROUS_SECONDS

USERDATA = Path(__file__).parents[3] / "userdata"
MEMBER = {
    "deeplearning_member/__init__.py": "",
    "deeplearning_member/__main__.py": "import sys\nopen('../ran', 'w').write(' '.join(sys.argv[1:]))\n",
}
SETTINGS = json.dumps({"cluster": 'it\'s "$HOME" `x`', "role": "worker"})


class Action:
    """The bootstrap action with its arguments, as the hadoop user of an instance runs it."""

    def __init__(self, root, url, metadata_url, agent):
        self.root = root
        self.environment = {
            "PATH": str(root / "programs"),
            "AWS_ENDPOINT_URL": url,
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata_url,
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.arguments = [
            "assets",
            "agent.zip",
            hashlib.sha256(agent).hexdigest(),
            "eu-west-1",
            sys.executable,
            SETTINGS,
        ]
        for folder in ("opt", "var/log", "programs"):
            (root / folder).mkdir(parents=True)
        (root / "var/log").chmod(0o700)
        for name in ("chmod", "install"):
            (root / "programs" / name).symlink_to(shutil.which(name))
        self.program("sudo", f'[ "$1" = -n ] || exit 9\nshift\necho "$1" >>{root}/sudo.calls\nexec "$@"')

    def program(self, name, body):
        path = self.root / "programs" / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def run(self):
        text = (USERDATA / "emr_bootstrap.sh").read_text()
        assert text.count("\n__FETCH_AGENT__\n") == 1
        text = text.replace("__FETCH_AGENT__\n", (USERDATA / "fetch_agent.py").read_text())
        for path in ("/opt/deeplearning", "/var/log"):
            text = text.replace(path, f"{self.root}{path}")
        script = self.root / "emr_bootstrap.sh"
        script.write_text(text)
        command = ["/bin/bash", str(script), *self.arguments]
        return subprocess.run(
            command,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=GENEROUS_SECONDS,
            cwd=self.root,
        )

    def last_line(self):
        """Run the action, which must fail, and return the last line of standard error."""
        done = self.run()
        assert done.returncode != 0
        return done.stderr.splitlines()[-1]


@pytest.fixture
def action(tmp_path, server, metadata, make_zip):
    data = make_zip(MEMBER)
    server.answers["/assets/agent.zip"] = [(200, data)]
    return Action(tmp_path, server.url, metadata.url, data)


def test_fetches_the_agent_and_prepares_the_node_with_the_settings_of_its_arguments(action):
    done = action.run()
    assert (done.returncode, done.stderr) == (0, "")
    home = action.root / "opt/deeplearning"
    assert (home / "ran").read_text() == "prepare"
    assert (home / "settings.json").read_text() == f"{SETTINGS}\n"
    assert (home / "settings.json").stat().st_mode & 0o777 == 0o600
    assert home.stat().st_mode & 0o777 == 0o755
    calls = (action.root / "sudo.calls").read_text().split()
    assert calls == ["chmod", "install", "install", sys.executable, sys.executable]


def test_logs_of_emrs_daemons_can_be_reached_where_the_image_hides_them(action):
    action.run()
    assert (action.root / "var/log").stat().st_mode & 0o777 == 0o701


def test_a_second_run_changes_nothing(action):
    action.run()
    home = action.root / "opt/deeplearning"
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    assert action.run().returncode == 0
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before


def test_a_preparation_that_fails_ends_the_action_with_its_last_line(action, server, make_zip):
    program = "import sys\nprint('step one')\nsys.exit('deeplearning-member: node failed to mount; open port 2049')\n"
    data = make_zip({**MEMBER, "deeplearning_member/__main__.py": program})
    server.answers["/assets/agent.zip"] = [(200, data)]
    action.arguments[2] = hashlib.sha256(data).hexdigest()
    assert action.last_line() == "deeplearning-member: node failed to mount; open port 2049"


def test_an_agent_with_another_digest_is_not_run(action):
    action.arguments[2] = "1" * 64
    assert action.last_line().startswith("fetch_agent: sha256 of s3://assets/agent.zip must be 1111")
    assert not (action.root / "opt/deeplearning/ran").exists()


def test_an_interpreter_that_the_image_lacks_is_named(action):
    action.arguments[4] = "/usr/bin/python-of-another-image"
    assert "python-of-another-image" in action.last_line()


def test_a_missing_argument_ends_the_action(action):
    del action.arguments[5]
    assert "$6: unbound variable" in action.last_line()


def test_hadoop_without_sudo_ends_the_action(action):
    action.program("sudo", 'echo "sudo: a password is required" >&2; exit 1')
    assert action.last_line() == "sudo: a password is required"


def test_shellcheck_has_nothing_to_say():
    shellcheck = Path(sys.executable).parent / "shellcheck"
    done = subprocess.run([shellcheck, USERDATA / "emr_bootstrap.sh"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
