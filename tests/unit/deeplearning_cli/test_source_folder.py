"""
A source folder as people have it: what is packed, what is left out, and what is refused before the upload.

`unpack` is the master's own: whatever is packed must be taken there.
"""

import os
import random
import socket
import stat
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from deeplearning_cli.errors import UnavailableError
from deeplearning_cli.jobs import source_folder
from deeplearning_cli.jobs.definition import pack
from deeplearning_cli.jobs.source_folder import describe_left_out
from deeplearning_contract.names import MOST_PARTS
from deeplearning_provision.archives.extraction import extract


@pytest.fixture
def project(tmp_path):
    """Return a source folder with a program."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text("print()")
    return folder


def write(path, text="x"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def link(path, target):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def unpack(packed, folder):
    """Unpack as the master does, and return the folder."""
    archive = folder.with_name(f"{folder.name}.tar.gz")
    archive.write_bytes(packed.content)
    folder.mkdir()
    extract(archive, "tar.gz", folder, 2, lambda _: None)
    return folder


def names(packed):
    with tarfile.open(fileobj=BytesIO(packed.content)) as archive:
        return sorted(archive.getnames())


def refuse(folder):
    with pytest.raises(UnavailableError) as refusal:
        pack(folder)
    return str(refusal.value)


def test_the_same_files_are_packed_to_the_same_bytes_without_caches(tmp_path):
    folder = tmp_path / "code"
    for name in ("b/run.sh", "a.py", "__pycache__/a.pyc", ".git/config", "b/a.pyc"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "b/run.sh").chmod(0o700)
    (folder / "link").symlink_to("a.py")
    packed = pack(folder)
    os.utime(folder / "a.py", (0, 0))
    assert pack(folder) == packed
    with tarfile.open(fileobj=BytesIO(packed.content)) as archive:
        found = {entry.name: entry.mode for entry in archive}
        assert all(entry.uid == 0 and entry.mtime == 0 for entry in archive.getmembers())
    assert sorted(found) == ["a.py", "b", "b/run.sh", "link"]
    assert (found["a.py"], found["b/run.sh"]) == (0o644, 0o755)


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("link", "/data/coco"),
        ("link", "../common"),
        ("link", "../nowhere"),
        ("deep/er/link", "../../../common"),
        ("link", "/nowhere"),
        ("link", "sub/../../common"),
    ],
)
def test_a_link_that_leads_out_is_refused_with_its_target(project, name, target):
    (project.parent / "common").mkdir()
    (project / "sub").mkdir()
    link(project / name, target)
    message = refuse(project)
    assert message.startswith(f"links in source must lead to what is packed with them, got {name} -> {target}")
    assert "name their path in program or env" in message


def test_all_that_the_nodes_cannot_have_is_named_at_once(project):
    for number in range(5):
        link(project / f"link{number}", f"/data/{number}")
    (project.parent / "data").mkdir()
    link(project / "data", "../data")
    link(project / "chain", "data")
    os.mkfifo(project / "pipe")
    # RFC 7530, 13.1.7: a server of NFSv4, such as EFS, may refuse a name that is not UTF-8.
    write(project / os.fsdecode(b"caf\xe9.txt"))
    link(project / "near", project.parent / "data")
    lines = refuse(project).splitlines()
    assert all(f"link{number} -> /data/{number}" in lines[0] for number in range(5))
    assert f"chain -> data ({project.parent}/data), data -> ../data, " in lines[0]
    assert f", near -> {project.parent}/data; replace each" in lines[0]
    assert lines[1].startswith("source must have only files, folders and links, got pipe (a FIFO)")
    assert lines[2].startswith("paths in source must be UTF-8")
    assert r"'caf\udce9.txt'" in lines[2]
    assert len(lines) == 3


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("link", "train.py"),
        ("sub/link", "../train.py"),
        ("self", "."),
        ("sub/up", ".."),
        ("loop", "loop"),
        (".#train.py", "me@host.1234:5678"),  # Emacs locks a file so (GNU Emacs Manual, "Interlocking").
    ],
)
def test_a_link_inside_the_source_stays_as_it_is(project, name, target):
    link(project / name, target)
    unpacked = unpack(pack(project), project.parent / "out")
    assert str((unpacked / name).readlink()) == target


@pytest.mark.parametrize("target", ["{}/sub/data", "../project/sub/data", "other/../sub/data", "{}/chain"])
def test_a_link_that_leads_out_and_in_again_is_packed_as_one_inside(project, target):
    write(project / "sub/data", "kept")
    link(project / "chain", "sub/data")
    (project / "other").mkdir()
    link(project / "link", target.format(project))
    unpacked = unpack(pack(project), project.parent / "out")
    assert (unpacked / "link").read_text() == "kept"
    assert (unpacked / "link").resolve().is_relative_to(unpacked)


def test_a_link_to_what_is_left_out_is_refused_and_one_through_it_leads_to_the_same_file(project):
    link(project / "node_modules/back", "../train.py")
    link(project / "link", "node_modules/back")
    assert (unpack(pack(project), project.parent / "out") / "link").read_text() == "print()"
    write(project / "node_modules/tool/run.js")
    link(project / "run.js", "node_modules/tool/run.js")
    assert "got run.js -> node_modules/tool/run.js; " in refuse(project)


def test_names_of_one_file_are_packed_as_files(project):
    os.link(project / "train.py", project / "copy.py")
    unpacked = unpack(pack(project), project.parent / "out")
    assert (unpacked / "copy.py").read_text() == (unpacked / "train.py").read_text() == "print()"


def test_sockets_are_left_out_as_gnu_tar_does(project, monkeypatch):
    """GNU tar 1.34, src/create.c, dump_file0: "%s: socket ignored"."""
    monkeypatch.chdir(project)
    (project / "agent").mkdir()
    with socket.socket(socket.AF_UNIX) as bound, socket.socket(socket.AF_UNIX) as below:
        bound.bind("x.sock")
        below.bind("agent/S.ssh")
        packed = pack(project)
    assert names(packed) == ["agent", "train.py"]
    assert describe_left_out(packed.left_out) == "x.sock (0.0 MB), agent/S.ssh (0.0 MB)"


def test_a_device_is_refused(project):
    try:
        os.mknod(project / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes devices")
    assert "got null (a device); move each out of" in refuse(project)


@pytest.mark.parametrize("name", ["venv", "env", ".venv", "sub/my environment"])
@pytest.mark.parametrize("mark", ["pyvenv.cfg", "conda-meta/history"])
def test_an_environment_stays_out_under_any_name(project, name, mark):
    """PEP 405: pyvenv.cfg marks a virtual environment; conda's documentation, "conda-meta": the same for conda."""
    write(project / name / mark)
    write(project / name / "lib/big.so", "x" * 1_000_000)
    link(project / name / "bin/python3", "/usr/bin/python3")
    packed = pack(project)
    assert names(packed) == (["sub", "train.py"] if "/" in name else ["train.py"])
    assert describe_left_out(packed.left_out) == f"{name} (1.0 MB)"


