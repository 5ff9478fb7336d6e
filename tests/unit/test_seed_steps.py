"""
The pages for users of the predecessor: no cell is empty, and what they name is there.

Of a command that is its program, its options, the files and variables that it names; of a single word that it is a
prop, an output, a path or a program; of the last cell that there is such a test or case.
"""

import ast
import contextlib
import io
import itertools
import re
import shlex
from pathlib import Path

import pytest

from deeplearning_cdk import EksTraining, EmrTraining, SageMakerTraining
from deeplearning_cli.main import make_parser as make_user_parser
from deeplearning_command.main import make_parser as make_node_parser
from deeplearning_contract import names
from deeplearning_rehearsal.cases.loader import find_file, list_cases
from stacks.reader import list_keys

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "from-deeplearning-cfn.md"
CASES = {case.name: find_file(case) for case in list_cases()}
LEAST_STEPS = {"Mask R-CNN with TensorPack and Horovod": 20, "MXNet and TensorFlow": 17}
STACK_KEYS = {"regions", "stack_name", "tags", "availability_zones"}
EXAMPLES = ROOT / "examples"
NODE_PROGRAMS = {"bash", "git", "hostname", "mpirun", "pkill", "python3"}
"""Programs of nodes, without our own. Ubuntu has no `python`: https://packages.ubuntu.com/noble/python-is-python3."""
OWN_PROGRAMS = {"train.py"}
"""Stand-ins for a program of the user's."""
PROPS = set(list_keys())
GUIDE_HEAD = "| step of the predecessor's guide | here |"
GUIDES = {
    "emr.md": (
        EmrTraining,
        (
            "IAM user, create-cluster, uniform instance groups, Hue and Zeppelin, root volume, AMI, file system, "
            "mount targets, bootstrap action, metadata script, passwordless SSH, metadata_setup.sh, CIFAR-10, "
            "worker_ip_file, keys for S3"
        ),
    ),
    "eks.md": (
        EksTraining,
        (
            "EKS cluster using GPU, Kubeflow, EFS file system, mount it to each worker node, ImageNet, six values, "
            "preprocess_imagenet.sh, create the namespace, ksonnet app, default namespace, Persistent Volume:, "
            "Persistent Volume Claim, kubectl get pv, secret for SSH, openmpi component, Docker image, "
            "WORKERS=2; GPU=4, mpiexec -np 8, --hostfile, NCCL_SOCKET_IFNAME, tf_cnn_benchmarks, ks generate, "
            "volumes and volumeMounts, ks apply, kubectl get pod, save the log, iterate, 4 workers with 8 GPUs"
        ),
    ),
    "sagemaker.md": (
        SageMakerTraining,
        (
            "account, service limits, at least 2 GPU, Command Line Interface, IAM permissions, TensorPack and Horovod, "
            "COCO 2017, pre-trained model, customize, prepare-s3-bucket.sh, existing bucket in the same region, "
            "50 to 100 GB, nohup, screen, build_and_push.sh, for a region, Deep Learning AMI, upload the notebook"
        ),
    ),
}
"""Guide to a platform -> its construct, and words of each step of the predecessor's page about that platform."""
EMR_STEPS = {"metadata"}
PATHS = {value for value in vars(names).values() if isinstance(value, str) and value.startswith("/")}
OUTPUTS = set(
    re.findall(r'CfnOutput\(\w+, "(\w+)"', "".join(path.read_text() for path in (ROOT / "stacks").glob("*.py")))
)


def read_steps(text):
    """Yield the guide and the cells of each row."""
    for section in text.split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        for line in body.splitlines():
            if line.startswith("| ") and not line.startswith("| step of the guide"):
                yield title, [cell.strip() for cell in line.strip("|").split(" | ")]


STEPS = list(read_steps(PAGE.read_text()))


def find_mistakes(cells):
    """Say what is wrong with a row."""
    if len(cells) != 3 or not all(cell.strip("`. ") for cell in cells):
        return ["each of three cells must say something"]
    there, here, trial = cells
    mistakes = [f"{text}: {why}" for text in re.findall(r"`([^`]+)`", here) if (why := refuse_text(text))]
    variables = set(re.findall(r"\$\(*([A-Z_]+)", f"{there} {here}"))
    mistakes += [f"${name}: no such variable" for name in sorted(variables - set(names.CONTRACT_VARIABLES))]
    found = re.findall(r"`([^`]+)`", trial)
    if not found:
        mistakes.append("the last cell must name a test or a case")
    for name in found:
        path, _, test = name.partition("::")
        file = CASES.get(name, ROOT / name) if trial.startswith("case") else ROOT / path
        if not file.is_file() or f"\ndef {test}(" not in file.read_text() + "\ndef (":
            mistakes.append(f"{name} does not exist")
    return mistakes


