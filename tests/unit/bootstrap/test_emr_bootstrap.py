"""The bootstrap action of EMR, run for real: its paths below a temporary folder, its member program a few lines."""

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real_time import GENEROUS_SECONDS

USERDATA = Path(__file__).parents[3] / "userdata"
MEMBER = {
    "deeplearning_member/__init__.py": "",
    "deeplearning_member/__main__.py": "import sys\nopen('../ran', 'w').write(' '.join(sys.argv[1:]))\n",
}
SETTINGS = {"cluster": 'it\'s "$HOME" `x`', "role": "worker"}
PARAMETER, REGION = "CFN-Release", "eu-west-1"


class Action:
    """The bootstrap action with its arguments, as the hadoop user of an instance runs it."""

    def __init__(self, root, server, metadata_url, agent):
        self.root, self.server = root, server
        self.environment = {
            "PATH": str(root / "programs"),
            "AWS_ENDPOINT_URL": server.url,
            "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata_url,
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.arguments = [PARAMETER, REGION]
        self.release(agent)
        for folder in ("opt", "var/log", "programs"):
            (root / folder).mkdir(parents=True)
        (root / "programs/install").symlink_to(shutil.which("install"))
        self.program("sudo", f'[ "$1" = -n ] || exit 9\nshift\necho "$1" >>{root}/sudo.calls\nexec "$@"')

    def release(self, data, **changes):
        """Let the SSM parameter hold a release; S3 has its agent."""
        place = {"bucket": "assets", "key": "agent.zip", "sha256": hashlib.sha256(data).hexdigest()}
        document = {"agent": place, "interpreter": sys.executable, "settings": SETTINGS} | changes
        answer = json.dumps({"Parameter": {"Name": PARAMETER, "Value": json.dumps(document)}})
        self.server.answers |= {"/": [(200, answer.encode())], "/assets/agent.zip": [(200, data)]}

    def program(self, name, body):
        path = self.root / "programs" / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)

    def run(self):
        text = (USERDATA / "emr_bootstrap.sh").read_text()
        for name in ("fetch_agent", "prepare_member"):
            assert text.count(f"\n__{name.upper()}__\n") == 1
            text = text.replace(f"__{name.upper()}__\n", (USERDATA / f"{name}.py").read_text())
        text = text.replace("/usr/bin/python3", sys.executable)
        text = text.replace("/opt/deeplearning", f"{self.root}/opt/deeplearning")
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
    return Action(tmp_path, server, metadata.url, make_zip(MEMBER))


def test_reads_the_release_fetches_the_agent_and_prepares_the_node_with_the_settings(action):
    done = action.run()
    assert (done.returncode, done.stderr) == (0, "")
    home = action.root / "opt/deeplearning"
    assert (home / "ran").read_text() == "prepare"
    assert json.loads((home / "settings.json").read_text()) == SETTINGS
    assert (home / "settings.json").stat().st_mode & 0o777 == 0o600
    assert home.stat().st_mode & 0o777 == 0o755
    calls = (action.root / "sudo.calls").read_text().split()
    assert calls == ["install", "install", sys.executable]
    [(headers, body)] = [(headers, body) for method, _, headers, body in action.server.requests if method == "POST"]
    assert json.loads(body) == {"Name": PARAMETER}
    assert headers["X-Amz-Target"] == "AmazonSSM.GetParameter"
    assert headers["Authorization"].split(", ")[0].endswith(f"/{REGION}/ssm/aws4_request"), "the instance's role signs"


def test_a_second_run_changes_nothing(action):
    action.run()
    home = action.root / "opt/deeplearning"
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    assert action.run().returncode == 0
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before


def test_a_preparation_that_fails_ends_the_action_with_its_last_line(action, make_zip):
    program = "import sys\nprint('step one')\nsys.exit('deeplearning-member: node failed to mount; open port 2049')\n"
    action.release(make_zip({**MEMBER, "deeplearning_member/__main__.py": program}))
    assert action.last_line() == "deeplearning-member: node failed to mount; open port 2049"


def test_an_agent_with_another_digest_is_not_run(action, make_zip):
    action.release(make_zip(MEMBER), agent={"bucket": "assets", "key": "agent.zip", "sha256": "1" * 64})
    assert action.last_line().startswith("prepare_member: sha256 of s3://assets/agent.zip must be 1111")
    assert not (action.root / "opt/deeplearning/ran").exists()


def test_an_interpreter_that_the_image_lacks_is_named_with_a_remedy_before_the_agent_is_downloaded(action, make_zip):
    action.release(make_zip(MEMBER), interpreter="/usr/bin/python-of-another-image")
    assert action.last_line() == (
        "prepare_member: the image has no /usr/bin/python-of-another-image; take a release of EMR or an image that has "
        "it"
    )
    assert "/assets/agent.zip" not in [path for _, path, *_ in action.server.requests]


def test_a_missing_argument_or_sudo_ends_the_action(action):
    action.program("sudo", 'echo "sudo: a password is required" >&2; exit 1')
    assert action.last_line() == "sudo: a password is required"
    del action.arguments[1]
    assert "$2: unbound variable" in action.last_line()
