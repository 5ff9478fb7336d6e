"""Build of an environment on the master: pip resolves and installs, then Horovod is compiled and tested."""

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from deeplearning_contract.setting_parts import decode_requirements
from deeplearning_provision import disk
from deeplearning_provision.environments.recipe import HOROVOD, Recipe
from deeplearning_provision.environments.site import BuildSite
from deeplearning_provision.environments.store import Manifest, find_kept, hold_place
from deeplearning_provision.horovod.build import NEEDS, build_horovod, try_horovod
from deeplearning_provision.horovod.plan import HorovodPlan, check_headers, describe_compilers, plan_horovod
from deeplearning_provision.program_log import follow_compiler, follow_pip, ignore_line
from deeplearning_provision.python.interpreter import Interpreter, ask_interpreter
from deeplearning_provision.python.pip import MISSING_COMPILERS, Pip, Resolved, read_report
from deeplearning_provision.python.venv import make_venv
from deeplearning_provision.steps import ProvisionFailure
from deeplearning_provision.system_packages import (
    COMPILER,
    ENSUREPIP,
    HEADERS,
    MAKE,
    install_system_packages,
    name_packages,
)

GIB = 1 << 30
BUILD_BYTES = 3 * GIB
"""Space for the system's compilers (0.4 GB), CUDA's from PyPI (0.6 GB), Horovod's objects (1 GB), and small files."""
CUDA_BYTES = 9 * GIB
"""Space for PyTorch with CUDA: 5.2 GB installed, 2.8 GB of wheels in pip's cache, and the largest of them again."""
BUILD_INODES = 60_000
"""PyTorch with CUDA has 28,000 files, and Horovod's sources with their objects 10,000."""
COMPILE_REMEDY = "pin another version of the framework, or declare no Horovod and use torchrun (full log: {})"
ROOM_REMEDY = "give nodes a larger workers.volume_size, or free space"


@dataclass(frozen=True)
class Build:
    site: BuildSite
    interpreter: Interpreter  # The image's Python
    recipe: Recipe
    scratch: Path  # Temporary files and pip's cache

    def pip(self, python: Path) -> Pip:
        """Return the pip of an environment; all share one cache."""
        folders = {"PIP_CACHE_DIR": str(self.scratch / "cache"), "TMPDIR": str(self.scratch / "tmp")}
        return Pip(python, self.site.transcript, folders, self.site.programs, self.interpreter.version)


