"""The recipe of a rehearsal of any stacks; runs in the first process of the lab's namespaces."""

import importlib.util
import json
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from cdk_rehearsal.assembly import AssemblyStack, read_stacks
from cdk_rehearsal.embedded_aws.base.cloud_options import CloudOptions, no_usual_order
from cdk_rehearsal.embedded_aws.base.stack_record import StackOutcome
from cdk_rehearsal.embedded_aws.cloud import EmbeddedAws
from cdk_rehearsal.embedded_aws.functions.javascript_sdk import prepare_sdk
from cdk_rehearsal.errors import RehearsalError, UnavailableError
from cdk_rehearsal.faults.strike import make_launch_faults, strike
from cdk_rehearsal.image_families import find_image_parts
from cdk_rehearsal.key_pairs import assume_key_pairs
from cdk_rehearsal.lab import open_lab
from cdk_rehearsal.lab.downloads import need_downloads
from cdk_rehearsal.lab.images.app_packages import add_packages, find_app_packages
from cdk_rehearsal.lab.images.base_root import prepare_base_root
from cdk_rehearsal.lab.images.image_parts import prepare_layers
from cdk_rehearsal.lab.lab import PORT, ROUTER
from cdk_rehearsal.machine import Machine
from cdk_rehearsal.plan import REPORT, Expectation, Plan
from cdk_rehearsal.printing import report_error
from cdk_rehearsal.referees.judge import Acceptance
from cdk_rehearsal.referees.order import find_usual_order
from cdk_rehearsal.report.report import STAND_IN, Report, Section, StackReport
from cdk_rehearsal.report.stand_ins import AWS_STAND_INS
from cdk_rehearsal.run.enclosure import end_enclosure
from cdk_rehearsal.run.fleet import AGENT_ACTIONS, USER_DATA_PART, Fleet
from cdk_rehearsal.run.memory import MemoryWatch
from cdk_rehearsal.run.progress import keep_progress, report_line, show_progress
from cdk_rehearsal.run.run import Run
from cdk_rehearsal.run.timeline import Timeline
from cdk_rehearsal.run.user_data import await_stack, list_limits

PROGRAM = "cdk-rehearse"
_BOOT_SECONDS = 120.0
"""Limit of cloud-init after the stack is complete; user data may signal before it ends."""
_ENDS = {"CREATE_COMPLETE": "complete", "ROLLBACK_COMPLETE": "rolled-back"}
_BOOT_RESULT = "/run/cloud-init/result.json"


def carry_out(argument: str, _lab_pid: int) -> int:
    """Rehearse a plan, write its report, and end this process; return the status when that is not possible."""
    try:
        document = json.loads(argument)
        _rehearse(Plan.from_json(document["plan"]), Acceptance(**document["acceptance"]), Timeline())
    except RehearsalError as error:
        return report_error(error, program=PROGRAM)
    return 0


def _rehearse(plan: Plan, acceptance: Acceptance, timeline: Timeline) -> None:
    keep_progress(timeline, Path(plan.out))
    stacks = read_stacks(Path(plan.assembly), plan.stacks)
    cache = Path(plan.cache or "")
    options = CloudOptions(
        key_pairs=assume_key_pairs(stacks),
        faults=(*plan.launch_faults, *make_launch_faults(plan.fault, stacks)),
        seed=plan.seed,
        find_usual_order=find_usual_order if acceptance.races else no_usual_order,
        policies=plan.read_policies(),
        node_modules=prepare_sdk(stacks, cache, report_line),
    )
    packages = find_app_packages(stacks) | set(plan.apt)
    base = add_packages(prepare_base_root(cache, report_line), packages, cache, lambda _: None)
    layers = prepare_layers(find_image_parts(stacks), base, None, cache, report_line)
    lab_parts = open_lab(plan.work, base, layers, has_downloads=need_downloads(stacks))
    with lab_parts as lab, MemoryWatch(plan.work) as memory:
        fleet = Fleet(lab, timeline, log_part=USER_DATA_PART)
        with (
            EmbeddedAws(address=ROUTER, port=PORT, machines=fleet, observer=fleet.observe, options=options) as aws,
            fleet,
            show_progress(timeline),
        ):
            fleet.on_end = aws.fail_instance
            with timeline.phase("create"):
                outcomes = _deploy(stacks, aws, fleet, plan)
            run = Run(outcomes, lab, fleet, aws)
            with timeline.phase("check"):
                problems = [*_judge_stack(plan.expect, run.stack), *_find_denials(aws)]
                if run.stack.status == "CREATE_COMPLETE":
                    problems += [*_judge_machines(plan, run, stacks), *_call_check(plan, run)]
                if problems or plan.expect == "rolled-back":
                    aws.require_soundness()
        fault = Section("fault", () if plan.fault is None else (plan.fault,))
        sections = (*_list_findings(acceptance), fault, *_list_sections(run, timeline, memory))
        report = Report(
            "fail" if problems else "pass",
            plan.expect,
            tuple(StackReport(name, each.status, each.reason, dict(each.outputs)) for name, each in run.stacks.items()),
            tuple(problems),
            sections,
        )
        _publish(report, Path(plan.out))
        end_enclosure(len(problems) > 0)


