"""Records the asserts of a case: each is a finding of the report, whether it holds or not, with what was found."""

import ast
import inspect
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any

_LONGEST = 400


@dataclass(frozen=True)
class Finding:
    """An expectation, whether it held, and what was found."""

    expectation: str
    is_held: bool
    found: str


@dataclass
class Findings:
    """The findings of a case so far, in their order."""

    recorded: list[Finding] = field(default_factory=list)

    def record(self, expectation: str, is_held: object, *found: object) -> None:
        """Record a finding: a text, a value that is true where it holds, and the values that were compared."""
        texts = (repr(value) if isinstance(value, str) else str(value) for value in found)
        shown = ", ".join(text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …" for text in texts)
        self.recorded.append(Finding(expectation, bool(is_held), shown))


def record_asserts(function: Callable[..., Any]) -> tuple[Callable[..., Any], int]:
    """
    Return a function whose asserts call `record` of its first argument, and go on; and the number of asserts.

    `assert seen.generation >= 2` records the text, whether it holds and the value of `seen.generation`. Asserts of
    functions that it calls stay as they are.
    """
    lines, first = inspect.getsourcelines(function)
    module = ast.parse(textwrap.dedent("".join(lines)))
    definition = module.body[0]
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list, definition.returns = [], None
    for argument in definition.args.args:
        argument.annotation = None  # A case may name types that only a type checker imports.
    recorder = _Recorder(definition.args.args[0].arg)
    ast.increment_lineno(ast.fix_missing_locations(recorder.visit(module)), first - 1)
    compiled = compile(module, inspect.getfile(function), "exec").co_consts
    code = next(each for each in compiled if isinstance(each, CodeType) and each.co_name == definition.name)
    return FunctionType(code, function.__globals__, definition.name), recorder.count


class _Recorder(ast.NodeTransformer):
    def __init__(self, run: str) -> None:
        self._run = run
        self.count = 0

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        self.count += 1
        operands: list[str] = []

        def keep(value: ast.expr) -> ast.expr:
            if isinstance(value, ast.Constant):
                return value
            operands.append(f"__operand_{len(operands)}")
            return ast.NamedExpr(ast.Name(operands[-1], ast.Store()), value)

        test = node.test
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            held: ast.expr = ast.Compare(keep(test.left), test.ops, [keep(test.comparators[0])])
        elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            held = ast.UnaryOp(test.op, keep(test.operand))
        else:
            held = keep(test)
        found = [ast.Name(name, ast.Load()) for name in operands]
        record = ast.Attribute(ast.Name(self._run, ast.Load()), "record", ast.Load())
        call = ast.Call(record, [ast.Constant(ast.unparse(test)), held, *found], [])
        return ast.copy_location(ast.Expr(call), node)
