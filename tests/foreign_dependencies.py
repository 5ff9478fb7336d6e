"""Finds what CloudFormation refuses at once: a `DependsOn` that names a resource of another template."""


def find_foreign_dependencies(template):
    """
    Return the dependencies of a template on what it does not have, each as `resource -> dependency`.

    Args:
        template: The template.
    """
    resources = template["Resources"]
    return [
        f"{name} -> {needed}"
        for name, entry in resources.items()
        for needed in _as_list(entry.get("DependsOn", []))
        if needed not in resources
    ]


def _as_list(value):
    return [value] if isinstance(value, str) else value
