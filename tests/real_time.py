"""Real time: limits that end a test that hangs, and that decide no other."""

import time

GENEROUS_SECONDS = 600


def wait_until(condition):
    """Evaluate a condition again and again, less and less often, until it is true; return its value."""
    give_up, pause = time.monotonic() + GENEROUS_SECONDS, 0.02
    while not (found := condition()):
        assert time.monotonic() < give_up, "the condition never became true"
        time.sleep(pause)
        pause = min(1.3 * pause, 0.2)
    return found