def test_a_link_to_an_environment_elsewhere_stays_out(project):
    write(project.parent / "envs/torch/pyvenv.cfg")
    link(project / "venv", "../envs/torch")
    link(project / ".venv", "/no/longer/there")
    assert names(pack(project)) == ["train.py"]


def test_a_source_that_is_an_environment_itself_is_refused(project):
    write(project / "pyvenv.cfg")
    assert "source must have its virtual environment in a folder of its own, got one in" in refuse(project)


@pytest.mark.parametrize(
    "name",
    [
        *(".git", ".git/config", ".hg/store", ".svn/entries", ".jj/repo", "sub/.git"),
        *("__pycache__/a.pyc", "a.pyc", "sub/.mypy_cache/x", ".pytest_cache/x", ".ruff_cache/x", ".tox/x", ".nox/x"),
        *(".ipynb_checkpoints/a.ipynb", "node_modules/x", "cdk.out/manifest.json"),
    ],
)
def test_version_control_and_caches_stay_out(project, name):
    """git-worktree(1) and gitsubmodules(7): `.git` is a file there."""
    write(project / name)
    assert {*names(pack(project))} <= {"train.py", "sub"}


def test_what_is_left_out_is_described_with_the_largest_first():
    left_out = {f"{name}/__pycache__": 1_000_000 for name in "abc"}
    left_out |= {"venv": 104_000_000, ".git": 2_000_000, "a.pyc": 0, "b/c.pyc": 0, "x.sock": 0, "y\n.sock": 0}
    assert describe_left_out(left_out) == (
        "venv (104.0 MB), 3 __pycache__ (3.0 MB), .git (2.0 MB), 2 *.pyc (0.0 MB), x.sock (0.0 MB), 1 more"
    )


