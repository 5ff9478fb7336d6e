"""The programs of a machine of the model: a key generator, and the run script, which the model ends."""

from dataclasses import dataclass
from pathlib import Path

from tests.unit.virtual_time import require

FIRST_GROUP = 1_000_000_000
"""Process groups of the model are numbered from here, where no kernel has any."""


@dataclass(eq=False)
class Script:
    """The process of the user's run script, as `subprocess.Popen` shows it."""

    machine: object
    status_file: Path
    returncode: int | None = None

    def end(self, status):
        """Let it end with a status, which the shell around it notes."""
        if self.returncode is None:
            self.returncode = status
            self.status_file.write_text(f"{status}\n")
            self.machine.world.note(f"the run script on {self.machine.instance_id} ended with {status}")

    def kill(self):
        """Let it end with the machine."""
        self.returncode = -9


class ModelPrograms:
    """The programs of a machine: a key generator, and the run script that goes on until the model ends it."""

    def __init__(self, machine):
        self._machine = machine

    def has(self, command):
        return True

    def run(self, argv, *, timeout_seconds, environment=None):
        self._machine.world.scheduler.check()
        if argv[0] == "ssh-keyscan":
            return self._machine.world.show_host_key(argv[-1])
        if "-y" in argv:
            return f"ssh-ed25519 {self._machine.number:020d}key\n"
        if argv[0] == "ssh-keygen":
            for suffix in ("", ".pub"):
                self._machine.path(argv[-1] + suffix).write_text("secret")
        return ""

    def start(self, argv, *, environment=None, output=None):
        """Start the shell around the run script, which makes the first file unless it is there."""
        machine, started_file = self._machine, Path(argv[4])
        machine.world.scheduler.check()
        require(argv[0] == "sh" and "runuser" in argv, f"the model knows no program {argv}")
        moment = machine.count_call()
        if moment == "before":
            machine.crash()
        if not started_file.exists():
            started_file.write_text(f"{FIRST_GROUP + machine.number}\n")
            machine.world.run_script(machine, Path(argv[5]))
        if moment == "after":
            machine.crash()
