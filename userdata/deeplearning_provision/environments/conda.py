"""
An environment of a conda file: made once by the master on the shared file system, and used from there by every node.

A conda environment holds its own path in many files, so it is made where it stays; a list in it says when it is whole.
"""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

from deeplearning_node.atomic_file import write_file
from deeplearning_node.programs import ProgramError
from deeplearning_provision.disk import switch_link
from deeplearning_provision.environments.recipe import Recipe
from deeplearning_provision.environments.site import CURRENT, Site, make_shared
from deeplearning_provision.environments.store import COMPLETE
from deeplearning_provision.program_failure import NETWORK, Meaning, explain_failure
from deeplearning_provision.steps import ProvisionFailure

CREATE_SECONDS = 2 * 3600
COMMANDS = {
    "mamba": ("env", "create"),
    "conda": ("env", "create"),
    "micromamba": ("create", "--yes"),
}
"""Program -> its subcommand that makes an environment of a file; the fastest that every image may have comes first."""
FOLDERS = ("/opt/conda/bin", "/opt/miniconda3/bin", "/opt/miniforge3/bin", "/opt/anaconda3/bin")


def provide_conda(site: Site, recipe: Recipe) -> str:
    """Make the environment available on this node, and return one line about it."""
    if recipe.horovod:
        raise ProvisionFailure("horovod must be left out with a conda file", "list it in the file, with its compilers")
    prefix = site.shared / recipe.digest

    def is_whole() -> bool:
        return (prefix / COMPLETE).exists()

    make_shared(site, recipe, is_whole, lambda: _make(site, recipe, prefix))
    _try_python(site, prefix)
    switch_link(site.local / CURRENT, str(prefix))
    document = json.loads((prefix / COMPLETE).read_text(encoding="utf-8"))
    return f"conda environment, made by {document['built_by']} in {document['seconds']:.0f} s"


def _make(site: Site, recipe: Recipe, prefix: Path) -> None:
    file = site.fetch_file("environment.yml")
    program, arguments = _find_conda(site)
    shutil.rmtree(prefix, ignore_errors=True)
    site.tell(f"{Path(program).name} makes the environment")
    begin = site.clock.read()
    try:
        site.transcript.run(
            [program, *arguments, "--prefix", str(prefix), "--file", str(file)],
            timeout_seconds=CREATE_SECONDS,
            environment={"CONDA_ALWAYS_YES": "true", "PYTHONNOUSERSITE": "1"},
        )
    except ProgramError as error:
        told = (f"{Path(program).name} failed", "correct the conda file, or see the route to its channels")
        raise explain_failure(error, [Meaning(NETWORK, *told, may_pass=True)], *told) from error
    made = {"recipe": asdict(recipe), "built_by": site.facts.instance_id}
    write_file(prefix / COMPLETE, json.dumps(made | {"seconds": site.clock.read() - begin}) + "\n")


def _find_conda(site: Site) -> tuple[str, tuple[str, ...]]:
    for name, arguments in COMMANDS.items():
        if site.programs.has(name):
            return name, arguments
        for folder in FOLDERS:
            program = site.root / folder.lstrip("/") / name
            if program.exists():
                return str(program), arguments
    raise ProvisionFailure(
        f"the image has none of {', '.join(COMMANDS)}",
        "install one in the set-up script, or give a requirements file or a container",
    )


def _try_python(site: Site, prefix: Path) -> None:
    try:
        site.transcript.run([str(prefix / "bin" / "python"), "--version"], timeout_seconds=60)
    except ProgramError as error:
        raise ProvisionFailure(
            f"{prefix} has no Python that runs", "list python in the conda file", output=error.output
        ) from error
