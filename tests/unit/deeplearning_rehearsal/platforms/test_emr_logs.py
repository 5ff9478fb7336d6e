"""The logs that EMR itself writes are missed where one is not in the bucket."""

import boto3

from deeplearning_contract.jobs.submission import SubmissionSettings
from deeplearning_rehearsal.platforms.emr import EmrPlatform
from tests.unit.local_aws import empty_aws

SUBMISSION = SubmissionSettings("emr", "c", "hadoop", "assets", "deeplearning-jobs/c/", cluster_id="j-1")


class Emr:
    """EMR with a cluster of one instance that runs, one bootstrap action and one step that has ended."""

    log_uri = "s3n://team-logs/emr/"

    def describe_cluster(self, **_):
        return {"Cluster": {"LogUri": self.log_uri}}

    def list_instances(self, **asked):
        assert asked["InstanceStates"] == ["RUNNING"]
        return {"Instances": [{"Ec2InstanceId": "i-1"}]}

    def list_bootstrap_actions(self, **_):
        return {"BootstrapActions": [{}]}

    def list_steps(self, **asked):
        assert asked["StepStates"] == ["COMPLETED", "FAILED"]
        return {"Steps": [{"Id": "s-1"}]}


def test_the_logs_of_emr_are_found_in_the_bucket_or_missed():
    """EMR management guide, "View log files"."""
    with empty_aws():
        s3 = boto3.client("s3", "us-east-1")
        s3.create_bucket(Bucket="team-logs")
        for name in ("controller", "stdout"):
            s3.put_object(Bucket="team-logs", Key=f"emr/j-1/node/i-1/bootstrap-actions/1/{name}.gz")
        s3.put_object(Bucket="team-logs", Key="emr/j-2/steps/s-1/controller.gz")
        found = EmrPlatform().find_logs(lambda name: {"emr": Emr(), "s3": s3}[name], SUBMISSION)
    action, step = "s3://team-logs/emr/j-1/node/i-1/bootstrap-actions/1", "s3://team-logs/emr/j-1/steps/s-1"
    assert found == {
        f"{action}/controller.gz": True,
        f"{action}/stdout.gz": True,
        f"{action}/stderr.gz": False,
        f"{step}/controller.gz": False,
        f"{step}/stdout.gz": False,
        f"{step}/stderr.gz": False,
    }


def test_no_log_of_emr_is_missed_where_a_cluster_writes_none(monkeypatch):
    monkeypatch.setattr(Emr, "log_uri", "")
    assert EmrPlatform().find_logs(lambda _: Emr(), SUBMISSION) == {}
