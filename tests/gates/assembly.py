"""Synthesizes a preset in this process, with the packs of cdk-nag and the CDK's own validator looking on."""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aws_cdk as cdk
from cdk_nag import AwsSolutionsChecks, HIPAASecurityChecks, NIST80053R5Checks, PCIDSS321Checks

from stacks.cluster_stack import make_stack
from stacks.context import read_choices

PACKS = (AwsSolutionsChecks, NIST80053R5Checks, HIPAASecurityChecks, PCIDSS321Checks)


@dataclass(frozen=True, kw_only=True)
class Assembly:
    """
    One synthesized stack.

    Attributes:
        preset: The preset's name.
        context: What was chosen.
        file: Where the template lies, for gates that read files.
        template: The template.
        construct_paths: Paths of the constructs, by logical id.
        reports: What the packs and the validator report, by their names.
    """

    preset: str
    context: Mapping[str, Any]
    file: Path
    template: Mapping[str, Any]
    construct_paths: Mapping[str, str]
    reports: Mapping[str, Mapping[str, Any]]

    def place(self, logical_id: str) -> str:
        """Return the path of the construct with a logical id."""
        return self.construct_paths.get(logical_id, logical_id)

    def locate(self, path: Sequence[str]) -> str:
        """Return the construct that a path in the template is in, and the rest of the path."""
        if len(path) < 2 or path[0] != "Resources":
            return "/".join(path) or self.preset
        return " ".join([self.place(path[1]), ".".join(path[2:])]).strip()

    def change(self, preset: str, edit: Callable[[dict[str, Any]], None]) -> "Assembly":
        """
        Return another assembly whose template was edited; it is written beside this one.

        Args:
            preset: The other one's name.
            edit: Edits a copy of the template in place.
        """
        template = copy.deepcopy(dict(self.template))
        edit(template)
        file = self.file.with_name(f"{preset}.template.json")
        file.write_text(json.dumps(template, indent=1))
        return Assembly(
            preset=preset,
            context=self.context,
            file=file,
            template=template,
            construct_paths=self.construct_paths,
            reports={},
        )


def synthesize(
    preset: str,
    context: Mapping[str, Any],
    folder: Path,
    *,
    alter: Callable[[Any], None] | None = None,
    has_validator: bool = True,
) -> Assembly:
    """
    Synthesize a preset, and keep what packs and validator say of it.

    Args:
        preset: Its name.
        context: What is chosen.
        folder: Where the assembly is written; nothing else may be in it.
        alter: Changes the stack before it is synthesized. Default: nothing.
        has_validator: Whether the CDK's validator looks on too, which takes six seconds the first time.
    """
    rules = {"@aws-cdk/core:validateAgainstDefaultRules": True} if has_validator else {}
    app = cdk.App(
        context={"aws:cdk:disable-asset-staging": True} | rules,
        outdir=str(folder),
        analytics_reporting=False,
        builtin_cloud_formation_validation=has_validator,
    )
    (choice,) = read_choices(context)
    stack = make_stack(app, choice)
    if alter is not None:
        alter(stack)
    cdk.Validations.of(app).add_plugins(*(pack(app) for pack in PACKS))
    try:
        app.synth()
    except RuntimeError as error:
        # The reports say it in full.
        if "ValidationFailed" not in str(error):
            raise
    return _read(preset, context, folder, stack.stack_name)


def _read(preset: str, context: Mapping[str, Any], folder: Path, stack_name: str) -> Assembly:
    file = folder / f"{stack_name}.template.json"
    metadata = json.loads((folder / f"{stack_name}.metadata.json").read_text())
    report = json.loads((folder / "validation-report.json").read_text())
    reports = {entry["pluginName"]: entry for entry in report["pluginReports"]}
    return Assembly(
        preset=preset,
        context=context,
        file=file,
        template=json.loads(file.read_text()),
        construct_paths={
            entry["data"]: path.strip("/")
            for path, entries in metadata.items()
            for entry in entries
            if entry["type"] == "aws:cdk:logicalId"
        },
        reports=reports,
    )
