"""The step of a container image's Dockerfile, in the root file system of nodes: no container engine is at hand."""

import subprocess
import zipfile
from pathlib import Path

from aws_cdk import App, Stack

from cdk_rehearsal.cache import find_cache
from cdk_rehearsal.lab.images import base_root
from cdk_rehearsal.run.progress import tell
from deeplearning_cdk import JobEnvironment, TrainingImage
from tests.horovod_builds.row_trial import read_dockerfile

MAKE_LAYER = Path(base_root.__file__).with_name("make_layer.sh")
SOURCES = """
echo 'deb [trusted=yes] file:/srv/archive ./' >/etc/apt/sources.list
rm -f /etc/apt/sources.list.d/*
ln -s /srv/context /context
export PIP_NO_INDEX=1 PIP_FIND_LINKS=/srv/wheels
"""
WHEEL = {
    "greeting.py": "WORDS = 'good morning'\n",
    "greeting-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n",
    "greeting-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "greeting-1.0.dist-info/RECORD": "",
}


def make_wheel(folder: Path) -> Path:
    folder.mkdir()
    with zipfile.ZipFile(folder / "greeting-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in WHEEL.items():
            wheel.writestr(name, text)
    return folder


def make_context(folder: Path, requirements: str) -> Path:
    file = folder / "requirements.txt"
    file.write_text(requirements)
    app = App(outdir=str(folder / "cdk.out"))
    environment = JobEnvironment.from_requirements(str(file))
    TrainingImage(Stack(app, "Images"), "Image", environment=environment, instance_type="c6i.4xlarge")
    app.synth()
    (dockerfile,) = folder.rglob("Dockerfile")
    return dockerfile.parent


def build(folder: Path, requirements: str, command: str) -> "subprocess.CompletedProcess[str]":
    """Carry out the Dockerfile's step and a command in its environment, over the nodes' root."""
    base = base_root.prepare_base_root(find_cache(), tell)
    context = make_context(folder, requirements)
    step = read_dockerfile((context / "Dockerfile").read_text())
    srv, layer = folder / "srv", folder / "layer"
    srv.mkdir()
    layer.mkdir()
    for name, path in {"archive": base.archive, "context": context, "wheels": make_wheel(folder / "wheels")}.items():
        (srv / name).symlink_to(path)
    script = f"{SOURCES}\n{step['run']}\nPATH={step['path']}\n{command}"
    words = [*base_root.ENCLOSED, "sh", str(MAKE_LAYER), str(layer), str(base.root), str(srv), script]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_the_step_installs_the_environment_and_leaves_nothing_else(tmp_path: Path) -> None:
    built = build(tmp_path, "greeting==1.0\n", "python -c 'import greeting; print(greeting.WORDS)'")
    assert built.returncode == 0, built.stdout + built.stderr
    assert built.stdout.splitlines()[-1] == "good morning"
    assert [path.name for path in (tmp_path / "layer/opt/deeplearning").iterdir()] == ["environments"]
    assert "packing" not in built.stdout
    assert not (tmp_path / "layer/root/.cache").exists()


def test_a_package_that_does_not_exist_fails_the_step_with_its_name(tmp_path: Path) -> None:
    built = build(tmp_path, "farewell==1.0\n", "true")
    assert built.returncode != 0
    assert "farewell==1.0" in built.stdout
