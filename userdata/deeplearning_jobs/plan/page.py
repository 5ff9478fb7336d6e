"""Page of `deeplearning plan`: processes, places of ranks, and the reason for every part."""

import shlex
from collections.abc import Iterable, Sequence

from deeplearning_jobs.plan.job import RANK
from deeplearning_jobs.plan.launch_plan import LaunchPlan, Process
from deeplearning_jobs.plan.topology import Place, list_places

MOST_PLACES = 64
"""Most rows of a table; longer ones show their first and last rows."""
SHOWN_AT_EACH_END = 16
NO_GPU = "-"


def render_plan(plan: LaunchPlan) -> str:
    """Return the page."""
    sizes = f"{_count(len(plan.hosts), 'host')} x {_count(plan.slots, 'slot')}"
    head = f"{plan.launcher}: {_count(plan.ranks, 'rank')} = {sizes}"
    sections = [
        ("What runs", _render_processes(plan)),
        ("Where each rank runs", _render_places(list_places(plan))),
        ("Why", _render_reasons(plan)),
        ("Files of the run", _render_files(plan)),
        ("Log of rank 0", [plan.rank_zero_log]),
    ]
    body = "\n\n".join("\n".join([title, *(f"  {line}".rstrip() for line in lines)]) for title, lines in sections)
    return f"{head}\n\n{body}\n"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _render_processes(plan: LaunchPlan) -> Iterable[str]:
    """Yield the common variables of all processes once, before those of each."""
    processes = plan.processes
    rank_script = next(path for path in plan.files if path.endswith(f"/{RANK}"))
    shared = {
        name: value
        for name, value in processes[0].environment.items()
        if all(process.environment.get(name) == value for process in processes)
    }
    if len(processes) > 1:
        yield "with these variables for all:"
        yield from (f"    {name}={shlex.quote(value)}" for name, value in shared.items())
    for process in processes:
        end = "" if process.is_essential else ", stopped when the others have ended"
        yield f"{process.name} on {process.host}{end}:"
        own = process.environment if len(processes) == 1 else _without(process, shared)
        yield from (f"    {name}={shlex.quote(value)} \\" for name, value in own.items())
        yield from _wrap(process.argv, rank_script)


def _without(process: Process, shared: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in process.environment.items() if name not in shared}


def _wrap(argv: Sequence[str], rank_script: str) -> Iterable[str]:
    """Yield a command line with one option and its values a line, and the program on the last."""
    end = argv.index(rank_script)
    lines: list[list[str]] = [[]]
    for word in argv[:end]:
        if word.startswith("-"):
            lines.append([])
        lines[-1].append(shlex.quote(word))
    lines = [*filter(None, lines), [shlex.quote(word) for word in argv[end:]]]
    for index, line in enumerate(lines):
        yield "    " + ("  " if index else "") + " ".join(line) + (" \\" if index < len(lines) - 1 else "")


def _render_places(places: Sequence[Place]) -> Iterable[str]:
    rows = [("rank", "host", "local rank", "GPU", "network card")]
    rows += [
        (
            str(place.rank),
            place.host,
            str(place.local_rank),
            _join_numbers(place.gpus) or NO_GPU,
            _join_numbers(place.cards),
        )
        for place in places
    ]
    if len(places) > MOST_PLACES:
        left = len(places) - 2 * SHOWN_AT_EACH_END
        rows[SHOWN_AT_EACH_END + 1 : -SHOWN_AT_EACH_END] = [("…", f"{left} more ranks", "", "", "")]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _join_numbers(numbers: Sequence[int]) -> str:
    """Return consecutive numbers as a range; those of a rank always are."""
    if len(numbers) > 1 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]}-{numbers[-1]}"
    return ",".join(map(str, numbers))


def _render_reasons(plan: LaunchPlan) -> Iterable[str]:
    for reason in plan.reasons:
        yield reason.part
        yield f"    {reason.why}"


def _render_files(plan: LaunchPlan) -> Iterable[str]:
    for path, text in plan.files.items():
        yield f"{path}:"
        yield from (f"    {line}" for line in text.splitlines())
