"""An environment of a requirements file: wheels made once by the master, installed on every node from those alone."""

import shutil
from dataclasses import asdict
from pathlib import Path

from deeplearning_agent.programs import ProgramError
from deeplearning_provision.environment_interpreter import Interpreter, ask_interpreter
from deeplearning_provision.environment_recipe import Recipe
from deeplearning_provision.environment_site import CURRENT, Site
from deeplearning_provision.environment_venv import make_venv, switch_link
from deeplearning_provision.environment_wait import hold_making, wait_for_master
from deeplearning_provision.horovod_build import NEEDS, build_horovod
from deeplearning_provision.horovod_plan import HorovodPlan, plan_horovod
from deeplearning_provision.horovod_trial import try_horovod
from deeplearning_provision.pip_program import WRONG_DIGEST, Pip
from deeplearning_provision.steps import ProvisionFailure
from deeplearning_provision.wheels import COMPLETE, LOCK, Manifest, list_wheels, make_wheels

IMPORT_SECONDS = 300


def provide_wheels(site: Site, interpreter: Interpreter, recipe: Recipe) -> str:
    """
    Bring the environment to this node: the master makes the wheels if nobody has, every node installs them.

    Returns:
        What is there now, in one line.

    Raises:
        ProvisionFailure: It cannot be brought.
    """
    folder = site.shared / recipe.digest
    if site.is_master:
        with hold_making(site, recipe, lambda: _is_whole(folder)) as is_left:
            if is_left:
                _make(site, interpreter, recipe, folder)
    elif _read_installed(site, recipe) is None:
        wait_for_master(site, recipe, lambda: Manifest.read(folder) is not None)
    manifest = _read_installed(site, recipe) or _install(site, interpreter, recipe, folder)
    switch_link(site.local / CURRENT, recipe.digest)
    return describe(manifest)


def describe(manifest: Manifest) -> str:
    """Return one line about an environment."""
    count = len(manifest.wheels)
    text = f"{count} wheel{'' if count == 1 else 's'}, made by {manifest.built_by} in {manifest.seconds:.0f} s"
    if manifest.horovod:
        frameworks = ", ".join(f"{name} {version}" for name, version in manifest.horovod["frameworks"].items())
        text += f"; Horovod {manifest.horovod['version']} for {frameworks}"
        text += "".join(f", not for {name}: {why}" for name, why in manifest.horovod["skipped"].items())
    return text


def _is_whole(folder: Path) -> bool:
    manifest = Manifest.read(folder)
    return manifest is not None and not manifest.damage(folder)


def _read_installed(site: Site, recipe: Recipe) -> Manifest | None:
    """The list is copied into an environment last: one that was interrupted has none."""
    return Manifest.read(site.local / recipe.digest)


def _make(site: Site, interpreter: Interpreter, recipe: Recipe, folder: Path) -> None:
    building = folder.with_name(f"{folder.name}.building-{site.facts.instance_id}")
    scratch = site.local / f"{recipe.digest}.scratch"
    for left in (building, scratch):
        shutil.rmtree(left, ignore_errors=True)
    begin = site.clock.read()
    try:
        building.mkdir(parents=True)
        horovod = _make_into(site, interpreter, recipe, building, scratch)
        wheels = list_wheels(building)
        seconds = round(site.clock.read() - begin, 1)
        manifest = Manifest(
            asdict(recipe), wheels, site.facts.instance_id, seconds, horovod.to_document() if horovod else {}
        )
        manifest.write(building)
        _put_in_place(building, folder)
    finally:
        for left in (building, scratch):
            shutil.rmtree(left, ignore_errors=True)


def _put_in_place(building: Path, folder: Path) -> None:
    """Rename a whole folder; where another node was first, its folder is as good."""
    if folder.exists() and not _is_whole(folder):
        shutil.rmtree(folder)
    try:
        building.rename(folder)
    except OSError:
        if not _is_whole(folder):
            raise


def _make_into(
    site: Site, interpreter: Interpreter, recipe: Recipe, building: Path, scratch: Path
) -> HorovodPlan | None:
    requirements = site.fetch_file("requirements.txt")
    _refuse_horovod(requirements, recipe)
    site.tell("asking pip what the requirements need beside the image")
    scratch.mkdir(parents=True)
    python = make_venv(interpreter, scratch / "venv", site.transcript)
    pip = Pip(python, site.transcript, {}, site.programs)
    pip.prepare(interpreter.pip, is_builder=True)
    site.tell("making wheels")
    for files in _order_files(requirements, recipe, scratch):
        made = make_wheels(pip, files, building, scratch, site.count)
        if made and recipe.horovod:
            _install_into(pip, building)
    if not recipe.horovod:
        return None
    found = ask_interpreter(python, site.programs)
    capability = max((hardware.compute_capability for hardware in site.facts.needs.hardware.values()), default="")
    plan = plan_horovod(recipe.horovod, found, site.root, site.programs, capability=capability)
    build_horovod(pip, plan, building, scratch, site.tell)
    (wheel,) = building.glob("horovod-*.whl")
    # The image may have a Horovod of its own, for another framework.
    pip.run("install", "--no-index", "--no-deps", "--ignore-installed", str(wheel))
    try_horovod(python, plan, site.transcript)
    return plan


