"""Images of containers, built from a Dockerfile over the root file system of nodes."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cdk_rehearsal.assembly import ImageAsset
from cdk_rehearsal.cache import find_cache
from cdk_rehearsal.errors import AssemblyError, UnavailableError
from cdk_rehearsal.lab.images.base_root import prepare_base_root
from cdk_rehearsal.lab.images.container_image import build_image, read_dockerfile
from cdk_rehearsal.lab.namespaces import SYSTEM_PATH
from cdk_rehearsal.run.progress import report_line
from tests.rehearsal.container_images import run_inside

DOCKERFILE = r"""# the image of a test
FROM nobody/has:it
RUN printenv | sort > /before
ENV PATH=/opt/tools:$PATH
ENV COLOUR=red
RUN --mount=type=bind,target=/context cp /context/note / && \
    printenv COLOUR PATH > /after
"""


class Context:
    """Build context of an image, and the cache that its image is kept in."""

    def __init__(self, folder):
        self.folder, self.cache = folder / "context", folder / "cache"
        self.lines = []
        for made in (self.folder, self.cache):
            made.mkdir()
        (self.folder / "note").write_text("a note\n")
        self.write(DOCKERFILE)

    def write(self, dockerfile):
        (self.folder / "Dockerfile").write_text(dockerfile)

    def build(self, **build_args):
        self.lines.clear()
        asset = ImageAsset(self.folder, self.folder / "Dockerfile", build_args, "images:tag")
        return build_image(asset, prepare_base_root(find_cache(), report_line), [], self.cache, self.lines.append)


@pytest.fixture
def context(tmp_path):
    return Context(tmp_path)


def test_the_steps_run_with_the_variables_before_them_and_find_the_context(context):
    image = context.build()
    assert dict(image.environment) == {"PATH": f"/opt/tools:{SYSTEM_PATH}", "COLOUR": "red"}
    seen = run_inside(image, "cat", "/before", "/after", "/note").splitlines()
    seen = [line for line in seen if not line.startswith(("_=", "PWD=", "OLDPWD="))]
    assert seen == ["HOME=/root", f"PATH={SYSTEM_PATH}", "red", f"/opt/tools:{SYSTEM_PATH}", "a note"]


def test_the_name_of_the_host_resolves_in_a_build_and_the_machine_keeps_its_own(context):
    before = socket.gethostname()
    ask = "import socket; print(socket.gethostbyname(socket.gethostname()))"
    context.write(f"FROM nobody/has:it\nRUN python3 -c '{ask}' > /address\n")
    assert run_inside(context.build(), "cat", "/address") == "127.0.0.1\n"
    assert socket.gethostname() == before


def test_a_build_has_an_interface_for_its_own_address_as_in_the_new_namespaces_of_a_rehearsal(
    context,
):
    context.write("FROM nobody/has:it\nRUN ip -brief address show dev lo > /address\n")
    build = "from tests.rehearsal.test_container_images import Context; import pathlib, sys; "
    build += "context = Context.__new__(Context); context.folder, context.cache = map(pathlib.Path, sys.argv[1:]); "
    build += "context.lines = []; print(context.build().layers[0])"
    command = ["unshare", "--net", sys.executable, "-c", build, str(context.folder), str(context.cache)]
    layer = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1]
    assert "127.0.0.1/8" in (Path(layer) / "address").read_text()


def test_an_image_is_built_once_for_the_same_dockerfile_and_context(context):
    first = context.build()
    assert context.lines[0] == "building the container image, once"
    assert context.build() == first
    assert context.lines == []
    (context.folder / "note").write_text("another note\n")
    second = context.build()
    assert second.layers != first.layers
    assert run_inside(second, "cat", "/note") == "another note\n"
    context.write(DOCKERFILE + "RUN true\n")
    assert context.build().layers not in (first.layers, second.layers)


def test_a_step_that_fails_fails_the_build_with_its_last_lines_and_leaves_no_image(context):
    context.write("FROM nobody/has:it\nRUN echo what happened; exit 3\nRUN true\n")
    with pytest.raises(UnavailableError, match=r"^the container image could not be built: .*what happened"):
        context.build()
    assert list(context.cache.glob("image-*")) == []
    assert "what happened" in context.lines


def test_the_build_of_the_training_image_leaves_no_host_keys(context):
    script = Path("userdata/container_build.sh").read_text().splitlines()
    removal = next(line for line in script if "ssh_host" in line)
    context.write(f"FROM nobody/has:it\nRUN ssh-keygen -A && {removal}\n")
    image = context.build()
    assert run_inside(image, "find", "/etc/ssh", "-name", "ssh_host_*") == ""
    assert run_inside(image, "find", "/etc/ssh", "-name", "sshd_config") == "/etc/ssh/sshd_config\n"


@pytest.mark.parametrize("line", ["COPY note /", "USER nobody", "ARG COLOUR", "RUN --mount=type=cache,target=/c true"])
def test_an_instruction_that_the_rehearsal_does_not_carry_out_is_refused(line):
    with pytest.raises(AssemblyError, match=f"a Dockerfile may have FROM, RUN and ENV in the rehearsal, got '{line}'"):
        read_dockerfile(f"FROM base\n{line}\n")


def test_arguments_of_a_build_are_refused(context):
    with pytest.raises(AssemblyError, match=r"a build may have no arguments in the rehearsal, got \['COLOUR'\]"):
        context.build(COLOUR="red")
