"""
Limits of size over a folder, so that a test can plant a violation elsewhere.

The arrows between packages are contracts of import-linter in pyproject.toml; ruff checks shells, waits and syntax. Each
check returns its findings, a line each; none means that all is well.
"""

import ast
from collections import Counter

SOURCE_ROOTS = ("cli", "constructs", "contract", "lambda", "rehearsal", "userdata", "view")
MOST_MODULE_LINES = 400
MOST_MODULES = 16
"""Of a folder, `__init__` aside."""
MOST_FUNCTION_LINES = 45
PARTS_LIST = ("constructs/deeplearning_cdk/training_cluster.py", "__init__")
"""The one function that may be longer: to cut the list of a cluster's parts would only hide their order."""
MOST_BOOTSTRAP_LINES = 70


def find_modules(folder):
    """Return the Python files of a folder, or the one file."""
    return [folder] if folder.is_file() else sorted(folder.rglob("*.py"))


def check_sizes(root):
    """Modules, functions and the bootstrap stay small enough to be read."""
    findings = []
    for room in ("app.py", "stacks", "docs", *SOURCE_ROOTS):
        for path in find_modules(root / room):
            where, text = path.relative_to(root), path.read_text()
            if len(text.splitlines()) > MOST_MODULE_LINES:
                findings.append(f"{where} has {len(text.splitlines())} lines")
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    lines = _count_statement_lines(node)
                    if lines > MOST_FUNCTION_LINES and (str(where), node.name) != PARTS_LIST:
                        findings.append(f"{where}:{node.lineno} {node.name} has {lines} lines")
    for bootstrap in (root / "userdata").glob("*bootstrap.sh"):
        lines = len(bootstrap.read_text().splitlines())
        if lines >= MOST_BOOTSTRAP_LINES:
            findings.append(f"{bootstrap.relative_to(root)} has {lines} lines")
    return findings


def _count_statement_lines(node):
    """Count the lines of what a function does; its arguments and its docstring may take what they need."""
    statements = node.body[1:] if ast.get_docstring(node) else node.body
    return node.end_lineno - statements[0].lineno + 1 if statements else 0


def check_crowding(root):
    """A folder of code has no more modules than a reader can keep apart."""
    counts = Counter(path.parent for room in SOURCE_ROOTS for path in find_modules(root / room))
    counts.subtract(path.parent for room in SOURCE_ROOTS for path in (root / room).rglob("__init__.py"))
    return [f"{folder.relative_to(root)} has {n} modules" for folder, n in counts.items() if n > MOST_MODULES]
