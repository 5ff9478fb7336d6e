"""Keeps while a process of tests lives what botocore and moto find out anew for each session, server or response."""

import functools
from collections.abc import Callable
from typing import Any

import botocore.loaders
import botocore.session
from botocore import hooks

Patch = Callable[[Any, str, Any], None]
"""`setattr`, or one that is undone."""


def share_botocore(patch: Patch) -> None:
    """Keep the documents, and names and signatures of handlers."""
    loader = botocore.loaders.create_loader()
    patch(botocore.session, "create_loader", lambda _=None: loader)
    name = functools.cache(hooks.EventAliaser(None)._alias_event_name)
    patch(hooks.EventAliaser, "_alias_event_name", lambda _, event: name(event))
    takes_words = functools.cache(hooks.accepts_kwargs)
    patch(hooks, "accepts_kwargs", lambda handler: takes_words(getattr(handler, "__func__", handler)))


def share_moto(patch: Patch) -> None:
    """Keep the application of each service, the names of each attribute, and one RSA key of each size."""
    # It takes a second to import, which tests without an embedded AWS need not wait for.
    from moto.core.serialize import XFormedAttributePicker  # noqa: PLC0415
    from moto.kms.utils import rsa  # noqa: PLC0415

    from cdk_rehearsal.embedded_aws.server import server  # noqa: PLC0415

    patch(server, "create_backend_app", functools.cache(server.create_backend_app))
    patch(rsa, "generate_private_key", functools.cache(rsa.generate_private_key))
    list_keys = XFormedAttributePicker.get_possible_keys
    known: dict[Any, tuple[Any, list[str]]] = {}

    def recall(picker: Any, context: Any) -> list[str]:
        place = (type(context.obj), context.key, id(context.shape))
        if place not in known:
            known[place] = (context.shape, list(list_keys(picker, context)))  # the shape stays, and with it its id
        return known[place][1]

    patch(XFormedAttributePicker, "get_possible_keys", recall)
