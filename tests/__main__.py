"""
`python -m tests [PART...]`: runs tests in processes beside one another, and says where the time went.

Each process is one part of the tests. Without words, all parts run but the rehearsals and the table of changes,
which `python -m tests base rehearsal changes` runs. As many run at once as there are cores, and two more,
since rehearsals mostly wait; a rehearsal starts when its memory is free. Logs are in `build/tests`.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cdk_rehearsal.errors import UnavailableError
from cdk_rehearsal.lab.images.base_root import install_missing_packages
from tests.cpu import Slowness, compare

LOGS = Path("build/tests")
PROGRAMS = {"ssh-keygen": "openssh-client", "g++": "g++"}
"""Programs that tests run on this machine, beside those of the lab, with their packages."""
SKIP_VARIABLE = "DEEPLEARNING_SKIP_ROOT_TESTS"
FORMS_MIB, TRAINS_MIB = 3000, 9000
"""Upper bounds of rehearsals, from their reports: of nodes that form, and of three or four that train."""
SPARE_MIB = 2048
RATCHET_VARIABLE = "RATCHET"
"""Set to 1, a part that takes more CPU than tests/cpu.toml lets it fails the run."""
SLOWEST = 10
_POLL_SECONDS = 0.2


@dataclass(frozen=True)
class Part:
    """
    A part of the tests, in a process of its own.

    Attributes:
        name: Of its log.
        paths: What pytest is given; empty for what nodes boot from, which is made and not tested.
        after: Parts that have to end before.
        memory_mib: What it takes beyond a few hundred MiB.
    """

    name: str
    paths: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    memory_mib: int = 0

    @property
    def command(self) -> list[str]:
        """Command line of the part."""
        if not self.paths:
            return ["make", "--no-print-directory", "base"]
        return [sys.executable, "-m", "pytest", *self.paths, f"--junitxml={LOGS / self.name}.xml"]


UNIT = "tests/unit"
NODE_TESTS = tuple(f"{UNIT}/deeplearning_{name}" for name in ("agent", "command", "jobs", "node"))
COMMAND_TESTS = tuple(f"{UNIT}/{name}" for name in ("deeplearning_cli", "deeplearning_view"))
REHEARSAL_TESTS = tuple(f"{UNIT}/{name}" for name in ("cdk_rehearsal", "deeplearning_rehearsal"))
OWN_PARTS = (
    *NODE_TESTS,
    *COMMAND_TESTS,
    *REHEARSAL_TESTS,
    f"{UNIT}/deeplearning_cdk",
    f"{UNIT}/deeplearning_provision",
)
PLATFORMS = tuple(
    f"tests/embedded_aws/test_{name}.py"
    for name in ("eks_access", "eks_clusters", "emr_clusters", "node_updates", "training_jobs")
)
FAILING = tuple(
    f"tests/embedded_aws/test_{name}.py"
    for name in ("creation_order", "early_ends", "failing_stack", "launch_check", "stack_deletion")
)
CHANGES, ORDERS = "tests/synthesis/test_changes.py", "tests/synthesis/test_creation_orders.py"


def leave_out(paths: Sequence[str]) -> tuple[str, ...]:
    """Return the words for pytest that leave paths out, which are in other parts."""
    return tuple(f"--ignore={path}" for path in paths)


PARTS = (
    Part("base"),
    Part("rehearsal-cases", ("tests/rehearsal/test_cases.py",), ("base",), TRAINS_MIB),
    Part("rehearsal-emr-jobs", ("tests/rehearsal/test_emr_submission.py",), ("base",), FORMS_MIB),
    Part("rehearsal-sagemaker-jobs", ("tests/rehearsal/test_sagemaker_jobs.py",), ("base",), FORMS_MIB),
    Part("rehearsal-eks-jobs", ("tests/rehearsal/test_eks_jobs.py",), ("base",), FORMS_MIB),
    Part("rehearsal-notebook", ("tests/notebook",), ("base",), FORMS_MIB),
    Part("rehearsal-fleets", ("tests/rehearsal/test_fleet.py", "tests/rehearsal/test_plain_apps.py"), ("base",), 1500),
    Part("rehearsal-broken", ("tests/rehearsal/test_rehearsals.py",), ("base",), FORMS_MIB),
    Part("rehearsal-orders", (ORDERS,)),
    Part("rehearsal-emr", ("tests/rehearsal/test_emr_cluster.py",), ("base",), FORMS_MIB),
    Part(
        "rehearsal-lab",
        (
            "tests/rehearsal/test_lab_nodes.py",
            "tests/rehearsal/test_lab_faults.py",
            "tests/rehearsal/test_lab_containers.py",
            "tests/rehearsal/test_container_images.py",
            "tests/rehearsal/test_training_image.py",
            "tests/rehearsal/test_amazon_linux_python.py",
        ),
        ("base",),
    ),
    # After the others that boot nodes: it compares links and mounts of this machine, and /run, before and after.
    Part(
        "rehearsal-ends",
        ("tests/rehearsal/test_enclosure.py",),
        (
            "rehearsal-cases",
            "rehearsal-emr-jobs",
            "rehearsal-sagemaker-jobs",
            "rehearsal-eks-jobs",
            "rehearsal-notebook",
            "rehearsal-fleets",
            "rehearsal-broken",
            "rehearsal-emr",
            "rehearsal-lab",
        ),
        FORMS_MIB,
    ),
    Part("changes", (CHANGES,)),
    Part("job", ("tests/rehearsal/test_submission.py",), ("base",), FORMS_MIB),
    Part("embedded-platforms", PLATFORMS),
    Part("unit-others", (UNIT, *leave_out(OWN_PARTS))),
    Part("embedded-aws", ("tests/embedded_aws", *leave_out((*FAILING, *PLATFORMS)))),
    Part("stacks", ("tests/synthesis", "tests/package", *leave_out((CHANGES, ORDERS)))),
    Part("unit-nodes", NODE_TESTS),
    Part("unit-constructs", (f"{UNIT}/deeplearning_cdk",)),
    Part("unit-provision", (f"{UNIT}/deeplearning_provision",)),
    Part("embedded-aws-failing", FAILING),
    Part("unit-commands", COMMAND_TESTS),
    Part("unit-rehearsal", REHEARSAL_TESTS),
    Part("kubernetes", ("tests/kubernetes",)),
)
"""
Whole rehearsals, then the others, in the order in which they start: what waits for memory or for nodes first, then the
longest, and short ones at the end, so that no core idles while one of them ends.
"""
QUICK_PARTS = tuple(part for part in PARTS if not part.name.startswith(("rehearsal-", "changes")))
"""Parts of `make test`: one rehearsal, `job`, and all that boots nothing but the table of changes."""


@dataclass
class Run:
    """
    One run of parts.

    Attributes:
        parts: The parts, in order.
        places: How many may run at once.
        free_mib: Memory that rehearsals may share; one runs in any case.
        ended: Exit status of each part that has ended.
        spans: Part -> seconds from the beginning of the run to its start, and to its end.
        cpu: Part -> CPU seconds of it and of its ended descendants.
    """

    parts: Sequence[Part]
    places: int
    free_mib: int
    ended: dict[str, int] = field(default_factory=dict)
    spans: dict[str, tuple[float, float]] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)

    def choose_next(self, running: Sequence[str]) -> Part | None:
        """Return the first part that may start now; None when there is none."""
        if len(running) >= self.places:
            return None
        begun, names = {*running, *self.ended}, {part.name for part in self.parts}
        left = self.free_mib - sum(part.memory_mib for part in self.parts if part.name in running)
        is_rehearsing = left < self.free_mib
        for part in self.parts:
            is_ready = part.name not in begun and all(name in self.ended for name in part.after if name in names)
            if is_ready and (part.memory_mib <= left or not is_rehearsing):
                return part
        return None

    def carry_out(self, start: Callable[[Part], "subprocess.Popen[bytes]"], report: Callable[[str], None]) -> None:
        """Run the parts, each in a process of `start`; report a line when one starts and when it ends."""
        begin = time.monotonic()
        running: dict[str, tuple[subprocess.Popen[bytes], float]] = {}
        while len(self.ended) < len(self.parts):
            while (part := self.choose_next(list(running))) is not None:
                report(f"{part.name}: starts")
                running[part.name] = (start(part), time.monotonic() - begin)
            ended = {name: used for name, (process, _) in running.items() if (used := bury(process)) is not None}
            for name, seconds in ended.items():
                process, since = running.pop(name)
                self.ended[name], self.cpu[name] = process.returncode, seconds
                self.spans[name] = (since, time.monotonic() - begin)
                how = "passed" if process.returncode == 0 else f"FAILED with status {process.returncode}"
                report(f"{name}: {how} after {self.spans[name][1] - since:.0f} s, {seconds:.0f} s of CPU")
            if not ended:
                time.sleep(_POLL_SECONDS)


def bury(process: "subprocess.Popen[bytes]") -> float | None:
    """Set the status of a process that has ended; return the CPU seconds of it and its ended descendants, or None."""
    pid, status, used = os.wait4(process.pid, os.WNOHANG)
    if not pid:
        return None
    process.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime


def read_tests(report: Path) -> list[tuple[float, str]]:
    """Return seconds and name of each test of a report that pytest wrote; none of one that is not there."""
    if not report.exists():
        return []
    cases = ET.parse(report).iter("testcase")  # noqa: S314 - pytest wrote it just now
    return [(float(case.get("time", "0")), f"{case.get('classname')}::{case.get('name')}") for case in cases]


def summarize(run: Run, tests: Sequence[tuple[float, str]], load: tuple[float, float, float]) -> list[str]:
    """
    Say where the time went: each part with its wait, and the slowest tests.

    Args:
        run: The run.
        tests: Seconds and name of each test.
        load: Load averages of the machine before the run, over 1, 5 and 15 minutes.
    """
    total = max((end for _, end in run.spans.values()), default=0.0)
    lines = [f"the {min(SLOWEST, len(tests))} slowest of {len(tests)} tests:"]
    lines += [f"{seconds:8.1f} s  {name}" for seconds, name in sorted(tests, reverse=True)[:SLOWEST]]
    lines.append(f"where {total:.0f} s went (load before: {load[0]:.1f}, {load[1]:.1f}, {load[2]:.1f}):")
    for part in run.parts:
        start, end = run.spans[part.name]
        waited = [name for name in part.after if run.spans.get(name, (0, 0))[1] > 1]
        reason = f"for {', '.join([*waited, 'a place'])}"
        waits = f", waited {start:.0f} s {reason}" if start > 1 else ""
        lines.append(f"{end - start:8.1f} s, {run.cpu[part.name]:6.1f} s of CPU  {part.name}{waits}")
    lines.append(f"{'':10} {sum(run.cpu.values()):7.1f} s of CPU  together")
    return lines


def list_missing_packages() -> list[str]:
    """Return the packages that the tests need and this machine lacks."""
    missing = [package for program, package in PROGRAMS.items() if shutil.which(program) is None]
    has_headers = (Path(sysconfig.get_path("include")) / "Python.h").exists()
    return missing if has_headers else [*missing, f"python3.{sys.version_info.minor}-dev"]


def main(words: Sequence[str]) -> int:
    """
    Run the parts; 0 when all passed, 1 when not, 2 when they cannot run.

    Args:
        words: Beginnings of names of parts; none for all but the whole rehearsals.
    """
    chosen = [part for part in PARTS if part.name.startswith(tuple(words))] if words else QUICK_PARTS
    if not chosen:
        print(f"parts must begin with {' or '.join(words)}, got {', '.join(part.name for part in PARTS)}")
        return 2
    try:
        install_missing_packages(print, list_missing_packages())
    except UnavailableError as error:
        print(error)
        return 2
    LOGS.mkdir(parents=True, exist_ok=True)
    for old in LOGS.iterdir():
        old.unlink()
    memory = Path("/proc/meminfo")
    lines = memory.read_text().splitlines() if memory.exists() else []
    free = next((int(line.split()[1]) // 1024 for line in lines if line.startswith("MemAvailable:")), 0)
    parts = [part for part in chosen if part.paths or os.environ.get(SKIP_VARIABLE) != "1"]
    run = Run(parts, (os.cpu_count() or 1) + 2, free - SPARE_MIB)
    load, slowness = os.getloadavg(), Slowness()
    processes = []

    def start(part: Part) -> "subprocess.Popen[bytes]":
        with (LOGS / f"{part.name}.log").open("wb") as log:
            processes.append(subprocess.Popen(part.command, stdout=log, stderr=subprocess.STDOUT))
        return processes[-1]

    def report(line: str) -> None:
        print(line, flush=True)

    try:
        run.carry_out(start, report)
    except KeyboardInterrupt:  # the terminal has interrupted the parts as well
        for process in processes:
            process.wait()
        return 130
    for name in run.ended:
        text = (LOGS / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        figures = [line for line in text.splitlines() if line.startswith("unit part")]
        report(
            f"=== {name}\n{text}" if run.ended[name] else "\n".join([f"=== {name}", *text.splitlines()[-1:], *figures])
        )
    tests = [test for part in parts for test in read_tests(LOGS / f"{part.name}.xml")]
    lines, wrong = compare(run.cpu, slowness.end())
    report("\n".join([*summarize(run, tests, load), *lines]))
    if wrong and os.environ.get(RATCHET_VARIABLE) == "1":
        report(f"{', '.join(wrong)} must not take more CPU than tests/cpu.toml says; raise it there, with the reason")
        return 1
    return int(any(run.ended.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
