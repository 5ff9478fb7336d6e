"""Load balancers as the CDK writes them: refusals, real health checks of targets, and groups that heed them."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import aws_cdk as cdk
import pytest
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_elasticloadbalancingv2 as elb

from tests.embedded_aws.test_single_instances import SMALL, UBUNTU
from tests.real_time import wait_until

TARGETS = "AWS::ElasticLoadBalancingV2::TargetGroup"
BALANCER = "AWS::ElasticLoadBalancingV2::LoadBalancer"
LISTENER = "AWS::ElasticLoadBalancingV2::Listener"
ZONES = ["us-east-1a", "us-east-1b"]


class Machines:
    """Answers for every machine of the lab, with one status."""

    def __init__(self):
        self.status = 200
        self.asked = []
        machines = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                machines.asked.append((self.path, self.headers["User-Agent"]))
                self.send_response(machines.status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                """Keep silent."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def close(self):
        """End."""
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def machines():
    """The server that answers for the machines."""
    machines = Machines()
    yield machines
    machines.close()


def make_app(stack, port):
    """Add a group of two instances behind an Application Load Balancer, with rules and a policy of its own."""
    public = ec2.SubnetConfiguration(name="public", subnet_type=ec2.SubnetType.PUBLIC)
    vpc = ec2.Vpc(
        stack,
        "Vpc",
        availability_zones=ZONES,
        nat_gateways=0,
        subnet_configuration=[public],
        restrict_default_security_group=False,
    )
    group = autoscaling.AutoScalingGroup(
        stack,
        "Fleet",
        vpc=vpc,
        instance_type=SMALL,
        min_capacity=1,
        max_capacity=3,
        desired_capacity=2,
        machine_image=ec2.MachineImage.from_ssm_parameter(UBUNTU, os=ec2.OperatingSystemType.LINUX),
        associate_public_ip_address=True,
        health_checks=autoscaling.HealthChecks.with_additional_checks(
            additional_types=[autoscaling.AdditionalHealthCheckType.ELB], grace_period=cdk.Duration.seconds(0)
        ),
    )
    listener = elb.ApplicationLoadBalancer(stack, "Balancer", vpc=vpc, internet_facing=True).add_listener(
        "Http", port=80
    )
    check = elb.HealthCheck(path="/index.html", interval=cdk.Duration.seconds(30))
    listener.add_targets("Fleet", port=port, protocol=elb.ApplicationProtocol.HTTP, targets=[group], health_check=check)
    listener.add_action(
        "Fixed",
        priority=10,
        conditions=[elb.ListenerCondition.path_patterns(["/fixed"])],
        action=elb.ListenerAction.fixed_response(200, content_type="text/plain", message_body="ok"),
    )
    listener.add_action(
        "Away",
        priority=11,
        conditions=[elb.ListenerCondition.host_headers(["a.example.com"])],
        action=elb.ListenerAction.redirect(protocol="HTTPS", port="443"),
    )
    group.scale_on_request_count("Requests", target_requests_per_minute=600)


@pytest.fixture
def deploy(tmp_path, start_cloud, machines):
    """Return the function that deploys the app after a function changed the resources of its template."""

    def synthesize(change=lambda _: None):
        app = cdk.App(
            outdir=str(tmp_path / "cdk.out"),
            context={"@aws-cdk/aws-ec2:restrictDefaultSecurityGroup": False},
            builtin_cloud_formation_validation=False,
        )
        stack = cdk.Stack(app, "sample")
        make_app(stack, machines.port)
        change(stack)
        app.synth()
        cloud = start_cloud(minute_seconds=0.2, has_local_targets=True)
        cloud.answer = cloud.deploy(tmp_path / "cdk.out")
        return cloud

    return synthesize


def find(stack, kind):
    """Return the resources of a type."""
    return [each for each in stack.node.find_all() if getattr(each, "cfn_resource_type", "") == kind]


def override(kind, path, value):
    """Return the function that sets a property of the first resource of a type."""
    return lambda stack: find(stack, kind)[0].add_property_override(path, value)


def describe(cloud):
    """Return instance id -> state and reason of the targets of the only target group."""
    client = cloud.client("elbv2")
    (group,) = client.describe_target_groups()["TargetGroups"]
    rows = client.describe_target_health(TargetGroupArn=group["TargetGroupArn"])["TargetHealthDescriptions"]
    return {row["Target"]["Id"]: (row["TargetHealth"]["State"], row["TargetHealth"].get("Reason")) for row in rows}


def wait_for(cloud, *states):
    """Wait until the targets have states with reasons, and return them by instance id."""
    return wait_until(lambda: (rows := describe(cloud)) and sorted(rows.values()) == sorted(states) and rows)


