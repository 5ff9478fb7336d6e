"""GPUs of a node, as the NVIDIA driver reports them: count, memory faults, utilization and persistence mode."""

import logging
import re
from dataclasses import dataclass, field

from deeplearning_node.deadline import Clock, Deadline
from deeplearning_node.failure import StageFailure
from deeplearning_node.health.findings import Finding, clean, last_line
from deeplearning_node.node import Node
from deeplearning_node.programs import ProgramError, Programs

LOG = logging.getLogger(__name__)
GPU = "GPU count"
ECC = "GPU memory"
COMMAND = "nvidia-smi"
GPU_SECONDS = 60
"""Time for which a member waits for the driver: more than twice the time of a slow one (Azure/aks-gpu#105)."""
QUERY_SECONDS = 120
"""Time limit of the first query after boot, which loads the driver for eight GPUs."""
BUSY_PERCENT = 5
"""Utilization above which a GPU is busy."""
REPLACE = "terminate the instance, so that its group launches another"
MEMORY_FIELDS = {
    "ecc.errors.uncorrected.volatile.total": "uncorrected ECC errors since the driver was loaded",
    "retired_pages.pending": "pages to be retired at the next reset",
    "remapped_rows.failure": "a memory row that could not be remapped",
}
"""Field of the query -> description of the fault. Newer GPUs remap rows, older ones retire pages."""
FIELDS = ("index", "uuid", *MEMORY_FIELDS)

_UNKNOWN_FIELD = re.compile(r'Field "([^"]+)" is not a valid field')
_LOST = re.compile(
    r"Unable to determine the device handle|GPU is lost|requires reset|fallen off the bus", re.IGNORECASE
)
_BROKEN_VALUE = re.compile(r"\bERR!|\b(lost|error|reset)\b", re.IGNORECASE)
_COUNT = re.compile(r"[0-9]{1,18}")
_LISTED = re.compile(r"^GPU [0-9]+:", re.MULTILINE)


@dataclass(frozen=True)
class GpuReading:
    """Reading of all GPUs of a node."""

    count: int = 0  # GPUs that responded
    broken: tuple[str, ...] = ()  # Faults of GPUs as such, a line each
    memory_faults: tuple[str, ...] = ()  # Faults of their memory, a line each
    unread: str = field(default="", kw_only=True)  # Reason why the memory was not read; empty when it was


def turn_on_persistence(node: Node) -> None:
    """
    Make the driver keep idle GPUs initialized, until the next boot.

    Ubuntu's package starts `nvidia-persistenced --no-persistence-mode`. Each `nvidia-smi` then initializes all GPUs
    again: with eight it takes more than 25 s (Azure/aks-gpu#105, Azure/AgentBaker#2829), and reports a load of 90 to
    99 % on idle GPUs (jina-ai/clip-as-service#254).

    Effects: `nvidia-smi -pm 1`, where that command exists. A failure is only logged.
    """
    if not node.programs.has(COMMAND):
        return
    try:
        node.programs.run([COMMAND, "-pm", "1"], timeout_seconds=QUERY_SECONDS)
    except ProgramError as error:
        # A head node has the workers' image, and so a driver without a GPU.
        level = logging.WARNING if node.settings.expected_gpu_count else logging.INFO
        LOG.log(level, "could not turn on persistence mode: %s: %s", error, last_line(error.output))


def count_gpus(node: Node) -> int:
    """Return the number of GPUs that `nvidia-smi -L` lists; StageFailure for none on a type with GPUs."""
    expected = node.settings.expected_gpu_count
    count, cause, output = 0, "nvidia-smi lists none", ""
    try:
        output = node.programs.run([COMMAND, "-L"], timeout_seconds=QUERY_SECONDS)
        count = len(_LISTED.findall(output))
    except ProgramError as error:
        cause, output = str(error), error.output
    if expected > 0 and count == 0:
        raise StageFailure(
            f"the instance type has {expected} GPUs and the node shows 0: {cause}",
            "use an image whose NVIDIA driver supports them; a node never joins without its driver",
            output=output,
        )
    if count != expected:
        LOG.warning("counted %d GPUs where the instance type has %d; slots follow the count", count, expected)
    return count


def has_gpu(programs: Programs) -> bool:
    """Return whether `nvidia-smi -L` lists a GPU; False where it is not installed or fails."""
    try:
        return _LISTED.search(programs.run([COMMAND, "-L"], timeout_seconds=QUERY_SECONDS)) is not None
    except ProgramError:
        return False


