"""
Software environment of jobs, which the master makes once for all nodes.

| kind | the master makes on the shared file system | a node has |
|---|---|---|
| horovod | an archive of a virtual environment over the image's Python, unless the image has all | the environment |
| requirements | the same | the same |
| conda | the environment | a link to it |
| container | nothing | the image, pulled |

/opt/deeplearning/environments/current links to the environment, except for a container.
"""

import json
import re
import shutil
from dataclasses import asdict
from pathlib import Path

from deeplearning_contract.setting_parts import find_wheel_conflict
from deeplearning_node.atomic_file import write_file
from deeplearning_node.deadline import Clock
from deeplearning_node.node_facts import NodeFacts
from deeplearning_node.programs import ProgramError, Programs
from deeplearning_node.provision_status import ENVIRONMENT_STEP
from deeplearning_provision.disk import switch_link
from deeplearning_provision.environments.flow import Flow
from deeplearning_provision.environments.recipe import (
    CONDA,
    CONTAINER,
    HOROVOD,
    REQUIREMENTS,
    Recipe,
    find_recipe,
)
from deeplearning_provision.environments.registry import log_in
from deeplearning_provision.environments.site import CURRENT, BuildSite, make_shared
from deeplearning_provision.environments.store import COMPLETE
from deeplearning_provision.program_failure import NETWORK, Meaning, explain_failure, explain_program_errors
from deeplearning_provision.python.interpreter import Interpreter
from deeplearning_provision.python.venv import import_frameworks, make_venv
from deeplearning_provision.status import Status, lock_file
from deeplearning_provision.steps import ProvisionFailure

IMAGE_FOLDER = "image"
"""Environment over the image's own Python."""
PULL_SECONDS = 2 * 3600
CREATE_SECONDS = 2 * 3600
CONDA_COMMANDS = {
    "mamba": ("env", "create"),
    "conda": ("env", "create"),
    "micromamba": ("create", "--yes"),
}
"""Program -> subcommand that makes an environment from a file; the fastest first."""
CONDA_FOLDERS = ("/opt/conda/bin", "/opt/miniconda3/bin", "/opt/miniforge3/bin", "/opt/anaconda3/bin")
ASK_SECONDS = 60
_NO_RIGHT = re.compile("permission denied", re.IGNORECASE)


def build_or_install(
    facts: NodeFacts, status: Status, root: Path, programs: Programs, clock: Clock, *, is_thorough: bool = False
) -> None:
    """
    Provide the declared environment on this node, unless it is installed; the step's last detail describes it.

    One process of a node does this at a time. With `is_thorough` the master reads the archive to its end, and rebuilds
    a damaged one; otherwise nodes detect damage when they unpack it.
    """
    site = BuildSite(facts, status, root, programs, clock, is_thorough)
    with lock_file(root, ENVIRONMENT_STEP):
        site.transcript.begin()
        site.local.mkdir(parents=True, exist_ok=True)
        site.report("inspecting the image")
        recipe, interpreter = find_recipe(facts, site.settings, root, programs)
        if recipe.kind == CONDA:
            status.finish(ENVIRONMENT_STEP, _provide_conda(site, recipe))
        elif recipe.kind == CONTAINER:
            status.finish(ENVIRONMENT_STEP, _pull_image(site, recipe.source))
        elif interpreter is not None:
            _provide_over_image(site, recipe, interpreter)
        else:
            kinds = f"{HOROVOD}, {REQUIREMENTS}, {CONDA} or {CONTAINER}"
            raise ProvisionFailure(f"environment.kind must be {kinds}, got {recipe.kind}", "deploy again")


def _provide_over_image(site: BuildSite, recipe: Recipe, interpreter: Interpreter) -> None:
    if recipe.kind == HOROVOD:
        _check_framework(site.settings.framework, recipe)
        _check_wheel(recipe.source, interpreter)
    python = site.local / CURRENT / "bin" / "python"
    if recipe.is_in_image and (detail := provide_image(site, interpreter)):
        site.check_driver(python)
        site.status.finish(ENVIRONMENT_STEP, detail)
        return
    flow = Flow(site, interpreter, recipe)
    detail = flow.run()
    site.check_driver(python)  # The environment may be that of another image.
    site.status.finish(ENVIRONMENT_STEP, detail)
    flow.make_lasting()


def _check_framework(pinned: str, recipe: Recipe) -> None:
    """Refuse an image that conflicts with the pin; a pinned PyTorch may be the default, and is ignored."""
    if not recipe.frameworks and not pinned:
        raise ProvisionFailure(
            "the image must have torch, tensorflow or mxnet when no framework is pinned, got none of them",
            "pin a framework such as torch==2.7.1, or use an image that has one, and deploy",
        )
    if pinned.startswith("tensorflow") and recipe.frameworks and "tensorflow" not in recipe.frameworks:
        found = ", ".join(f"{name} {version}" for name, version in recipe.frameworks.items())
        raise ProvisionFailure(
            f"environment.framework must be left out where the image has another, got {pinned} beside {found}",
            "use an image without a framework, or a requirements file, and deploy",
        )


