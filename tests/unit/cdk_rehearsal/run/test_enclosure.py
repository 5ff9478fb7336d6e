from pathlib import Path

import pytest

from cdk_rehearsal.errors import UnavailableError
from cdk_rehearsal.run.enclosure import raise_inotify_limit


def test_a_low_limit_is_raised_and_a_high_one_stays(tmp_path):
    limit = tmp_path / "max_user_instances"
    for before, after in (("128\n", "8192"), ("65536\n", "65536\n")):
        limit.write_text(before)
        raise_inotify_limit(limit)
        assert limit.read_text() == after


def test_a_limit_that_cannot_be_raised_names_the_command_for_the_host(monkeypatch):
    def refuse(*_):
        raise PermissionError(30, "Read-only file system")

    monkeypatch.setattr(Path, "read_text", lambda _: "128\n")
    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(UnavailableError, match=r"sysctl -w fs\.inotify\.max_user_instances=8192"):
        raise_inotify_limit(Path("/proc/sys/fs/inotify/max_user_instances"))