def test_instances_of_a_group_are_targets_that_answer_until_they_are_terminated(deploy, machines):
    cloud = deploy()
    outcome = cloud.end()
    assert (outcome["status"], outcome["reason"]) == ("CREATE_COMPLETE", "")
    targets = wait_for(cloud, ("healthy", None), ("healthy", None))
    scaling = cloud.client("autoscaling")
    (group,) = scaling.describe_auto_scaling_groups()["AutoScalingGroups"]
    assert set(targets) == {entry["InstanceId"] for entry in group["Instances"]}
    assert group["HealthCheckType"] == "ELB"
    assert len(group["TargetGroupARNs"]) == 1
    assert set(machines.asked) == {("/index.html", "ELB-HealthChecker/2.0")}
    scaling.set_desired_capacity(AutoScalingGroupName=group["AutoScalingGroupName"], DesiredCapacity=1)
    (left,) = wait_for(cloud, ("healthy", None))
    assert left in targets
    cloud.client("cloudformation").delete_stack(StackName="sample")
    assert cloud.end()["status"] == "DELETE_COMPLETE"
    assert cloud.client("elbv2").describe_target_groups()["TargetGroups"] == []


def test_a_group_replaces_an_instance_that_its_load_balancer_finds_unhealthy(deploy, machines):
    cloud = deploy()
    assert cloud.end()["status"] == "CREATE_COMPLETE"
    before = set(wait_for(cloud, ("healthy", None), ("healthy", None)))
    machines.status = 404
    line = cloud.observation("target unhealthy")
    assert line["text"].endswith("Target.ResponseCodeMismatch: Health checks failed with these codes: [404]")
    machines.status = 200
    wait_until(lambda: (rows := describe(cloud)) and set(rows) != before and set(rows.values()) == {("healthy", None)})
    activities = cloud.client("autoscaling").describe_scaling_activities()["Activities"]
    words = "an instance was taken out of service in response to an ELB system health check failure"
    assert any(words in activity["Cause"] for activity in activities)


def close_ingress(stack):
    """Take the rule away that lets the load balancer reach the instances, and let nobody replace them."""
    for each in find(stack, "AWS::EC2::SecurityGroupIngress"):
        each.node.scope.node.try_remove_child(each.node.id)
    override("AWS::AutoScaling::AutoScalingGroup", "HealthCheckType", "EC2")(stack)


def test_targets_whose_security_group_is_closed_to_the_balancer_time_out_and_are_not_asked(deploy, machines):
    cloud = deploy(close_ingress)
    assert cloud.end()["status"] == "CREATE_COMPLETE"
    cloud.observation("target ")
    cloud.observation("target ")
    assert list(describe(cloud).values()) == [("unhealthy", "Target.Timeout")] * 2
    assert machines.asked == []


def remove_listener(stack):
    """Leave the target group without a listener."""
    for kind in (LISTENER, f"{LISTENER}Rule", "AWS::AutoScaling::ScalingPolicy"):
        for each in find(stack, kind):
            each.node.scope.node.try_remove_child(each.node.id)


def test_targets_without_a_listener_are_unused(deploy):
    cloud = deploy(remove_listener)
    assert cloud.end()["status"] == "CREATE_COMPLETE"
    wait_for(cloud, ("unused", "Target.NotInUse"), ("unused", "Target.NotInUse"))


def use_one_subnet(stack):
    """Put the load balancer into one subnet."""
    subnet = find(stack, "AWS::EC2::Subnet")[0]
    override(BALANCER, "Subnets", [{"Ref": stack.get_logical_id(subnet)}])(stack)


def use_foreign_network(kind, path):
    """Return the function that names another VPC, or a group of it."""

    def change(stack):
        other = ec2.CfnVPC(stack, "Elsewhere", cidr_block="10.9.0.0/16")
        value = other.ref if path == "VpcId" else [other.attr_default_security_group]
        override(kind, path, stack.resolve(value))(stack)

    return change


def remove_gateway(stack):
    """Take the internet gateway away."""
    names = ("InternetGateway", "VPCGatewayAttachment", "Route")
    for name in names:
        for each in find(stack, f"AWS::EC2::{name}"):
            each.node.scope.node.try_remove_child(each.node.id)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (use_one_subnet, "At least two subnets in two different Availability Zones must be specified"),
        (override(BALANCER, "Name", "internal-x"), "not begin with 'internal-'"),
        (override(BALANCER, "Name", "x" * 33), "must have at most 32 letters"),
        (use_foreign_network(BALANCER, "SecurityGroups"), "One or more security groups are invalid"),
        (use_foreign_network(TARGETS, "VpcId"), "must be in the VPC of the load balancer"),
        (override(LISTENER, "Protocol", "HTTPS"), "A certificate must be specified for HTTPS listeners"),
        (override(TARGETS, "Protocol", "TCP"), "has the protocol TCP, which a load balancer of type application"),
        (override(TARGETS, "Name", "a_b"), "can only contain characters that are alphanumeric"),
    ],
)
def test_what_elastic_load_balancing_refuses_fails_the_stack_in_its_words(deploy, change, words):
    outcome = deploy(change).end()
    assert outcome["status"] == "ROLLBACK_COMPLETE"
    assert words in outcome["reason"]