def _order_files(requirements: Path, recipe: Recipe, scratch: Path) -> list[list[Path]]:
    """Return which files pip meets together; beside hashes it takes nothing without, so Horovod's needs come later."""
    if not recipe.horovod:
        return [[requirements]]
    needs = scratch / "horovod-needs.txt"
    needs.write_text("".join(f"{need}\n" for need in NEEDS))
    has_hashes = b"--hash" in requirements.read_bytes()
    return [[requirements], [needs]] if has_hashes else [[requirements, needs]]


def _refuse_horovod(requirements: Path, recipe: Recipe) -> None:
    lines = requirements.read_text(encoding="utf-8", errors="replace").splitlines()
    if recipe.horovod and any(line.strip().lower().startswith("horovod") for line in lines):
        raise ProvisionFailure(
            "requirements must not list horovod when the environment builds it", "remove its line from the file"
        )


def _install_into(pip: Pip, building: Path) -> None:
    lock = building / "scratch.lock"
    lock.write_text("".join(f"{wheel.requirement}\n" for wheel in list_wheels(building)))
    options = ("--no-index", "--find-links", str(building), "--no-deps", "--no-compile", "--ignore-installed")
    pip.run("install", *options, "--requirement", str(lock))
    lock.unlink()


def _install(site: Site, interpreter: Interpreter, recipe: Recipe, folder: Path) -> Manifest:
    manifest = Manifest.read(folder)
    if manifest is None:
        raise ProvisionFailure(
            f"{folder} has gone", "run deeplearning environment --build on the master", is_final=False
        )
    remedy = f"remove {folder} and run deeplearning environment --build on the master, then on this node"
    if damage := manifest.damage(folder):
        raise ProvisionFailure(f"{damage[0]} is not as long as {manifest.built_by} made it", remedy)
    final = site.local / recipe.digest
    site.tell("installing wheels", len(manifest.wheels))
    python = make_venv(interpreter, final, site.transcript)
    pip = Pip(python, site.transcript, {}, site.programs)
    pip.prepare(interpreter.pip, is_builder=False)
    if manifest.wheels:
        _install_lock(site, pip, folder, manifest, remedy)
    site.tell("importing the frameworks", len(manifest.wheels), len(manifest.wheels))
    _import_frameworks(site, ask_interpreter(python, site.programs), manifest)
    shutil.copyfile(folder / COMPLETE, final / f".{COMPLETE}")
    (final / f".{COMPLETE}").replace(final / COMPLETE)
    return manifest


def _install_lock(site: Site, pip: Pip, folder: Path, manifest: Manifest, remedy: str) -> None:
    seen = 0

    def count(line: str) -> None:
        nonlocal seen
        if line.startswith("Processing "):
            seen += 1
            site.count(seen, len(manifest.wheels))

    # Of nothing but these wheels: a package of the image that has the same version is none of the environment's.
    options = ("--no-index", "--find-links", str(folder), "--no-deps", "--ignore-installed", "--require-hashes")
    try:
        pip.run("install", *options, "--requirement", str(folder / LOCK), on_line=count)
    except ProvisionFailure as error:
        if error.cause != WRONG_DIGEST:
            raise
        cause = f"a wheel in {folder} is not what {manifest.built_by} made"
        raise ProvisionFailure(cause, remedy, output=error.output) from error


def _import_frameworks(site: Site, interpreter: Interpreter, manifest: Manifest) -> None:
    """Each in a process of its own, since frameworks do not always bear one another."""
    for module in interpreter.frameworks:
        name = f"horovod.{module}" if module in manifest.horovod.get("frameworks", {}) else module
        try:
            site.transcript.run(
                [str(interpreter.program), "-c", f"import {name}"],
                timeout_seconds=IMPORT_SECONDS,
                environment={"PYTHONNOUSERSITE": "1"},
            )
        except ProgramError as error:
            raise ProvisionFailure(
                f"{name} cannot be imported in the environment", "correct the requirements", output=error.output
            ) from error
