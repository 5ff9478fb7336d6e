"""
Histories that are told because a search seldom meets them: each is the least in which a fault of the protocol shows.

They are fine with the code as it is. Such a fault is, for example, to form without acknowledgements, to let a replaced
master wait, or to write the state item without a condition.
"""

from model_history import Event, History


def tell(*events, workers=3, minimum=0, seed=7, **world):
    """Return a history of named events: (seconds, kind) or (seconds, kind, pick, value)."""
    script_seconds = world.pop("script_seconds", None)
    return History(seed, workers, minimum, tuple(Event(*event) for event in events), script_seconds, world)


FORMED = 150.0
"""By when every cluster of these histories has formed."""
TOLD = {
    "calm": tell(),
    "large": tell(workers=24),
    "master dies": tell((FORMED, "master dies")),
    "master dies early": tell((38.0, "master dies")),
    "master dies after the run script ended": tell((FORMED, "master dies"), script_seconds=20.0),
    "worker dies": tell((FORMED, "worker dies")),
    "worker fails below the minimum": tell((0.0, "preparation fails"), minimum=3),
    "worker stays away": tell((0.0, "cut off", 1, 5000.0), (700.0, "script ends"), setup_seconds=300),
    "worker is silent": tell((FORMED, "worker is silent", 1, 10), (90.0, "old ring")),
    "cluster grows": tell((FORMED, "grow")),
    "rings are lost": tell((0.0, "storm", 3, 500.0), (300.0, "script ends")),
    "nobody answers": tell(
        *[(FORMED if i == 1 else 0.0, "cut off", i, 60.0) for i in (1, 2, 3)], (100.0, "script ends")
    ),
    "message is no JSON": tell((0.0, "poison")),
    "spot interruption": tell((FORMED, "spot interruption")),
    "GPU fails": tell((FORMED, "GPU fails")),
    "reports are lost": tell((19.5, "retention passes"), minimum=3),
    # The adjuster counts anew while the master, which has heard of all that were expected before, is about to publish.
    "late verdict": tell((0.0, "cut off", 2, 36.0), (30.0, "worker dies"), (200.0, "script ends"), workers=2),
    "old reports": tell((FORMED, "master dies"), *[(1.0, "old report", pick) for pick in range(8)] * 12),
    "GPU is missing below the minimum": tell((0.0, "GPU is missing"), minimum=3),
    "address is forged": tell((16.0, "address is forged", 0, 0.0)),
    # Between the membership and its acknowledgements, where no worker is spare.
    "published worker dies": tell((50.0, "old ring"), (3.0, "worker dies"), workers=2, minimum=2, seed=2),
    "published worker's address is taken": tell((50.0, "old ring"), (3.0, "worker dies"), workers=2, minimum=2, seed=0),
    # The next master has the address of the only worker, which is gone too.
    "published master and worker die": tell(
        (25.0, "old ring"), (30.0, "die"), (30.0, "die"), workers=1, minimum=1, seed=0
    ),
    "GPU count is forged": tell((16.0, "GPU count is forged"), (200.0, "script ends"), workers=2),
}
