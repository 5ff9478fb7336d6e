"""The Dockerfile of the training image, built over the root file system of nodes: no container engine is at hand."""

import zipfile

import pytest
from aws_cdk import App, Stack

from cdk_rehearsal.assembly import ImageAsset
from cdk_rehearsal.cache import find_cache
from cdk_rehearsal.errors import UnavailableError
from cdk_rehearsal.lab.images.base_root import prepare_base_root
from cdk_rehearsal.lab.images.container_image import build_image
from cdk_rehearsal.run.progress import report_line
from deeplearning_cdk import JobEnvironment, TrainingImage
from tests.rehearsal.container_images import run_inside

WHEEL = {
    "greeting.py": "WORDS = 'good morning'\n",
    "greeting-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n",
    "greeting-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "greeting-1.0.dist-info/RECORD": "",
}


def make_wheel(folder):
    folder.mkdir()
    with zipfile.ZipFile(folder / "greeting-1.0-py3-none-any.whl", "w") as wheel:
        for name, text in WHEEL.items():
            wheel.writestr(name, text)
    return folder


def make_context(folder, requirements):
    file = folder / "requirements.txt"
    file.write_text(requirements)
    app = App(outdir=str(folder / "cdk.out"))
    environment = JobEnvironment.from_requirements(str(file))
    TrainingImage(Stack(app, "Images"), "Image", environment=environment, instance_type="c6i.4xlarge")
    app.synth()
    (dockerfile,) = folder.rglob("Dockerfile")
    return dockerfile.parent


def build(folder, requirements):
    """Build the image over the nodes' root, with a cache of its own."""
    context = make_context(folder, requirements)
    asset = ImageAsset(context, context / "Dockerfile", {}, "images:tag")
    packages = [make_wheel(folder / "wheels")]
    (folder / "cache").mkdir()
    return build_image(asset, prepare_base_root(find_cache(), report_line), packages, folder / "cache", report_line)


def test_the_image_has_the_environment_first_in_its_path_and_nothing_else_is_left(tmp_path):
    image = build(tmp_path, "greeting==1.0\n")
    (layer,) = image.layers
    assert run_inside(image, "python", "-c", "import greeting; print(greeting.WORDS)") == "good morning\n"
    assert [path.name for path in (layer / "opt/deeplearning").iterdir()] == ["environments"]
    for left in ("root/.cache", "context", "etc/apt/sources.list", "tmp/agent"):
        assert not (layer / left).exists(), left


def test_a_package_that_does_not_exist_fails_the_build_with_its_name(tmp_path):
    with pytest.raises(UnavailableError, match=r"^the container image could not be built: .*farewell==1\.0"):
        build(tmp_path, "farewell==1.0\n")