def build_environment(site: BuildSite, interpreter: Interpreter, recipe: Recipe) -> Manifest:
    """
    Build an environment in its place on this node, unless it has what pip resolves now; return its manifest.

    Effects: packages of the system that the build needs; the environment's folder, with the manifest last. A failure
    removes the folder.
    """
    begin = site.clock.read()
    # pip may download a framework with CUDA to resolve it.
    _check_room(site, is_cuda=recipe.kind == HOROVOD and bool(recipe.source and recipe.compute_capability))
    with hold_place(site.local, recipe.digest, site.facts.instance_id) as scratch:
        build = Build(site, interpreter, recipe, scratch)
        (scratch / "tmp").mkdir(parents=True)
        _install_tools(build)
        packages = _resolve(build)
        _check_room(site, is_cuda=any(package.name.startswith("nvidia-") for package in packages))
        compilers = describe_compilers(site.root, site.programs) if recipe.horovod else {}
        key = recipe.key([package.identity for package in packages], compilers)
        folder = site.local / key
        if (kept := find_kept(site.shared, key)) or (kept := Manifest.read(folder)):
            return kept
        try:
            plan = _fill(build, packages, folder)
            manifest = Manifest(
                key,
                asdict(recipe),
                tuple(sorted(f"{package.name}=={package.version}" for package in packages)),
                site.facts.instance_id,
                round(site.clock.read() - begin, 1),
                asdict(plan) if plan else {},
            )
            manifest.write(folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
    return manifest


def _check_room(site: BuildSite, *, is_cuda: bool) -> None:
    size = BUILD_BYTES + (CUDA_BYTES if is_cuda else 0)
    disk.check_room("the environment's build", site.local, size, BUILD_INODES, remedy=ROOM_REMEDY)


def _install_tools(build: Build) -> None:
    programs, interpreter = build.site.programs, build.interpreter
    wanted = {
        COMPILER: bool(build.recipe.horovod) and not programs.has("g++"),
        MAKE: bool(build.recipe.horovod) and not programs.has("make"),
        HEADERS: bool(build.recipe.horovod) and not (Path(interpreter.headers) / "Python.h").exists(),
        ENSUREPIP: not interpreter.pip and not interpreter.has_ensurepip,
    }
    _install_needs(build, [need for need, is_wanted in wanted.items() if is_wanted])
    if wanted[HEADERS]:
        check_headers(interpreter)


def _install_needs(build: Build, needs: list[str]) -> None:
    site = build.site
    if needs:
        names = name_packages(needs, site.programs, build.interpreter.version)
        install_system_packages(site.programs, site.transcript, names, site.report)


def _run_pip(build: Build, pip: Pip, *words: str, on_line: Callable[[str], None] = ignore_line) -> None:
    """Run pip; if a package needs a compiler that the image lacks, install one and run pip again."""
    try:
        pip.run(*words, on_line=on_line)
    except ProvisionFailure as error:
        if error.cause != MISSING_COMPILERS:
            raise
        _install_needs(build, [COMPILER, HEADERS])
        pip.run(*words, on_line=on_line)


def _resolve(build: Build) -> list[Resolved]:
    """Return the packages that pip would install; each file separately with hashes, which pip then requires of all."""
    build.site.report("resolving the packages that the image lacks")
    files = _write_requirements(build)
    pip = build.pip(make_venv(build.interpreter, build.scratch / "venv", build.site.transcript))
    pip.prepare(build.interpreter.pip, is_builder=True)
    has_hashes = any("--hash" in decode_requirements(file.read_bytes()) for file in files)
    report = build.scratch / "report.json"
    found: dict[str, Resolved] = {}
    for group in [[file] for file in files] if has_hashes else [files]:
        words = [word for file in group for word in ("--requirement", str(file))]
        if words:
            _run_pip(build, pip, "install", "--dry-run", "--report", str(report), *words)
            packages = read_report(json.loads(report.read_text(encoding="utf-8")))
            found = {**{package.name: package for package in packages}, **found}
    return list(found.values())


def _write_requirements(build: Build) -> list[Path]:
    files, recipe = [], build.recipe
    if recipe.kind != HOROVOD:
        files.append(build.site.fetch_file("requirements.txt"))
    own = [*([recipe.source] if recipe.kind == HOROVOD and recipe.source else []), *(NEEDS if recipe.horovod else ())]
    if own:
        files.append(build.scratch / "needs.txt")
        files[-1].write_text("".join(f"{line}\n" for line in own), encoding="utf-8")
    return files


def _fill(build: Build, packages: list[Resolved], folder: Path) -> HorovodPlan | None:
    site = build.site
    python = make_venv(build.interpreter, folder, site.transcript)
    pip = build.pip(python)
    pip.prepare(build.interpreter.pip, is_builder=False)
    if packages:
        exact = build.scratch / "exact.txt"
        exact.write_text("".join(f"{package.line}\n" for package in packages), encoding="utf-8")
        site.report("installing packages", len(packages), "packages")
        # Even if the image has the same version: its package is no part of the environment.
        words = ("install", "--no-deps", "--ignore-installed", "--requirement", str(exact))
        _run_pip(build, pip, *words, on_line=follow_pip(site.show, len(packages)))
    site.check_driver(python)  # Before minutes of compilation.
    if not build.recipe.horovod:
        return None
    return _add_horovod(build, pip, python)


def _add_horovod(build: Build, pip: Pip, python: Path) -> HorovodPlan:
    """Compile Horovod in an environment over the finished one, which stays without the build's requirements."""
    site, recipe = build.site, build.recipe
    finished = ask_interpreter(python, site.programs)
    plan = plan_horovod(recipe.horovod, finished, site.root, site.programs, capability=recipe.compute_capability)
    compiling = build.pip(make_venv(finished, build.scratch / "compile", site.transcript))
    what = f"compiling Horovod {plan.version} for {', '.join(plan.frameworks)}"
    wheels, watch = build.scratch / "wheels", follow_compiler(site.show, what)
    try:
        build_horovod(compiling, plan, wheels, build.scratch, site.report, on_line=watch)
    except ProvisionFailure as error:
        if not error.is_final or error.cause != "pip wheel failed":
            raise
        cause = f"could not compile {what.removeprefix('compiling ')}"
        raise ProvisionFailure(cause, COMPILE_REMEDY.format(site.transcript.log), output=error.output) from error
    (wheel,) = wheels.glob("horovod-*.whl")
    site.report("testing Horovod")
    # The image may have its own Horovod, for another framework.
    pip.run("install", "--no-index", "--no-deps", "--ignore-installed", str(wheel))
    try_horovod(python, plan, site.transcript)
    return plan
