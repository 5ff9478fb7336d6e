"""The units of a node: finds their files, keeps them loaded as systemd does, enables and runs them."""

import threading
from collections.abc import Mapping
from pathlib import Path

from .service import Service, ServiceError
from .unit_file import UnitError, UnitFile, parse_default_environment, parse_unit

UNIT_FOLDERS = tuple(Path(name) for name in ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system"))
ENABLED = UNIT_FOLDERS[0] / "multi-user.target.wants"


class Units:
    """Every unit that was asked for since boot."""

    def __init__(self) -> None:
        self._services: dict[str, Service] = {}
        self._lock = threading.Lock()
        self._environment: Mapping[str, str] = {}
        self.reexecute()

    @property
    def default_environment(self) -> Mapping[str, str]:
        """`DefaultEnvironment` as it was when the manager last read its configuration."""
        return self._environment

    def reexecute(self) -> None:
        """Read the manager's configuration again, and the unit files."""
        folders = (Path("/usr/lib/systemd/system.conf.d"), Path("/run/systemd/system.conf.d"))
        # A drop-in of /etc replaces one of the same name elsewhere; names are read in their order.
        named = {path.name: path for folder in folders for path in folder.glob("*.conf")}
        named |= {path.name: path for path in Path("/etc/systemd/system.conf.d").glob("*.conf")}
        main = [path for path in [Path("/etc/systemd/system.conf")] if path.exists()]
        texts = [path.read_text() for path in (*main, *(named[name] for name in sorted(named)))]
        self._environment = parse_default_environment(texts)
        self.reload()

    def reload(self) -> None:
        """
        Read the unit files of all loaded units again.

        Raises:
            UnitError: A file holds what is not implemented.
        """
        with self._lock:
            for name, service in list(self._services.items()):
                if _find_file(name) is not None:
                    service.unit = _read(name)
                elif service.state in {"inactive", "failed"}:
                    del self._services[name]

    def get(self, name: str) -> Service:
        """
        Return a service by name or alias, loading its file the first time.

        Raises:
            ServiceError: There is no such unit.
            UnitError: Its file holds what is not implemented.
        """
        canonical = resolve_name(name)
        with self._lock:
            if canonical not in self._services:
                unit = _read(canonical)
                self._services[canonical] = Service(unit, lambda: self._environment)
            return self._services[canonical]

    def enable(self, name: str) -> None:
        """Link the unit into the target that its `WantedBy=` names, as boot expects it."""
        canonical = resolve_name(name)
        wanted = _read(canonical).one("Install", "WantedBy", "")
        if wanted != "multi-user.target":
            raise ServiceError(f"WantedBy= must be multi-user.target for the systemctl stand-in, got {wanted!r}")
        ENABLED.mkdir(parents=True, exist_ok=True)
        link = ENABLED / canonical
        if not link.is_symlink():
            link.symlink_to(_find_file(canonical) or canonical)

    def disable(self, name: str) -> None:
        """Remove the unit's link, so that boot does not start it."""
        (ENABLED / resolve_name(name)).unlink(missing_ok=True)

    def is_enabled(self, name: str) -> bool:
        """Tell whether boot starts the unit."""
        return (ENABLED / resolve_name(name)).is_symlink()

    def start_enabled(self) -> None:
        """Start what boot starts; a unit that fails does not keep the others from starting."""
        for link in sorted(ENABLED.glob("*.service")):
            try:
                self.get(link.name).start()
            except (ServiceError, UnitError, OSError, KeyError) as error:  # noqa: PERF203 - each unit fails alone
                print(f"{link.name}: {error}", flush=True)  # noqa: T201 - the node's console


def resolve_name(name: str) -> str:
    """
    Return a unit's own name: with its suffix, aliases followed.

    Raises:
        ServiceError: There is no such unit, or it is not a service.
    """
    full = name if "." in name else f"{name}.service"
    if not full.endswith(".service"):
        raise ServiceError(f"units other than services are not implemented by the systemctl stand-in, got {full}")
    path = _find_file(full)
    if path is None:
        raise ServiceError(f"Unit {full} not found.")
    return path.resolve().name


def _find_file(name: str) -> Path | None:
    return next((folder / name for folder in UNIT_FOLDERS if (folder / name).exists()), None)


def _read(name: str) -> UnitFile:
    path = _find_file(name)
    if path is None:
        raise ServiceError(f"Unit {name} not found.")
    folders = [folder / f"{name}.d" for folder in reversed(UNIT_FOLDERS)]
    drop_ins = {found.name: found for folder in folders for found in folder.glob("*.conf")}
    return parse_unit(name, [path.read_text(), *(drop_ins[key].read_text() for key in sorted(drop_ins))])