def refuse_text(text):
    """Say why a text in backquotes names what is not there; empty when it does not."""
    plain = re.sub(r"\$\((?:[^()]|\(\([^()]*\)\)|\(([^()]|\([^()]*\))*\))*\)", "x", text.replace("...", "x"))
    words = shlex.split(re.sub(r"<[^>]*>", "x", plain))
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    return (
        refuse_word(words[0]) if len(words) == 1 and words[0] not in ("deeplearning", "make") else refuse_command(words)
    )


def refuse_word(word):
    """Say why a single word is neither prop nor output, path or program."""
    is_path = word in PATHS or word.startswith(f"E/{names.JOBS_FOLDER}/") or find_example(word)
    return "" if is_path or word in PROPS | OUTPUTS | NODE_PROGRAMS else "neither prop, output, path nor program"


def read_guide_rows(guide):
    """Return the cells of the table of the predecessor's steps in a guide; none where it has no such table."""
    _, _, rest = (ROOT / "docs" / "guides" / guide).read_text().partition(f"{GUIDE_HEAD}\n")
    rows = itertools.takewhile(lambda line: line.startswith("|"), rest.splitlines())
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in rows][1:]


def find_guide_mistakes(kind, cells):
    """Say what is wrong with a row of the guide to a platform, whose construct is of this kind."""
    if len(cells) != 2 or not all(cell.strip("`. ") for cell in cells):
        return ["each of two cells must say something"]
    mistakes = [f"{text}: {why}" for text in re.findall(r"`([^`]+)`", cells[1]) if (why := refuse_guide(kind, text))]
    targets = re.findall(r"\]\(([^)#]+)", cells[1])
    guides = ROOT / "docs" / "guides"
    return mistakes + [f"{target}: no such file" for target in targets if not (guides / target).is_file()]


def refuse_guide(kind, text):
    """Say why a text in backquotes is no prop, method, command, job file or EMR step; empty when it is one."""
    if called := re.fullmatch(r"training\.([a-z_]+)\(.*\)", text):
        return "" if hasattr(kind, called[1]) else f"no method {called[1]}"
    words = shlex.split(text)
    is_command = not refuse_arguments(make_user_parser(), [*words, "--help"])
    if text in {*list_keys(kind), *EMR_STEPS, "job.toml"} or is_command:
        return ""
    keys = [word.partition("=") for before, word in itertools.pairwise(words) if before == "-c"]
    if keys:
        return ", ".join(key for key, _, _ in keys if key not in {*list_keys(kind), "platform", *STACK_KEYS})
    return refuse_text(text) if len(words) > 1 else "neither prop, command nor job file"


def refuse_command(words):
    """Say why a command would not be accepted; empty when it would."""
    if words[0] in REFUSALS:
        return REFUSALS[words[0]](words[1:])
    if example := find_example(words[0]):
        return refuse_flags(example, words[1:])
    return "" if words[0] in NODE_PROGRAMS else f"{words[0]}: no node has it"


def refuse_node_command(words):
    """Say why `deeplearning` would not accept its arguments, or what it starts would not be there."""
    program = words[words.index("--") + 1 :] if "--" in words else []
    return refuse_arguments(make_node_parser(), words) or (refuse_command(program) if program else "")


def refuse_cdk(words):
    """Say which context keys app.py does not know."""
    keys = {word.partition("=")[0] for before, word in itertools.pairwise(words) if before == "-c"}
    return ", ".join(sorted(keys - PROPS - STACK_KEYS))


def refuse_target(words):
    """Say that there is no such target of make."""
    is_there = re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    return "" if is_there else "no such target"


def refuse_python(words):
    """Say that there is no such example, or which flags it does not take."""
    if example := find_example(words[0]):
        return refuse_flags(example, words[1:])
    return "" if words[0] in OWN_PROGRAMS else f"{words[0]}: no such example"


REFUSALS = {
    "deeplearning": refuse_node_command,
    "deeplearning-cdk": lambda words: refuse_arguments(make_user_parser(), words),
    "npx": refuse_cdk,
    "make": refuse_target,
    "python3": refuse_python,
}


def find_example(word):
    """Return the example that a word names, as it is called in the checkout, on the file system or in its folder."""
    name = (
        word.removeprefix("$EFS_MOUNT/").removeprefix("E/").removeprefix("deeplearning-cdk/").removeprefix("examples/")
    )
    path = EXAMPLES / name
    return path if path.is_file() else None


def refuse_flags(example, words):
    """Say which flags an example does not take; those behind a program that it starts are that program's."""
    begin = next((index for index, word in enumerate(words) if word.startswith("python")), len(words))
    if started := words[begin + 1 :]:
        return refuse_flags(example, words[:begin]) or refuse_python(started)
    programs = [example, *filter(None, map(find_example, words))]  # What it starts takes the rest.
    taken = {
        node.value
        for program in programs
        for node in ast.walk(ast.parse(program.read_text()))
        if isinstance(node, ast.Constant)
    }
    flags = [word.partition("=")[0] for word in words if word.startswith("-") and word != "--"]
    return ", ".join(f"{example.name} takes no {flag}" for flag in flags if flag not in taken)


