"""Defects to plant in the agent's code: each function patches one in, and its name says which."""

import json
from dataclasses import replace

from deeplearning_agent import master, worker
from deeplearning_agent.coordination import queues
from deeplearning_agent.coordination.state_store import StateStore
from deeplearning_agent.master import Master
from deeplearning_agent.membership import controller as keeper
from deeplearning_agent.membership import formation, formation_outcome, replacements
from deeplearning_agent.membership import transitions as succession
from deeplearning_agent.membership.formation import Formation
from deeplearning_agent.membership.member_monitor import MemberHealth, MemberMonitor
from deeplearning_agent.membership.worker_reports import WorkerReports
from deeplearning_agent.worker import Worker
from deeplearning_agent.workload.user_scripts import RunScript
from deeplearning_contract import cluster_state
from deeplearning_contract.cluster_state import ClusterState
from deeplearning_contract.reason import Reason
from deeplearning_node.deadline import Deadline
from deeplearning_node.node import Node


def give_up_on_missing_workers_at_once(patch):
    make = Formation.__init__

    def hurry(self, node, *others):
        make(self, node, *others)
        self.joined_by = Deadline(node.clock, 0.0)

    patch.setattr(Formation, "__init__", hurry)


def wait_for_missing_workers_for_ever(patch):
    make = Formation.__init__

    def wait(self, node, *others):
        make(self, node, *others)
        self.joined_by = self.ready_by = node.limit(10.0**9)

    patch.setattr(Formation, "__init__", wait)


def leave_workers_out_without_a_word(patch):
    patch.setattr(ClusterState, "depart", lambda self, *_: self)


def take_the_role_from_the_name(patch):
    patch.setattr(Node, "is_master", property(lambda self: "master" in self.settings.cluster))


def die_of_a_message_that_is_no_json(patch):
    believe = queues.ReportQueue._believe
    patch.setattr(queues.ReportQueue, "_believe", lambda self, m: json.loads(m["Body"]) and believe(self, m))


def learn_of_a_roster_by_rings_only(patch):
    patch.setattr(worker, "READ_SECONDS", 10**6)


def take_an_old_acknowledgement_for_a_new_one(patch):
    patch.setattr(WorkerReports, "is_ready", lambda self, name, _generation: self._entry(name).ready > 0)


def read_the_item_inconsistently(patch):
    def request(table, cluster):
        return {"TableName": table, "Key": {"cluster": {"S": cluster}}}

    patch.setattr("deeplearning_agent.coordination.state_store.get_request", request)


def let_a_replaced_master_wait(patch):
    patch.setattr(Master, "take_over_or_stand_by", lambda *_: True)


def join_only_once(patch):
    def join(self, generation):
        if self.last_report is None:
            self.report_until_news(worker.ReportStage.JOINED, generation)

    patch.setattr(Worker, "join", join)


def poll_without_waiting(patch):
    def poll(self, _known, deadline):
        while not deadline.is_over:
            self._receive(0)
        return False

    patch.setattr(queues.NotificationQueue, "wait", poll)


def order_members_by_address_as_text(patch):
    plain = succession.publish

    def publish(state, members, left_out, user_key):
        return plain(state, sorted(members, key=lambda member: member.address), left_out, user_key)

    patch.setattr(master, "publish", publish)


def put_newcomers_first(patch):
    plain = succession.follow_up

    def follow_up(state, change):
        following = plain(state, change)
        first, *workers = following.members
        return replace(following, members=(first, *reversed(workers)))

    patch.setattr(master, "follow_up", follow_up)


def form_without_acknowledgements(patch):
    patch.setattr(Formation, "collect_ready", lambda *_: {})


def fail_without_a_signal(patch):
    send = formation_outcome.signal_stack

    def signal(node, status, reason):
        return status == "FAILURE" or send(node, status, reason)

    patch.setattr(formation_outcome, "signal_stack", signal)


def keep_the_dead(patch):
    patch.setattr(MemberMonitor, "probe", lambda *_: MemberHealth())


def keep_the_generation_when_the_membership_changes(patch):
    plain = succession.follow_up
    patch.setattr(master, "follow_up", lambda state, change: replace(plain(state, change), generation=state.generation))


def write_without_a_condition(patch):
    def write(self, state):
        *parts, last = cluster_state.put_requests(self._table, state)
        for request in (*parts, {"TableName": last["TableName"], "Item": last["Item"]}):
            self._clients.dynamodb.put_item(**request)
        return True

    patch.setattr(StateStore, "write", write)


def replace_who_is_silent_at_once(patch):
    patch.setattr(replacements, "SILENT_SECONDS", 0)


def blame_the_workers_when_nobody_answers(patch):
    look = MemberMonitor.probe
    patch.setattr(MemberMonitor, "probe", lambda self, *nodes: replace(look(self, *nodes), has_answer=True))


def acknowledge_once_in_a_life(patch):
    patch.setattr(Worker, "forget_acknowledgement", lambda _self: None)


def never_ask_for_a_replacement(patch):
    patch.setattr(replacements.Replacements, "submit_due", lambda *_, **__: None)


def join_although_ec2_takes_the_node(patch):
    patch.setattr(Worker, "join", lambda self, n: self.report_until_news(worker.ReportStage.JOINED, n))


def forget_that_the_run_script_ended(patch):
    patch.setattr(RunScript, "has_ended_well", False)


def start_the_run_script_whatever_the_item_says(patch):
    serve = Master.maintain
    patch.setattr(Master, "maintain", lambda self, state: serve(self, replace(state, run_ended=False)))


def report_only_once(patch):
    def report(self, stage, generation):
        if (stage, generation) != self.last_report:
            self.last_report = (stage, generation)
            self.report(stage, generation=generation if stage is worker.ReportStage.READY else 0)

    patch.setattr(Worker, "report_until_news", report)


def write_the_same_again_and_again(patch):
    find = keeper.MembershipController.plan_change

    def plan_change(self, state):
        change = find(self, state)
        self.count = getattr(self, "count", 0) + 1
        return change if change or self.count % 20 else succession.Change({"i-0": Reason("nothing")})

    patch.setattr(keeper.MembershipController, "plan_change", plan_change)


def fail_of_a_deletion_that_was_throttled(patch):
    def delete(clients, url, messages):
        clients.sqs.delete_message_batch(
            QueueUrl=url, Entries=[{"Id": str(i), "ReceiptHandle": m["ReceiptHandle"]} for i, m in enumerate(messages)]
        )
        raise formation.StageFailure("throttled", "")

    patch.setattr(queues, "delete_messages", delete)


def form_below_the_minimum(patch):
    patch.setattr(Formation, "_minimum", lambda *_: 0)


def keep_the_first_claimant(patch):
    patch.setattr(WorkerReports, "_refute", lambda *_: None)


def believe_the_larger_gpu_count(patch):
    def find(workers):
        usual = max((worker.gpu_count for worker in workers), default=0)
        return {worker.instance_id: "GPU count" for worker in workers if worker.gpu_count < usual}

    for module in (formation, keeper):
        patch.setattr(module, "find_fewer_gpus", find)
