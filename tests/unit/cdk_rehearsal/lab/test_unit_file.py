"""What the systemctl stand-in understands of unit files, and what it refuses."""

import pytest

from cdk_rehearsal.lab.node_programs.unit_file import (
    UnitError,
    parse_default_environment,
    parse_environment_file,
    parse_seconds,
    parse_unit,
    split_command,
)

UNIT = "[Unit]\nDescription=x\n[Service]\nType=simple\nExecStart=/bin/true\n"


def parse(*texts):
    return parse_unit("x.service", texts)


def test_drop_ins_add_and_an_empty_value_clears():
    unit = parse(
        UNIT + 'Environment=A=1 "B=two words"\n',
        "[Service]\nEnvironment=C=3\n",
        "[Service]\nExecStart=\nExecStart=/bin/ls",
    )
    assert unit.environment() == {"A": "1", "B": "two words", "C": "3"}
    assert unit.all("Service", "ExecStart") == ("/bin/ls",)


def test_comments_and_continued_lines_are_joined():
    unit = parse("[Service]\n# not me\n; nor me\nExecStart=/bin/echo \\\n  one two\n")
    assert split_command(unit.one("Service", "ExecStart", ""), {}) == (False, ["/bin/echo", "one", "two"])


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (UNIT + "ProtectSystem=strict\n", "ProtectSystem=strict.* is not implemented"),
        (UNIT + "[Timer]\n", r"section must be one of .* got \[Timer\]"),
        (UNIT + "Type=forking\n", "Type must be one of .* got 'forking'"),
        (UNIT + "Restart=on-abort\n", "Restart must be one of .* got 'on-abort'"),
        (UNIT + "Environment=NAME=%H\n", "specifiers are not implemented"),
        (UNIT + "[Unit]\nRequires=other.service\n", "Requires= of other than targets"),
        (UNIT + "nonsense\n", "'nonsense' is not implemented"),
        ("[Service]\nType=simple\n", "a service must have ExecStart="),
    ],
)
def test_what_is_not_implemented_is_refused(text, rule):
    with pytest.raises(UnitError, match=rule):
        parse(text)


@pytest.mark.parametrize("after", ["cloud-final.service", "network.target multi-user.target", "cloud-init.target"])
def test_a_unit_that_would_wait_for_the_user_data_that_starts_it_is_refused(after):
    with pytest.raises(UnitError, match="would wait for the user data that starts the unit"):
        parse(f"[Unit]\nAfter={after}\n{UNIT}")


def test_commands_expand_variables_as_systemd_does():
    variables = {"OPTIONS": "-a -b", "NAME": "two words"}
    assert split_command("-/bin/run $OPTIONS --name=${NAME} $$HOME 100%%", variables) == (
        True,
        ["/bin/run", "-a", "-b", "--name=two words", "$HOME", "100%"],
    )
    assert split_command("/usr/sbin/sshd -D $SSHD_OPTS", {}) == (False, ["/usr/sbin/sshd", "-D"])


@pytest.mark.parametrize("command", ["true", "!/bin/true", "@/bin/true x"])
def test_commands_without_a_plain_absolute_path_are_refused(command):
    with pytest.raises(UnitError, match="must begin with an absolute path"):
        split_command(command, {})


def test_default_environments_of_several_files_add_up():
    texts = ['[Manager]\nDefaultEnvironment="A=1" "B=2"\n', "[Manager]\nDefaultEnvironment=B=3\n"]
    assert parse_default_environment(texts) == {"A": "1", "B": "3"}


def test_an_environment_file_may_quote_and_comment():
    assert parse_environment_file("# x\n\nA=1\nB='two words'\nC=\n") == {"A": "1", "B": "two words", "C": ""}


@pytest.mark.parametrize(("text", "seconds"), [("5", 5), ("100ms", 0.1), ("1min 30s", 90), ("2h", 7200)])
def test_time_spans_are_read(text, seconds):
    assert parse_seconds(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "soon", "5 fortnights", "-1"])
def test_other_time_spans_are_refused(text):
    with pytest.raises(UnitError, match="a time span must"):
        parse_seconds(text)
