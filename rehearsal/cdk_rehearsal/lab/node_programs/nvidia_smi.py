"""
`nvidia-smi` of nodes that are said to have GPUs: lists them, tells health and load, and fails on all else.

Persistence mode is off at each boot, as with Ubuntu's package, whose service is `nvidia-persistenced
--no-persistence-mode`. While it is off every call starts the GPUs anew and so finds them busy: 90 to 99 % where nobody
uses them (jina-ai/clip-as-service#254).
"""

import json
import os
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

STATE = Path("/usr/lib/lab/gpus.json")
PERSISTENCE = Path("/run/nvidia-persistence-mode")
"""There while the mode is on; a reboot empties /run."""
_NO_DEVICES, _NO_PERMISSION, _USAGE = 6, 4, 2
_STARTING_LOAD = "97"
_SAMPLE_SECONDS = 0.3
_FORMATS = frozenset({"csv", "noheader", "nounits"})
_Field = Callable[[Mapping[str, Any], str, int], str]


class UsageError(ValueError):
    """The call fails; the message is what it prints."""

    def __init__(self, message: str, status: int = _USAGE) -> None:
        """Take the message, and the exit status. Default: that of a command line that asks for what it does not do."""
        super().__init__(message)
        self.status = status


def _yes(key: str, otherwise: str = "No") -> _Field:
    """Return a field that is a trouble of GPU 0. Default: without the trouble it is `No`."""
    return lambda state, _, index: "Yes" if state[key] and index == 0 else otherwise


def _ecc_errors(state: Mapping[str, Any], _: str, index: int) -> str:
    return str(state["ecc_errors"] if index == 0 else 0)


def _read_ticks() -> int:
    """Return the processor time of the node's processes so far, in ticks."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name in parentheses may hold spaces; user and system time are fields 14 and 15.
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        ticks += int(fields[11]) + int(fields[12])
    return ticks


def _measure_load(_: Mapping[str, Any], __: str, ___: int) -> str:
    """Return how busy the node's processes keep a processor, in percent: what trains there does so on it."""
    if not PERSISTENCE.exists():
        return _STARTING_LOAD
    before, begin = _read_ticks(), time.monotonic()
    time.sleep(_SAMPLE_SECONDS)
    seconds = (_read_ticks() - before) / os.sysconf("SC_CLK_TCK")
    return str(max(0, min(100, round(100 * seconds / (time.monotonic() - begin)))))


FIELDS: Mapping[str, _Field] = {
    "index": lambda _, __, index: str(index),
    "driver_version": lambda state, _, __: str(state["driver"]),
    "name": lambda _, __, ___: "Stand-in GPU",
    "utilization.gpu": _measure_load,
    "uuid": lambda _, machine_id, index: name_gpu(machine_id, index),
    "ecc.errors.uncorrected.volatile.total": _ecc_errors,
    "ecc.errors.uncorrected.aggregate.total": _ecc_errors,
    # An H100 remaps rows and retires no pages (driver 580); the trouble stands for an older GPU.
    "retired_pages.pending": _yes("has_pending_pages", "[N/A]"),
    "remapped_rows.pending": _yes("has_pending_pages"),
    "remapped_rows.failure": _yes("has_row_failure"),
}


def name_gpu(machine_id: str, index: int) -> str:
    """Return the UUID of a GPU, which stays the same across reboots."""
    return f"GPU-{uuid.uuid5(uuid.NAMESPACE_OID, f'{machine_id}/{index}')}"


def list_gpus(count: int, machine_id: str) -> str:
    """Return the output of `nvidia-smi -L`; the machine id seeds the UUIDs."""
    return "".join(f"GPU {index}: Stand-in GPU (UUID: {name_gpu(machine_id, index)})\n" for index in range(count))


def query_gpus(fields: Sequence[str], formats: Sequence[str], state: Mapping[str, Any], machine_id: str) -> str:
    """Return the output of `nvidia-smi --query-gpu=… --format=…`; no field here has a unit."""
    for field in fields:
        if field not in FIELDS:
            raise UsageError(f'Field "{field}" is not a valid field to query.')
    if "csv" not in formats or not set(formats) <= _FORMATS:
        raise UsageError(f"nvidia-smi stand-in: --format must be csv[,noheader][,nounits], got {','.join(formats)}")
    rows = [[FIELDS[field](state, machine_id, index) for field in fields] for index in range(state["count"])]
    lines = rows if "noheader" in formats else [list(fields), *rows]
    return "".join(", ".join(line) + "\n" for line in lines)


def turn_on_persistence(count: int, *, is_root: bool) -> str:
    """Turn persistence mode on until the next boot, and return the output of `nvidia-smi -pm 1`; root alone may."""
    buses = [f"00000000:00:{0x1B + index:02X}.0" for index in range(count)]
    if not is_root:
        refusal = f"Unable to set persistence mode for GPU {buses[0]}: Insufficient Permissions"
        raise UsageError(f"{refusal}\nTerminating early due to previous errors.", _NO_PERMISSION)
    PERSISTENCE.touch()
    return "".join(f"Enabled persistence mode for GPU {bus}.\n" for bus in buses) + "All done.\n"


def answer_call(arguments: Sequence[str], state: Mapping[str, Any], machine_id: str) -> str:
    """Return the output of a call on a node with GPUs; UsageError when it is not implemented."""
    if list(arguments) in (["-L"], ["--list-gpus"]):
        return list_gpus(state["count"], machine_id)
    if list(arguments) in (["-pm", "1"], ["--persistence-mode=1"]):
        return turn_on_persistence(state["count"], is_root=os.geteuid() == 0)
    options = dict(argument.split("=", 1) for argument in arguments if "=" in argument)
    if len(arguments) != len(options) or set(options) != {"--query-gpu", "--format"}:
        raise UsageError(f"nvidia-smi stand-in: {' '.join(arguments)!r} is not implemented")
    fields = [field.strip() for field in options["--query-gpu"].split(",")]
    return query_gpus(fields, options["--format"].split(","), state, machine_id)


def main(arguments: Sequence[str]) -> int:
    """Serve `-L`, `--list-gpus`, `-pm 1`, and `--query-gpu=` with `--format=`."""
    state = json.loads(STATE.read_text())
    machine_id = Path("/etc/machine-id").read_text().strip()
    time.sleep(state["answer_seconds"])
    if not state["count"]:
        sys.stdout.write("No devices were found\n")
        return _NO_DEVICES
    try:
        answer = answer_call(arguments, state, machine_id)
    except UsageError as error:
        sys.stdout.write(f"{error}\n")  # as nvidia-smi does
        return error.status
    sys.stdout.write(answer)
    return 0