def check_gpus(
    programs: Programs, expected: int, timeout_seconds: float, *, is_joining: bool = False
) -> tuple[Finding, Finding]:
    """
    Check number and memory of the GPUs that the driver reports; with 0 expected only their memory.

    The driver may take `timeout_seconds` in all. A slower driver is a fault of a node that joins, but not of a member,
    since slowness is no reason to evict it.
    """
    if not programs.has(COMMAND):
        return _judge(GpuReading(unread=f"{COMMAND} is not installed"), expected)
    try:
        return _judge(read_gpus(programs, Deadline.after(Clock(), timeout_seconds)), expected)
    except ProgramError as error:
        said = f": {last_line(error.output)}" if last_line(error.output) else ""
        what = f"{COMMAND} did not respond in {timeout_seconds:.0f} s" if error.is_late else f"{COMMAND} failed{said}"
        if error.is_late and not is_joining:
            return Finding.fit(GPU, f"not known: {what}"), Finding.fit(ECC, f"not known: {what}")
        return _judge(GpuReading(unread=what), expected)


def read_gpus(programs: Programs, deadline: Deadline) -> GpuReading:
    """
    Read count and memory of all GPUs; ProgramError when the driver does not respond.

    A driver refuses the whole query for one unknown field: the query is repeated without that field. When the query
    fails with another error, the GPUs of the plain list are counted.
    """
    fields = list(FIELDS)
    while True:
        argv = [COMMAND, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
        try:
            output = programs.run(argv, timeout_seconds=max(1.0, deadline.remaining))
        except ProgramError as error:
            unknown = _UNKNOWN_FIELD.search(error.output)
            if unknown and unknown[1] in MEMORY_FIELDS and unknown[1] in fields:
                fields.remove(unknown[1])
                continue
            if error.is_late:
                raise
            return _list_gpus(programs, deadline, error.output)
        reading = parse_query(output, tuple(fields))
        return reading if reading.count or reading.broken else _list_gpus(programs, deadline, output)


def read_utilization(programs: Programs, timeout_seconds: float) -> float | None:
    """Return the mean utilization of the node's GPUs in percent; None without GPUs or without a reading."""
    found = list_utilization(programs, timeout_seconds)
    return sum(found) / len(found) if found else None


def list_utilization(programs: Programs, timeout_seconds: float) -> list[int]:
    """Return the utilization of each GPU in percent; none without GPUs or without a reading."""
    if not programs.has(COMMAND):
        return []
    argv = [COMMAND, "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    try:
        output = programs.run(argv, timeout_seconds=timeout_seconds)
    except ProgramError:
        return []
    return [min(100, int(line)) for line in map(str.strip, output.splitlines()) if _COUNT.fullmatch(line)]


def parse_query(output: str, fields: tuple[str, ...]) -> GpuReading:
    """
    Parse the output of a query, a line a GPU, its values separated by commas, the index first.

    A value that the GPU does not support, such as `[N/A]`, or any other that is no number and no Yes, is no fault.
    """
    count, broken, faults = 0, [], []
    for line in output.splitlines():
        values = [value.strip() for value in line.split(",")]
        if len(values) != len(fields) or not _COUNT.fullmatch(values[0]):
            broken += [clean(line)] if _LOST.search(line) else []
            continue
        wrong = next((value for value in values[1:] if _BROKEN_VALUE.search(value)), "")
        if wrong:
            broken.append(f"GPU {values[0]} reports {clean(wrong)}")
            continue
        count += 1
        for name, value in zip(fields, values, strict=True):
            if name in MEMORY_FIELDS and _is_fault(value):
                faults.append(f"GPU {values[0]} has {MEMORY_FIELDS[name]} ({name} {value})")
    return GpuReading(count, tuple(broken), tuple(faults))


def _is_fault(value: str) -> bool:
    return value.lower() == "yes" or (_COUNT.fullmatch(value) is not None and int(value) > 0)


def _list_gpus(programs: Programs, deadline: Deadline, said: str) -> GpuReading:
    output = programs.run([COMMAND, "-L"], timeout_seconds=max(1.0, deadline.remaining))
    lost = dict.fromkeys(clean(line) for line in f"{said}\n{output}".splitlines() if _LOST.search(line))
    unread = f"{COMMAND} does not report it: {last_line(said) or 'no response'}"
    return GpuReading(len(_LISTED.findall(output)), tuple(lost), unread=unread)


def _judge(reading: GpuReading, expected: int) -> tuple[Finding, Finding]:
    """Return the two findings of a reading; on a node that needs no GPU, only broken ones are a fault."""
    reason = f": {reading.unread}" if reading.unread and not reading.count else ""
    if reading.broken:
        count = Finding.fault(GPU, "; ".join(reading.broken), REPLACE)
    elif reading.count < expected:
        count = Finding.fault(GPU, f"{reading.count} GPUs answer, {expected} are expected{reason}", REPLACE)
    else:
        count = Finding.fit(GPU, f"{reading.count} GPUs answer, {expected or 'none'} expected")
    if reading.memory_faults:
        memory = Finding.fault(ECC, "; ".join(reading.memory_faults), REPLACE)
    else:
        memory = Finding.fit(ECC, reading.unread or "no faults")
    return count, memory
