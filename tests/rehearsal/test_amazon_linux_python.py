"""Amazon Linux's Pythons in the lab: 3.9 of the system, a later one beside it, and headers by the version."""

import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from aws_cdk import App, Stack

from cdk_rehearsal.cache import find_cache
from cdk_rehearsal.lab.images import base_root
from cdk_rehearsal.lab.images.image_parts import COMPILERS, prepare_layers, write_image_part
from cdk_rehearsal.lab.images.stand_in_layer import Image
from cdk_rehearsal.run.progress import report_line
from deeplearning_cdk import JobEnvironment, TrainingImage

MAKE_LAYER = Path(base_root.__file__).with_name("make_layer.sh")
SOURCES = """
echo 'deb [trusted=yes] file:/srv/archive ./' >/etc/apt/sources.list
rm -f /etc/apt/sources.list.d/*
ln -s /srv/context /context
export PIP_NO_INDEX=1 PIP_FIND_LINKS=/srv/wheels
"""
DEBIAN = f"/usr/bin/python{base_root.NODE_PYTHON}"
SAY = "import platform, sys; print(*sys.version_info[:2], sys.version_info.major, platform.python_version())"
INCLUDE = 'import sysconfig; print(sysconfig.get_path("include"))'


def make_wheel(folder, name, python):
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": f"NAME = {name!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\nRequires-Python: >={python}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)


class Node:
    """The root of a base image of Amazon Linux 2023."""

    def __init__(self, folder):
        self.folder = folder
        base = base_root.prepare_base_root(find_cache(), report_line)
        compilers = prepare_layers([COMPILERS], base, None, find_cache(), report_line)[COMPILERS]
        for part in ("amazon-linux", "python3.12"):
            write_image_part(folder / part, part)
        Image("http://127.0.0.1:1").write(folder / "image")
        parts = (folder / "amazon-linux", folder / "python3.12")
        self.lower = {
            has_compilers: ":".join(
                map(str, (*parts, *([compilers] if has_compilers else []), folder / "image", base.root))
            )
            for has_compilers in (True, False)
        }
        self.srv = folder / "srv"
        wheels = folder / "wheels"
        for path in (self.srv, wheels):
            path.mkdir()
        make_wheel(wheels, "early", "3.9")
        make_wheel(wheels, "later", "3.10")
        (self.srv / "archive").symlink_to(base.archive)
        (self.srv / "wheels").symlink_to(wheels)

    def add_context(self, requirement):
        """Put the agent and the settings of an environment into the node, as an image's build has them."""
        file = self.folder / "requirements.txt"
        file.write_text(requirement)
        app = App(outdir=str(self.folder / "cdk.out"))
        environment = JobEnvironment.from_requirements(str(file))
        TrainingImage(Stack(app, "Images"), "Image", environment=environment, instance_type="c6i.4xlarge")
        app.synth()
        ((dockerfile),) = self.folder.rglob("Dockerfile")
        shutil.copytree(dockerfile.parent, self.srv / "context")

    def run(self, script, *, has_compilers=True):
        layer = self.folder / "layer"
        shutil.rmtree(layer, ignore_errors=True)
        layer.mkdir()
        words = [
            *base_root.ENCLOSED,
            "sh",
            str(MAKE_LAYER),
            str(layer),
            self.lower[has_compilers],
            str(self.srv),
            SOURCES + script,
        ]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    def say(self, script, *, has_compilers=True):
        answer = self.run(script, has_compilers=has_compilers)
        assert answer.returncode == 0, answer.stdout + answer.stderr
        return answer.stdout.splitlines()


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    return Node(tmp_path_factory.mktemp("amazon-linux"))


def test_python3_is_3_9_to_probes_and_in_its_virtual_environments(node):
    # AL2023 user guide, "Python in AL2023": python3 stays 3.9.
    script = f"""
cat >/tmp/say.py <<'END'
{SAY}
END
python3 -I -c '{SAY}'
python3 /tmp/say.py
python3 -c '{INCLUDE}'
python3 -m venv --without-pip /tmp/venv
/tmp/venv/bin/python -I -c '{SAY}'
/tmp/venv/bin/python -m venv --without-pip /tmp/inner
/tmp/inner/bin/python -c '{SAY}'
"""
    says = "3 9 3 3.9.25"
    assert node.say(script) == [says, says, "/usr/include/python3.9", says, says]


