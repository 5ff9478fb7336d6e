"""The Debian archive of the nodes, asked by apt itself."""

import hashlib
import subprocess

from cdk_rehearsal.lab.packages import PackageServer, source_line, write_archive

CONTROL = """Package: tiny-thing
Version: 2:1.0-1
Architecture: all
Maintainer: nobody <nobody@example.org>
Description: a package
"""


def _write_package(folder):
    (folder / "tree" / "DEBIAN").mkdir(parents=True)
    (folder / "tree" / "DEBIAN" / "control").write_text(CONTROL)
    (folder / "packages").mkdir()
    path = folder / "packages" / "tiny-thing_2%3a1.0-1_all.deb"
    command = ["dpkg-deb", "--root-owner-group", "--build", str(folder / "tree"), str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path.parent


def _apt(folder, sources, *command):
    """Run apt-get with lists and caches of its own, and no source but this one."""
    places = {"Dir::State": "state", "Dir::Cache": "cache", "Dir::State::status": "status"}
    options = [f"{name}={folder / path}" for name, path in places.items()]
    options += [f"Dir::Etc::sourcelist={sources}", "Dir::Etc::sourceparts=/dev/null", "APT::Sandbox::User="]
    (folder / "status").touch()
    for name in ("state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    line = ["apt-get", *(part for option in options for part in ("-o", option)), *command]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)


def test_apt_finds_a_package_and_refuses_one_that_was_changed(tmp_path):
    packages = _write_package(tmp_path)
    write_archive(packages)
    (path,) = packages.glob("*.deb")
    assert ":" not in path.name
    assert "%" not in path.name
    sources = tmp_path / "sources.list"
    with PackageServer("127.0.0.1", 0, packages) as archive:
        sources.write_text(source_line(archive.url))
        assert _apt(tmp_path, sources, "update").returncode == 0
        answer = _apt(tmp_path, sources, "download", "tiny-thing")
        assert answer.returncode == 0, answer.stderr
        (found,) = tmp_path.glob("tiny-thing*.deb")
        assert hashlib.sha256(found.read_bytes()).digest() == hashlib.sha256(path.read_bytes()).digest()
        found.unlink()
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        assert "Hash Sum mismatch" in _apt(tmp_path, sources, "download", "tiny-thing").stderr
        assert "Unable to locate package other" in _apt(tmp_path, sources, "download", "other").stderr