def _check_wheel(framework: str, interpreter: Interpreter) -> None:
    """Refuse a pin without a wheel for the interpreter before anything is downloaded; empty for no pin."""
    conflict = find_wheel_conflict(framework, interpreter.version)
    if conflict is not None:
        fitting, pin = conflict
        raise ProvisionFailure(
            f"environment.framework must have a wheel for Python {interpreter.version} of {interpreter.path}, got "
            f"{framework}, whose are for {fitting}",
            f"pin {pin}, or use an image with such a Python, and deploy",
        )


def provide_image(site: BuildSite, interpreter: Interpreter) -> str:
    """Link the image's Python, if its Horovod works, and return one line about it; empty when it does not work."""
    site.report("importing the image's Horovod")
    try:
        import_frameworks(interpreter.program, interpreter.frameworks, interpreter.horovod, site.transcript)
    except ProvisionFailure as error:
        site.report(f"the image's Horovod does not work: {error.cause}")
        return ""
    if interpreter.is_virtual:
        switch_link(site.local / CURRENT, str(interpreter.program.parents[1]))
    else:
        folder = site.local / IMAGE_FOLDER
        if not (folder / "bin" / "pip").exists():  # It is written last.
            make_venv(interpreter, folder, site.transcript)
        switch_link(site.local / CURRENT, IMAGE_FOLDER)
    frameworks = ", ".join(f"{name} {version}" for name, version in interpreter.frameworks.items())
    return f"the image's own Horovod for {frameworks}, at {interpreter.path}; nothing was built"


def _pull_image(site: BuildSite, image: str) -> str:
    if not site.programs.has("docker"):
        raise ProvisionFailure("the image of the nodes has no docker", "use a deep learning image, which has it")
    site.report(f"pulling {image}")
    failed = f"could not pull {image}"
    meanings = (
        Meaning(
            _NO_RIGHT, "the login user may not use docker", "add the user to the group docker in the set-up script"
        ),
        Meaning(NETWORK, failed, "check the route to its registry", may_pass=True),
    )
    try:
        with log_in(image, site.clock) as variables:
            pull = ["docker", "pull", "--quiet", image]
            site.transcript.run(pull, timeout_seconds=PULL_SECONDS, environment=variables)
        site.transcript.run(["docker", "image", "inspect", "--format", "{{.Id}}", image], timeout_seconds=ASK_SECONDS)
    except ProgramError as error:
        remedy = "check its name and tag; a private registry other than ECR needs credentials on the nodes"
        raise explain_failure(error, meanings, failed, remedy) from error
    return f"container image {image}"


def _provide_conda(site: BuildSite, recipe: Recipe) -> str:
    """
    Provide the environment of a conda file on this node, and return one line about it.

    Many of its files contain its path, so the master makes it in its final place, on the shared file system.
    """
    if recipe.horovod:
        raise ProvisionFailure("horovod must be left out with a conda file", "list it in the file, with its compilers")
    prefix = site.shared / recipe.digest

    def is_whole() -> bool:
        return (prefix / COMPLETE).exists()

    make_shared(site, recipe, is_whole, lambda: _make_conda(site, recipe, prefix))
    with explain_program_errors(f"{prefix} must have a working Python", "list python in the conda file"):
        site.transcript.run([str(prefix / "bin" / "python"), "--version"], timeout_seconds=ASK_SECONDS)
    site.check_driver(prefix / "bin" / "python")
    switch_link(site.local / CURRENT, str(prefix))
    document = json.loads((prefix / COMPLETE).read_text(encoding="utf-8"))
    return f"conda environment, made by {document['built_by']} in {document['seconds']:.0f} s"


def _make_conda(site: BuildSite, recipe: Recipe, prefix: Path) -> None:
    file = site.fetch_file("environment.yml")
    program, arguments = _find_conda(site)
    shutil.rmtree(prefix, ignore_errors=True)
    site.report(f"{Path(program).name} makes the environment")
    begin = site.clock.read()
    try:
        site.transcript.run(
            [program, *arguments, "--prefix", str(prefix), "--file", str(file)],
            timeout_seconds=CREATE_SECONDS,
            environment={"CONDA_ALWAYS_YES": "true", "PYTHONNOUSERSITE": "1"},
        )
    except ProgramError as error:
        told = (f"{Path(program).name} failed", "correct the conda file, or check the route to its channels")
        raise explain_failure(error, [Meaning(NETWORK, *told, may_pass=True)], *told) from error
    made = {"recipe": asdict(recipe), "built_by": site.facts.instance_id}
    write_file(prefix / COMPLETE, json.dumps(made | {"seconds": site.clock.read() - begin}) + "\n")


def _find_conda(site: BuildSite) -> tuple[str, tuple[str, ...]]:
    for name, arguments in CONDA_COMMANDS.items():
        if site.programs.has(name):
            return name, arguments
        for folder in CONDA_FOLDERS:
            program = site.root / folder.lstrip("/") / name
            if program.exists():
                return str(program), arguments
    raise ProvisionFailure(
        f"the image has none of {', '.join(CONDA_COMMANDS)}",
        "install one in the set-up script, or use a requirements file or a container",
    )