def test_what_is_inside_counts_without_its_users_permissions_and_times(project):
    path = write(project / "run.sh")
    path.chmod(0o6755)
    for seconds in (-86400 * 3650 * 7, 2**33):
        os.utime(path, (seconds, seconds))
        unpacked = unpack(pack(project), project.parent / f"out{seconds}")
        assert stat.S_IMODE((unpacked / "run.sh").stat().st_mode) == 0o755


@pytest.mark.parametrize("size", [2_000_000_000, 10_000_000_000_000])
def test_a_huge_file_is_refused_without_being_read(project, monkeypatch, size):
    with (project / "weights.bin").open("wb") as file:
        try:
            file.truncate(size)
        except OSError:
            pytest.skip("the file system has no files of this size")
    monkeypatch.setattr("deeplearning_cli.jobs.definition._add_entry", None)
    message = refuse(project)
    assert "source must be at most 10 MB when packed and 1,000 MB before, got more; " in message
    assert f"weights.bin ({size / 1e6:.1f} MB)" in message


def test_a_folder_that_is_too_large_when_packed_ends_early(project):
    (project / "a.bin").write_bytes(os.urandom(10_100_000))
    for number in range(3):
        (project / f"b{number}.bin").write_bytes(b"x")
    os.mkfifo(project.parent / "pipe")
    message = refuse(project)
    assert message.startswith("source must be at most 10 MB")
    assert "its largest files are a.bin (10.1 MB)" in message


def test_a_path_that_is_too_deep_is_refused_and_the_deepest_is_unpacked(project):
    most = "/".join(["d"] * (MOST_PARTS - 1))
    write(project / most / "file")
    unpacked = unpack(pack(project), project.parent / "out")
    assert (unpacked / most / "file").read_text() == "x"
    write(project / most / "d/file")
    assert refuse(project).startswith(
        "paths in source must be UTF-8 of at most 255 bytes a name, 256 folders and 3,500"
    )


def test_names_with_spaces_newlines_and_other_alphabets_are_packed(project):
    for name in ("a b", "line\nend", "données", "数据", "-rf", "a\\b", "~", "x" * 255):
        write(project / name / name, name)
    unpacked = unpack(pack(project), project.parent / "out")
    assert (unpacked / "line\nend/line\nend").read_text() == "line\nend"
    assert sorted(path.name for path in unpacked.rglob("*")) == sorted(path.name for path in project.rglob("*"))


