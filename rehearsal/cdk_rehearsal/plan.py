"""A rehearsal of stacks as one value, and the function that carries it out."""

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Literal, get_args

from cdk_rehearsal.assembly import read_stacks, require_no_images, require_parameters
from cdk_rehearsal.cache import find_cache, require_cache
from cdk_rehearsal.embedded_aws.base.launch_faults import LaunchFault
from cdk_rehearsal.embedded_aws.functions.javascript_sdk import prepare_sdk
from cdk_rehearsal.errors import RehearsalError, UnavailableError
from cdk_rehearsal.extras import require_rehearsal
from cdk_rehearsal.faults.target import Fault, find_groups
from cdk_rehearsal.iam.given_policies import GivenPolicies, read_given_policies
from cdk_rehearsal.image_families import find_image_parts
from cdk_rehearsal.lab.images.app_packages import add_packages, find_app_packages
from cdk_rehearsal.lab.images.base_root import prepare_base_root
from cdk_rehearsal.lab.images.image_parts import prepare_layers
from cdk_rehearsal.printing import INTERRUPTED
from cdk_rehearsal.referees.judge import Acceptance, require_acceptance
from cdk_rehearsal.report.report import Report
from cdk_rehearsal.run.enclosure import require_namespaces, run_enclosed
from cdk_rehearsal.run.progress import report_line, report_warnings

Expectation = Literal["complete", "rolled-back"]
REPORT = "report.json"
_VERDICTS = (0, 1)


@dataclass(frozen=True)
class Plan:
    """
    Stacks to rehearse, and their expected end.

    Attributes:
        assembly: Folder of the cloud assembly, as `cdk synth` writes it.
        stacks: Names, paths or patterns of stacks, as `cdk deploy` takes them; what they need is deployed before them.
            Default: all stacks of the assembly, those of Stages too.
        parameters: Values of the templates' parameters, each for all stacks that declare it. Default: their defaults.
        expect: `complete`, or `rolled-back` when the last stack must fail. Default: `complete`.
        check: Python file with a function `check(run: Run)`, which is called when all stacks are complete; an
            AssertionError is a problem of the report. Default: none.
        organization_policies: Files of service control policies, as the policies of one level. Default: none.
        deployment_boundary: File of the permissions boundary of the role with which CloudFormation creates resources.
            Default: it has none.
        account_policies: Managed policies that the account has before: name with its path -> file. Default: none.
        launch_faults: Launches that fail on purpose. Default: none.
        fault: `capacity`: no launch of a group succeeds. `instance`: once the stacks are complete, an instance of a
            group loses its power, and the group must replace it. `network`: once they are complete, the subnet of such
            an instance is cut off, and the check is called then. Default: none.
        apt: Debian packages that machines may install, beside those that user data names. Default: none.
        referees: Whether the templates are first held against the rules of AWS. Default: they are.
        accept: Name of such a rule -> reason why its findings are no obstacle; the report shows both. Default: none.
        seed: Draws the order in which resources are created and deleted, as far as their dependencies leave it open;
            progress shows it. Default: a random number below 1,000,000.
        minutes: Time after which the stack is judged as it stands. Default: 10.
        out: Folder for report.txt and report.json. Default: build/rehearsal.
        cache: Folder that keeps what is made or downloaded once. Default: that of this user.

    Raises:
        ValueError: A value is not one of those above; the message names it.
    """

    assembly: Path | str
    stacks: Sequence[str] = ()
    parameters: Mapping[str, str] = field(default_factory=dict)
    expect: Expectation = "complete"
    check: Path | str | None = None
    organization_policies: Sequence[Path | str] = ()
    deployment_boundary: Path | str | None = None
    account_policies: Mapping[str, Path | str] = field(default_factory=dict)
    launch_faults: Sequence[LaunchFault] = ()
    fault: Fault | None = None
    apt: Sequence[str] = ()
    referees: bool = True
    accept: Mapping[str, str] = field(default_factory=dict)
    seed: int = field(default_factory=partial(secrets.randbelow, 1_000_000))
    minutes: float = 10.0
    out: Path | str = "build/rehearsal"
    cache: Path | str | None = None

    def __post_init__(self) -> None:
        if self.expect not in get_args(Expectation):
            raise ValueError(f"expect must be one of {', '.join(get_args(Expectation))}, got {self.expect!r}")
        if self.fault not in (None, *get_args(Fault)):
            raise ValueError(f"fault must be one of {', '.join(get_args(Fault))}, got {self.fault!r}")
        if self.minutes <= 0:
            raise ValueError(f"minutes must be more than 0, got {self.minutes:g}")

    @property
    def work(self) -> Path:
        """Folder of the lab; what is in it is in memory, and ends with the lab."""
        return Path(self.out) / "lab"

    def read_policies(self) -> GivenPolicies:
        """Read the files of policies; UnavailableError for one that is none."""
        return read_given_policies(self.organization_policies, self.deployment_boundary, self.account_policies)

    def resolve(self) -> "Plan":
        """Return the plan with absolute paths."""
        return replace(
            self,
            assembly=Path(self.assembly).resolve(),
            check=None if self.check is None else Path(self.check).resolve(),
            out=Path(self.out).resolve(),
            cache=find_cache() if self.cache is None else Path(self.cache).resolve(),
        )

    def to_json(self) -> str:
        """Return the text that `from_json` reads in the enclosed process."""
        return json.dumps(
            asdict(self), default=lambda value: sorted(value) if isinstance(value, frozenset) else str(value)
        )

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        """Read what `to_json` wrote."""
        document = json.loads(text)
        faults = [
            LaunchFault(**fault | {"ordinals": None if fault["ordinals"] is None else frozenset(fault["ordinals"])})
            for fault in document.pop("launch_faults")
        ]
        return cls(**document, launch_faults=tuple(faults)).resolve()


