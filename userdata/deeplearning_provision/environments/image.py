"""An image that brings everything: jobs use its own Python, and nothing is built or copied."""

from deeplearning_provision.environments.site import CURRENT, Site
from deeplearning_provision.python.interpreter import Interpreter
from deeplearning_provision.python.venv import import_frameworks, make_venv, switch_link
from deeplearning_provision.steps import ProvisionFailure

FOLDER = "image"
"""Of the environment that shows the packages of a Python that is in no environment itself."""


def provide_image(site: Site, interpreter: Interpreter) -> str:
    """Let jobs use the image's Python, if its Horovod works, and return one line about it; empty when it does not."""
    site.tell("importing the image's Horovod")
    try:
        import_frameworks(interpreter.program, interpreter.frameworks, interpreter.horovod, site.transcript)
    except ProvisionFailure as error:
        site.tell(f"the image's Horovod is of no use: {error.cause}")
        return ""
    if interpreter.is_virtual:
        switch_link(site.local / CURRENT, str(interpreter.program.parents[1]))
    else:
        folder = site.local / FOLDER
        if not (folder / "bin" / "pip").exists():  # It is written last.
            make_venv(interpreter, folder, site.transcript)
        switch_link(site.local / CURRENT, FOLDER)
    frameworks = ", ".join(f"{name} {version}" for name, version in interpreter.frameworks.items())
    return f"the image's own Horovod for {frameworks}, at {interpreter.path}; nothing was built"
