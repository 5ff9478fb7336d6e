"""
Planted defects: those of the predecessor's bootstrap that could be the agent's, and rules of ours that could be wrong.

A mutant is a patch of the agent's code, the history that must break a promise then, and which one. The histories are
fine with the code as it is.
"""

from collections.abc import Callable
from dataclasses import dataclass

import model_plants as plants
from model_history import Event, History

NOT_APPLICABLE = {
    "D25": "the agent asks EC2 nothing: who launched is in the state item",
    "D26": "a worker has no time-out: it follows the item for as long as it lives, and the master has the deadline",
    "D32": "a file is written whole from the membership; test_formation runs every agent twice and compares the bytes",
}
"""Defect of the predecessor -> why the model cannot have it."""


@dataclass(frozen=True)
class Mutant:
    """
    A planted defect.

    Attributes:
        row: The predecessor's defect, or `rule`.
        plant: Patches the code; its name says what is planted.
        history: Must break a promise then.
        promise: Matches what the model says.
    """

    row: str
    plant: Callable
    history: History
    promise: str

    @property
    def what(self):
        return self.plant.__name__.replace("_", " ")


def tell(*events, workers=3, minimum=0, **world):
    """Return a history of named events: (seconds, kind) or (seconds, kind, pick, value)."""
    script_seconds = world.pop("script_seconds", None)
    return History(7, workers, minimum, tuple(Event(*event) for event in events), script_seconds, world)


FORMED = 150.0
"""By when every cluster of these histories has formed."""
CALM = tell()
LARGE = tell(workers=24)
MASTER_DIES = tell((FORMED, "master dies"))
MASTER_DIES_EARLY = tell((38.0, "master dies"))
MASTER_DIES_AT_REST = tell((FORMED, "master dies"), script_seconds=20.0)
WORKER_DIES = tell((FORMED, "worker dies"))
WORKER_FAILS = tell((0.0, "preparation fails"), minimum=3)
WORKER_STAYS_AWAY = tell((0.0, "cut off", 1, 5000.0), (700.0, "script ends"), setup_seconds=300)
WORKER_IS_SILENT = tell((FORMED, "worker is silent", 1, 10), (90.0, "old ring"))
GROWS = tell((FORMED, "grow"))
RINGS_ARE_LOST = tell((0.0, "storm", 3, 500.0), (300.0, "script ends"))
NOBODY_ANSWERS = tell(*[(FORMED if i == 1 else 0.0, "cut off", i, 60.0) for i in (1, 2, 3)], (100.0, "script ends"))
POISON = tell((0.0, "poison"))
SPOT = tell((FORMED, "spot interruption"))
REPORTS_ARE_LOST = tell((19.5, "retention passes"), minimum=3)
LATE_VERDICT = tell((0.0, "cut off", 2, 36.0), (30.0, "worker dies"), (200.0, "script ends"), workers=2)
"""The adjuster counts anew while the master, which has heard of all that were expected before, is about to publish."""
OLD_REPORTS = tell((FORMED, "master dies"), *[(1.0, "old report", pick) for pick in range(8)] * 12)
GPU_IS_MISSING = tell((0.0, "GPU is missing"), minimum=3)
ADDRESS_IS_FORGED = tell((16.0, "address is forged", 0, 0.0))
GPU_COUNT_IS_FORGED = tell((16.0, "GPU count is forged"), (200.0, "script ends"), workers=2)


MUTANTS = (
    Mutant("D22", plants.give_up_on_missing_workers_at_once, CALM, "M13"),
    Mutant("D22", plants.wait_for_missing_workers_for_ever, WORKER_STAYS_AWAY, "M15|M18"),
    Mutant("D23", plants.leave_workers_out_without_a_word, WORKER_DIES, "M14"),
    Mutant("D24", plants.take_the_role_from_the_name, CALM, "worker may not ReceiveMessage master"),
    Mutant("D27", plants.die_of_a_message_that_is_no_json, POISON, "M17"),
    Mutant("D28", plants.learn_of_a_roster_by_rings_only, RINGS_ARE_LOST, "M4"),
    Mutant("D29", plants.take_an_old_acknowledgement_for_a_new_one, OLD_REPORTS, "M6"),
    Mutant("D29", plants.read_the_item_inconsistently, CALM, "must be read consistently"),
    Mutant("D30", plants.let_a_replaced_master_wait, MASTER_DIES, "M4"),
    Mutant("D30", plants.join_only_once, MASTER_DIES_EARLY, "M4|M17|M13"),
    Mutant("D31", plants.poll_without_waiting, CALM, "M15"),
    Mutant("D37", plants.order_members_by_address_as_text, LARGE, "M5"),
    Mutant("D37", plants.put_newcomers_first, GROWS, "M5"),
    Mutant("D41", plants.form_without_acknowledgements, CALM, "M6"),
    Mutant("D42", plants.fail_without_a_signal, WORKER_FAILS, "M7"),
    Mutant("D47", plants.keep_the_dead, WORKER_DIES, "M4"),
    Mutant("rule", plants.keep_the_generation_when_the_membership_changes, WORKER_DIES, "M2"),
    Mutant("rule", plants.write_without_a_condition, LATE_VERDICT, "M1"),
    Mutant("rule", plants.replace_who_is_silent_at_once, WORKER_IS_SILENT, "M12"),
    Mutant("rule", plants.blame_the_workers_when_nobody_answers, NOBODY_ANSWERS, "M12"),
    Mutant("rule", plants.acknowledge_once_in_a_life, WORKER_IS_SILENT, "M13|M4"),
    Mutant("rule", plants.never_ask_for_a_replacement, tell((FORMED, "GPU fails")), "M4"),
    Mutant("rule", plants.join_although_ec2_takes_the_node, SPOT, "M4|M16"),
    Mutant("rule", plants.forget_that_the_run_script_ended, MASTER_DIES_AT_REST, "M10"),
    Mutant("rule", plants.start_the_run_script_whatever_the_item_says, MASTER_DIES_AT_REST, "M10|M15"),
    Mutant("rule", plants.report_only_once, REPORTS_ARE_LOST, "M17"),
    Mutant("rule", plants.write_the_same_again_and_again, CALM, "M4|M11"),
    Mutant("rule", plants.form_below_the_minimum, GPU_IS_MISSING, "M19"),
    Mutant("rule", plants.keep_the_first_claimant, ADDRESS_IS_FORGED, "M20"),
    Mutant("rule", plants.believe_the_larger_gpu_count, GPU_COUNT_IS_FORGED, "M12|M13|M21"),
    Mutant("rule", plants.fail_of_a_deletion_that_was_throttled, CALM, "M17"),
)