def test_files_and_folders_that_cannot_be_read_are_refused(project, monkeypatch):
    write(project / "a.key")
    write(project / "b.key")
    with monkeypatch.context() as patch:
        patch.setattr(source_folder.os, "access", lambda path, _: not str(path).endswith(".key"))
        assert "source must be readable, got a.key (Permission denied), b.key (Permission denied); " in refuse(project)
    (project / "secret").mkdir()
    scan = os.scandir

    def refuse_secret(path):
        if str(path).endswith("secret"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(source_folder.os, "scandir", refuse_secret)
    assert "source must be readable, got secret (Permission denied); " in refuse(project)


@pytest.mark.parametrize("change", ["vanishes", "shrinks", "is a link"])
def test_a_file_that_changes_meanwhile_is_refused(project, monkeypatch, change):
    path = write(project / "model.txt", "x" * 1000)

    def change_after_scan(folder):
        found = source_folder.scan_source(folder)
        path.unlink()
        if change == "is a link":
            path.symlink_to("/etc/passwd")
        return found

    monkeypatch.setattr("deeplearning_cli.jobs.definition.scan_source", change_after_scan)
    if change == "shrinks":
        monkeypatch.undo()
        monkeypatch.setattr("deeplearning_cli.jobs.definition.os.fstat", lambda _: os.stat_result([0] * 6 + [2000] * 4))
    assert "source must stay as it is while it is packed, got model.txt: " in refuse(project)


def test_a_file_that_grows_meanwhile_is_packed_as_it_was_opened(project, monkeypatch):
    path = write(project / "run.log", "first\n")

    def grow_after_scan(folder):
        found = source_folder.scan_source(folder)
        path.write_text("first\nsecond\n")
        return found

    monkeypatch.setattr("deeplearning_cli.jobs.definition.scan_source", grow_after_scan)
    assert (unpack(pack(project), project.parent / "out") / "run.log").read_text() == "first\nsecond\n"


def test_a_source_may_be_a_link_to_a_folder_and_no_file(project):
    link(project.parent / "current", "project")
    link(project / "data", f"{project.parent}/current/train.py")
    assert names(pack(project.parent / "current")) == ["data", "train.py"]
    assert refuse(project / "train.py") == f"source must be a folder, got {project}/train.py"


def test_an_empty_source_is_packed(tmp_path):
    (tmp_path / "empty").mkdir()
    packed = pack(tmp_path / "empty")
    assert packed.files == 0
    assert list(unpack(packed, tmp_path / "out").iterdir()) == []


def test_the_root_folder_and_the_home_folder_are_refused(project, monkeypatch):
    assert refuse(Path("/")).startswith("source must be a folder of the job alone, got /, ")
    for home in (project, project / "me"):
        monkeypatch.setenv("HOME", str(home))
        assert refuse(project).startswith(f"source must be a folder of the job alone, got {project}, ")
    monkeypatch.setenv("HOME", str(project.parent))
    assert names(pack(project)) == ["train.py"]
    monkeypatch.setattr(source_folder.os.path, "expanduser", lambda path: path)
    assert refuse(Path("/")).startswith("source must be a folder of the job alone, got /, "), "without a home folder"
    assert names(pack(project)) == ["train.py"]


@pytest.mark.parametrize("seed", range(40))
def test_what_is_packed_of_any_folder_is_unpacked_as_it_is(tmp_path, seed):
    """Random trees of files, folders, links of any target and second names: refused here, or the same there."""
    choice = random.Random(seed)  # noqa: S311 - it makes trees
    root = tmp_path / "root"
    root.mkdir()
    places = [root]
    for number in range(30):
        path = choice.choice(places) / f"{choice.choice(['a', 'b c', 'é', 'x' * 120])}{number}"
        kind = choice.choice(["file", "file", "folder", "folder", "link", "second"])
        if kind == "folder":
            path.mkdir()
            places.append(path)
        elif kind == "link":
            steps = ["..", ".", *(place.name for place in places), "absent"]
            start = choice.choice(["", "", f"{root}/"])
            path.symlink_to(start + "/".join(choice.choices(steps, k=choice.randint(1, 4))))
        elif kind == "second" and (files := [found for found in root.rglob("*") if found.is_file()]):
            os.link(choice.choice(files).resolve(), path)
        else:
            path.write_text(str(path.relative_to(root)))
    try:
        packed = pack(root)
    except UnavailableError as error:
        assert str(error).startswith("links in source must lead to what is packed with them, got ")  # noqa: PT017
        for text in str(error).partition(", got ")[2].rpartition("; replace each")[0].split(", "):
            path = root / text.partition(" -> ")[0]
            assert not path.exists() or not path.resolve().is_relative_to(root)
        return
    out = unpack(packed, tmp_path / "out")
    for path in root.rglob("*"):
        there = out / path.relative_to(root)
        assert os.path.lexists(there)
        assert there.exists() == path.exists()
        assert there.resolve().is_relative_to(out)
        if path.exists():
            assert there.resolve().relative_to(out) == path.resolve().relative_to(root)
        if path.is_file():
            assert there.read_text() == path.read_text()