def _deploy(stacks: Sequence[AssemblyStack], aws: EmbeddedAws, fleet: Fleet, plan: Plan) -> dict[str, StackOutcome]:
    """Deploy stacks one after the other, up to one that does not become complete; return their outcomes by name."""
    outcomes: dict[str, StackOutcome] = {}
    deadline = time.monotonic() + plan.minutes * 60
    for stack in stacks:
        aws.deploy(stack, parameters=plan.parameters)
        outcomes[stack.name] = await_stack(aws, fleet, deadline)
        if outcomes[stack.name].status != "CREATE_COMPLETE":
            break
    return outcomes


def _judge_stack(expect: Expectation, outcome: StackOutcome) -> list[str]:
    if _ENDS.get(outcome.status) == expect:
        return []
    reason = f": {outcome.reason}" if outcome.reason else ""
    return [f"the stack must be {expect}, got {outcome.status}{reason}"]


def _find_denials(aws: EmbeddedAws) -> list[str]:
    """The SSM agent of an image calls AWS whatever the role allows: that it is denied is no fault of the stack."""
    denials = aws.authorizer.record.denials().items()
    return [f"{action} was denied: {said}" for action, said in denials if not action.startswith(AGENT_ACTIONS)]


def _judge_machines(plan: Plan, run: Run, stacks: Sequence[AssemblyStack]) -> list[str]:
    first = run.machines
    return [
        *_judge_user_data(run, first),
        *strike(plan.fault, run, stacks),
        *_judge_user_data(run, tuple(each for each in run.machines if each not in first)),
    ]


def _judge_user_data(run: Run, machines: Sequence[Machine]) -> list[str]:
    problems = []
    deadline = time.monotonic() + _BOOT_SECONDS
    for machine in machines:
        while run.execute(machine, ["test", "-s", _BOOT_RESULT]).returncode and time.monotonic() < deadline:
            time.sleep(0.2)
        answer = run.execute(machine, ["cat", _BOOT_RESULT])
        if answer.returncode:
            problems.append(f"user data of {machine.instance_id} must end, it still runs after {_BOOT_SECONDS:g} s")
            continue
        errors = json.loads(answer.stdout)["v1"]["errors"]
        problems += [f"user data of {machine.instance_id} must succeed, cloud-init says: {error}" for error in errors]
    return problems


def _call_check(plan: Plan, run: Run) -> list[str]:
    if plan.check is None:
        return []
    specification = importlib.util.spec_from_file_location("checks", plan.check)
    if specification is None or specification.loader is None:
        raise UnavailableError(f"check must be a Python file, got {plan.check}")
    module = importlib.util.module_from_spec(specification)
    try:
        specification.loader.exec_module(module)
        module.check(run)
    except Exception as error:  # noqa: BLE001 - whatever a check raises is its finding
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return [f"{Path(frame.filename).name}:{frame.lineno}: {type(error).__name__}: {error} ({frame.line})"]
    return []


def _list_findings(acceptance: Acceptance) -> tuple[Section, ...]:
    races = tuple(f"may fail, depending on the order of creation: {each}" for each in acceptance.races)
    return Section("race", races), Section("accepted", acceptance.accepted)


def _list_sections(run: Run, timeline: Timeline, memory: MemoryWatch) -> tuple[Section, ...]:
    calls = run.aws.calls()
    machines = [
        f"{machine.instance_id}  {machine.instance_type}  {machine.address}  {machine.zone}"
        for machine in run.fleet.launched()
    ]
    stand_ins = (f"{each.name} for {each.replaces}: {each.behaviour}" for each in (*run.lab.stand_ins, *AWS_STAND_INS))
    return (
        Section("output", tuple(_list_outputs(run))),
        Section("machine", tuple(machines)),
        Section("limit", list_limits(run.fleet)),
        Section("calls", tuple(f"{name}: {count}" for name, count in calls.by_kind.items())),
        Section("phases", ("  ".join(f"{span.name} {span.seconds:.1f} s" for span in timeline.spans),)),
        Section("memory", (f"at most {memory.peak_mib} MiB",)),
        Section(STAND_IN, tuple(stand_ins)),
    )


def _list_outputs(run: Run) -> Iterator[str]:
    for stack, outcome in run.stacks.items():
        prefix = f"{stack}." if len(run.stacks) > 1 else ""
        yield from (f"{prefix}{name} = {value}" for name, value in outcome.outputs.items())


def _publish(report: Report, out: Path) -> None:
    (out / REPORT).write_text(json.dumps(report.to_document(), indent=2) + "\n")
    (out / "report.txt").write_text(report.to_text() + "\n")
