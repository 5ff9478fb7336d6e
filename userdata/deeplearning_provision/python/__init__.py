"""Python: interpreters, virtual environments and pip."""