def rehearse(plan: Plan) -> Report:
    """
    Deploy stacks to an embedded AWS on this machine, boot their instances, and judge what became of them.

    Shows progress on standard error and writes report.txt and report.json. Needs Linux and root. The first call makes
    the machines' root file system, which takes a minute and 190 MB of downloads, and fetches what functions of Node.js
    name of the AWS SDK.

    Args:
        plan: What to rehearse.

    Raises:
        RefusedError: AWS would refuse a template; the message lists all findings.
        RehearsalError: It could not be tried; the message says why, and what to do.
        KeyboardInterrupt: The user interrupted it.
    """
    plan = plan.resolve()
    assembly, out, cache = Path(plan.assembly), Path(plan.out), Path(plan.cache or find_cache())
    if plan.check is not None and not Path(plan.check).is_file():
        raise UnavailableError(f"check must be a Python file, got {plan.check}; there is no such file")
    plan.read_policies()
    stacks = read_stacks(assembly, plan.stacks)
    for stack in stacks:
        require_no_images(stack)
    if plan.fault is not None:
        find_groups(stacks)
    require_parameters(stacks, plan.parameters)
    report_warnings(assembly, plan.stacks)
    require_namespaces()
    require_cache(cache)
    require_rehearsal()
    acceptance = require_acceptance(stacks, cache, plan.parameters, plan.accept) if plan.referees else Acceptance()
    out.mkdir(parents=True, exist_ok=True)
    (out / REPORT).unlink(missing_ok=True)
    base = prepare_base_root(cache, report_line)
    add_packages(base, find_app_packages(stacks) | set(plan.apt), cache, report_line)
    prepare_layers(find_image_parts(stacks), base, None, cache, report_line)
    prepare_sdk(stacks, cache, report_line)
    argument = json.dumps({"plan": plan.to_json(), "acceptance": asdict(acceptance)})
    status = run_enclosed("cdk_rehearsal.rehearsal:carry_out", argument)
    if status == INTERRUPTED:
        raise KeyboardInterrupt
    if status not in _VERDICTS or not (out / REPORT).is_file():
        raise RehearsalError(f"the rehearsal could not be carried out: its process ended with status {status}")
    return Report.from_document(json.loads((out / REPORT).read_text()))