def test_the_newer_python_beside_it_is_itself_also_in_environments_over_environments(node):
    script = f"""
/usr/bin/python3.12 -c '{SAY}'
/usr/bin/python3.12 -m venv --without-pip /tmp/venv
/tmp/venv/bin/python -I -c '{SAY}'
/tmp/venv/bin/python -m venv --without-pip /tmp/inner
/tmp/inner/bin/python -I -c '{SAY}'
python3 -c 'import subprocess; subprocess.run(["/usr/bin/python3.12", "-c", "{SAY}"], check=True)'
"""
    assert {line.partition(".")[0] for line in node.say(script)} == {"3 11 3 3"}


def test_pip_of_3_9_installs_nothing_that_needs_3_10(node):
    script = """
python3 -m venv --without-pip --system-site-packages /tmp/venv
/tmp/venv/bin/python -m pip --quiet install early
/tmp/venv/bin/python -c 'import early; print(early.NAME)'
! /tmp/venv/bin/python -m pip --quiet install later 2>/dev/null
/usr/bin/python3.12 -m venv --without-pip --system-site-packages /tmp/newer
/tmp/newer/bin/python -m pip --quiet install later
/tmp/newer/bin/python -c 'import later; print(later.NAME)'
"""
    assert node.say(script) == ["early", "later"]


def test_the_systems_own_programs_run(node):
    assert node.say("cloud-init --version 2>&1; py3compile --version; dnf history 2>&1 || true")[-1].startswith(
        "dnf stand"
    )


def test_headers_come_with_the_packages_of_the_same_python_alone(node):
    header = f"/usr/include/python{base_root.NODE_PYTHON}/Python.h"
    script = f"""
[ ! -e {header} ]
dnf install --assumeyes python3-devel
[ ! -e {header} ] && ls /usr/include/python3.9/Python.h
dnf install --assumeyes gcc-c++ make python{base_root.NODE_PYTHON}-devel
ls {header}
! dnf install --assumeyes python3.13-devel
"""
    said = node.say(script)
    assert ("/usr/include/python3.9/Python.h" in said, header in said) == (True, True)


def test_an_image_without_compilers_and_pip_gets_them_from_dnf(node):
    script = f"""
! {DEBIAN} -m pip --version 2>/dev/null
! command -v g++
dnf install --assumeyes gcc-c++ make python{base_root.NODE_PYTHON}-devel python{base_root.NODE_PYTHON}-pip >/tmp/log
g++ -fsyntax-only -I /usr/include/python{base_root.NODE_PYTHON} -include Python.h -x c++ /dev/null
{DEBIAN} -m venv /tmp/venv
/tmp/venv/bin/python -m pip --version
"""
    assert node.say(script, has_compilers=False)[-1].startswith("pip ")


def test_an_environment_is_made_over_the_newer_python_and_refused_without_it(node):
    node.add_context("later==1.0\n")
    build = f"""
mkdir -p /opt/deeplearning/environments /tmp/agent
cp /context/files/* /opt/deeplearning/environments
sed 's|"kind": "requirements"|"kind": "requirements", "interpreter": "/usr/bin/python3.12"|' \\
    /context/node.json >/opt/deeplearning/node.json
{DEBIAN} -m zipfile -e /context/agent.zip /tmp/agent
cd /tmp/agent
"""
    command = f"{DEBIAN} -m deeplearning_command environment --build"
    current = "/opt/deeplearning/environments/current/bin/python"
    made = node.say(f"{build}{command}\n{current} -c 'import later; print(later.NAME)'")
    assert made[-1] == "later"
    refused = node.run(f"{build}mv /usr/bin/python3.12 /usr/bin/away\n{command}")
    assert refused.returncode != 0
    assert "got 3.9.25 of /usr/bin/python3, and the image has no" in refused.stdout
    assert "/usr/bin/python3.12" in refused.stdout
    assert "resolving the packages" not in refused.stdout
