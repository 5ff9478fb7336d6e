"""Real time: limits that end a test that hangs, and that decide no other."""

import time

GENEROUS_SECONDS = 600


def wait_until(condition):
    """Evaluate a condition again and again until it is true; return its value."""
    give_up = time.monotonic() + GENEROUS_SECONDS
    while not (found := condition()):
        assert time.monotonic() < give_up, "the condition never became true"
        time.sleep(0.02)
    return found
