"""Package sources of this machine from which the nodes' base root is made."""

import pytest

from cdk_rehearsal.lab.images.package_sources import pick_lines, pick_stanzas, read_host_sources

MIRROR = "http://mirror.example/debian"
DEB822 = f"""# a comment
Types: deb deb-src
URIs: {MIRROR}
Suites: bookworm bookworm-updates bookworm-backports
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: https://other.example/apt
Suites: bookworm
Components: stable
Signed-By: /etc/apt/keyrings/other.gpg
"""


def write_host(etc, *, codename="bookworm", sources=None, lines=None):
    (etc / "apt" / "sources.list.d").mkdir(parents=True)
    (etc / "os-release").write_text(f'NAME="Some Linux"\nVERSION_CODENAME={codename}\n')
    if sources:
        (etc / "apt" / "sources.list.d" / "some.sources").write_text(sources)
    if lines:
        (etc / "apt" / "sources.list").write_text(lines)
    return etc


def test_a_bookworm_host_gives_its_own_debian_mirror(tmp_path):
    assert read_host_sources(write_host(tmp_path, sources=DEB822)) == (
        f"Types: deb\nURIs: {MIRROR}\nSuites: bookworm bookworm-updates\nComponents: main contrib\n"
        "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
    )


@pytest.mark.parametrize("codename", ["noble", "trixie"])
def test_another_release_gives_none_so_that_mmdebstrap_uses_its_default(tmp_path, codename):
    assert read_host_sources(write_host(tmp_path, codename=codename, sources=DEB822)) is None


def test_a_host_without_sources_that_fit_gives_none(tmp_path):
    assert read_host_sources(write_host(tmp_path, lines="deb https://other.example/apt stable main\n")) is None


def test_sources_of_others_under_debians_suite_names_are_left_out():
    assert len(pick_stanzas(DEB822)) == 1


def test_disabled_stanzas_are_left_out():
    assert pick_stanzas(DEB822.replace("Types: deb deb-src", "Enabled: no\nTypes: deb deb-src")) == []


@pytest.mark.parametrize(
    ("line", "suite"),
    [
        (f"deb {MIRROR} bookworm main", "bookworm"),
        (f"deb [arch=amd64] {MIRROR} bookworm-security main contrib # note", "bookworm-security"),
    ],
)
def test_one_line_sources_are_read(line, suite):
    (stanza,) = pick_lines(line)
    assert f"Suites: {suite}\n" in stanza
    assert "#" not in stanza


@pytest.mark.parametrize(
    "line",
    [
        f"# deb {MIRROR} bookworm main",
        f"deb-src {MIRROR} bookworm main",
        f"deb {MIRROR} bookworm-backports main",
        "deb [signed-by=/etc/apt/keyrings/docker.gpg] https://other.example/linux bookworm stable",
    ],
)
def test_other_one_line_sources_are_left_out(line):
    assert pick_lines(line) == []
