"""Release binaries are those that the user names, or those of the cache; nothing is downloaded unasked."""

import socket
import subprocess

import pytest

from cdk_rehearsal.errors import UnavailableError
from cdk_rehearsal.kubernetes.api_client import ApiClient
from cdk_rehearsal.kubernetes.binaries import PROGRAMS, VARIABLE, Binaries, find_binaries
from cdk_rehearsal.kubernetes.control_plane import ControlPlane

CONNECT = socket.socket.connect
SERVER = '[ "$1" = --version ] && {{ echo "Kubernetes v{version}"; exit; }}; exec sleep 600'


def write_programs(folder, version="1.35.2", names=PROGRAMS, script='echo "Kubernetes v{version}"'):
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        program = folder / name
        program.write_text(f"#!/bin/sh\n{script.format(version=version)}\n")
        program.chmod(0o755)
    return folder


def test_the_folder_that_the_user_names_comes_before_the_cache(tmp_path):
    named = write_programs(tmp_path / "named")
    cached = write_programs(tmp_path / "cache" / "kubernetes-1.35", "1.35.1")
    cache = tmp_path / "cache"
    assert find_binaries("1.35", cache, {VARIABLE: str(named)}) == Binaries(named, "1.35.2")
    assert find_binaries("1.35", cache, {}) == Binaries(cached, "1.35.1")


@pytest.fixture
def closed_machine(monkeypatch):
    """Let no connection leave this machine, and no program start."""

    def connect(own, address):
        assert address[0] == "127.0.0.1", f"a connection to {address}"
        return CONNECT(own, address)

    def refuse(command, *_, **__):
        pytest.fail(f"a program: {command}")

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(subprocess, "Popen", refuse)


@pytest.mark.usefixtures("closed_machine")
def test_without_programs_the_stand_in_runs_and_nothing_is_downloaded_or_compiled(tmp_path):
    cache = tmp_path / "cache"
    assert (find_binaries("1.35", cache, {}), cache.exists()) == (None, False)
    plane = ControlPlane(tmp_path / "plane", version="1.35", review=lambda _: None)
    assert (plane.is_stand_in, plane.description) == (True, "stand-in of Kubernetes 1.35")
    try:
        api = ApiClient(plane.endpoint, plane.authority, plane.token)
        assert {each["metadata"]["name"] for each in api.list("namespaces")} >= {"default", "kube-system"}
    finally:
        plane.stop()


def test_an_incomplete_folder_is_refused_by_what_it_lacks(tmp_path):
    folder = write_programs(tmp_path, names=("kube-apiserver", "etcd"))
    (folder / "kube-scheduler").mkdir()
    with pytest.raises(
        UnavailableError, match=f"got {folder} without kube-scheduler, kube-controller-manager; add them"
    ):
        find_binaries("1.35", tmp_path, {VARIABLE: str(folder)})


@pytest.mark.parametrize("odd", PROGRAMS[:3])
def test_another_minor_version_is_refused_by_name(tmp_path, odd):
    folder = write_programs(tmp_path)
    write_programs(folder, "1.36.2", [odd])
    with pytest.raises(UnavailableError, match=f"must have Kubernetes 1.35, .* got 1.36 of {folder}/{odd}; "):
        find_binaries("1.35", tmp_path, {VARIABLE: str(folder)})


def test_a_program_that_says_no_version_is_refused(tmp_path):
    folder = write_programs(tmp_path, script="exit 1")
    with pytest.raises(UnavailableError, match="got an unknown version of"):
        find_binaries("1.35", tmp_path, {VARIABLE: str(folder)})


def test_a_server_that_ends_is_named_with_its_last_words(tmp_path):
    folder = write_programs(tmp_path / "programs")
    write_programs(folder, names=["etcd"], script="echo no room for data >&2; exit 3")
    write_programs(folder, names=["kube-apiserver"], script=SERVER)
    binaries = find_binaries("1.35", tmp_path, {VARIABLE: str(folder)})
    with pytest.raises(UnavailableError, match=r"(?s)etcd must keep running, got exit status 3; .*no room for data"):
        ControlPlane(tmp_path / "plane", version="1.35", review=lambda _: None, binaries=binaries)


def test_schemas_of_an_unknown_version_are_refused(tmp_path):
    with pytest.raises(UnavailableError, match=r"version must be one of .*1\.36.*, got 1\.99"):
        ControlPlane(tmp_path, version="1.99", review=lambda _: None)