def refuse_arguments(parser, arguments):
    """Say why a parser refuses arguments."""
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        try:
            parser.parse_args(arguments)
        except SystemExit as end:
            return said.getvalue().strip() if end.code else ""
    return ""


@pytest.mark.defect("D77")
@pytest.mark.parametrize("cells", [cells for _, cells in STEPS], ids=[cells[0][:40] for _, cells in STEPS])
def test_a_step_has_a_command_that_exists_and_a_test(cells):
    assert find_mistakes(cells) == []


def test_both_guides_are_there_from_their_first_step_to_their_last():
    counts = {title: sum(found == title for found, _ in STEPS) for title in LEAST_STEPS}
    assert all(counts[title] >= least for title, least in LEAST_STEPS.items()), counts
    numbers = [number for _, cells in STEPS for number in re.findall(r"^(\d)\. ", cells[0])]
    assert set(numbers) == set("123456789")


@pytest.mark.parametrize(
    ("cells", "mistake"),
    [
        (["a step", "", "case `quota`"], "each of three cells"),
        (["a step", "`deeplearning run`", "nothing"], "must name a test"),
        (["a step", "words", "`tests/unit/test_nothing.py`"], "does not exist"),
        (["a step", "words", "`tests/unit/test_seed_steps.py::test_nothing`"], "does not exist"),
        (["a step", "words", "case `nothing`"], "does not exist"),
        (["a step", "`deeplearning fly`", "case `quota`"], "invalid choice: 'fly'"),
        (["a step", "`deeplearning-cdk rehearse --fly`", "case `quota`"], "unrecognized arguments"),
        (["a step", "`npx cdk deploy -c wings=2`", "case `quota`"], "wings"),
        (["a step", "`make fly`", "case `quota`"], "no such target"),
        (["a step", "`python3 E/deeplearning-cdk/examples/fly.py`", "case `quota`"], "examples/fly.py"),
        (["a step", "`python3 train_fly.py`", "case `quota`"], "train_fly.py: no such example"),
        (["a step", "`deeplearning run -- python3 fly.py`", "case `quota`"], "fly.py: no such example"),
        (["a step", "`deeplearning run -- python train_mxnet.py`", "case `quota`"], "python: no node has it"),
        (
            ["a step", "`examples/mxnet/launch.py -n 2 python train_mxnet.py --wings`", "case `quota`"],
            "takes no --wings",
        ),
        (
            ["a step", "`examples/mxnet/launch.py python train_mxnet.py --gpus $(seq $((2 - 1))) --wings`", "x"],
            "no --wings",
        ),
        (["a step", "`python3 examples/evaluate_cifar10.py --wings=2`", "case `quota`"], "takes no --wings"),
        (["a step", "`ls $EFS_MOUNTS`", "case `quota`"], "$EFS_MOUNTS: no such variable"),
        (["`echo $DEEPLEARNING_WORKER_COUNT`", "words", "case `quota`"], "$DEEPLEARNING_WORKER_COUNT: no such"),
        (["a step", "prop `wings`", "case `quota`"], "wings: neither prop"),
        (["a step", "`/opt/deeplearning/wings`", "case `quota`"], "wings: neither prop"),
    ],
)
def test_a_planted_mistake_is_found(cells, mistake):
    assert any(mistake in found for found in find_mistakes(cells))


@pytest.mark.parametrize(
    ("guide", "cells"),
    [(guide, cells) for guide in GUIDES for cells in read_guide_rows(guide)],
    ids=lambda cell: cell[0],
)
def test_a_step_of_a_platforms_guide_has_an_answer_that_exists(guide, cells):
    assert find_guide_mistakes(GUIDES[guide][0], cells) == []


@pytest.mark.parametrize("guide", GUIDES)
def test_a_platforms_guide_has_each_step_of_the_predecessors_page(guide):
    steps = " ".join(cells[0] for cells in read_guide_rows(guide))
    assert [step for step in GUIDES[guide][1].split(", ") if step not in steps] == []


@pytest.mark.parametrize(
    ("cells", "mistake"),
    [
        (["a step", ""], "each of two cells"),
        (["a step"], "each of two cells"),
        (["a step", "`software.wings`"], "neither prop"),
        (["a step", "`fly`"], "neither prop"),
        (["a step", "`training.grant_wings(role)`"], "no method grant_wings"),
        (["a step", "`deeplearning-cdk fly job.toml`"], "invalid choice: 'fly'"),
        (["a step", "`npx cdk deploy -c platform=sagemaker -c wings=2`"], "wings"),
        (["a step", "[wings](../wings.md)"], "../wings.md: no such file"),
    ],
)
def test_a_planted_mistake_in_a_platforms_guide_is_found(cells, mistake):
    assert any(mistake in found for found in find_guide_mistakes(SageMakerTraining, cells))
