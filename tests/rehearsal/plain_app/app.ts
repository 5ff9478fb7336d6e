// An ordinary app, the same as app.py: what the CDK's TypeScript writes is rehearsed too.
import * as cdk from "aws-cdk-lib";
import * as autoscaling from "aws-cdk-lib/aws-autoscaling";
import * as ec2 from "aws-cdk-lib/aws-ec2";
import * as elbv2 from "aws-cdk-lib/aws-elasticloadbalancingv2";
import * as events from "aws-cdk-lib/aws-events";
import * as targets from "aws-cdk-lib/aws-events-targets";
import * as lambda from "aws-cdk-lib/aws-lambda";
import * as s3 from "aws-cdk-lib/aws-s3";
import * as sqs from "aws-cdk-lib/aws-sqs";

const setup: string[] = [
  "set -e",
  "apt-get update -y",
  "apt-get install -y python3-pip",
  "pip3 install https://s3.amazonaws.com/cloudformation-examples/aws-cfn-bootstrap-py3-latest.tar.gz",
  "mkdir -p /opt/aws /srv/www && ln -s /usr/local/bin /opt/aws/bin",
  "echo ok > /srv/www/index.html",
  "systemd-run --unit web python3 -m http.server 80 -d /srv/www",
];
const ubuntu = "/aws/service/canonical/ubuntu/server/22.04/stable/current/amd64/hvm/ebs-gp2/ami-id";

const app = new cdk.App();
const stack = new cdk.Stack(app, "web");
const vpc = new ec2.Vpc(stack, "Vpc", { maxAzs: 2 });
const group = new autoscaling.AutoScalingGroup(stack, "Fleet", {
  vpc,
  instanceType: new ec2.InstanceType("t3.micro"),
  machineImage: ec2.MachineImage.fromSsmParameter(ubuntu),
  minCapacity: 2,
  maxCapacity: 4,
  signals: autoscaling.Signals.waitForAll({ timeout: cdk.Duration.minutes(10) }),
});
group.addUserData(...setup);
group.userData.addSignalOnExitCommand(group);
const balancer = new elbv2.ApplicationLoadBalancer(stack, "Balancer", { vpc, internetFacing: true });
balancer.addListener("Http", { port: 80 }).addTargets("Fleet", {
  port: 80,
  targets: [group],
  healthCheck: { path: "/index.html", interval: cdk.Duration.seconds(5), healthyThresholdCount: 2 },
});
group.scaleOnCpuUtilization("Cpu", { targetUtilizationPercent: 60 });
const queue = new sqs.Queue(stack, "Queue");
const greeter = new lambda.Function(stack, "Python", {
  runtime: lambda.Runtime.PYTHON_3_12,
  handler: "index.handler",
  code: lambda.Code.fromInline("def handler(event, context):\n    return 1\n"),
  environment: { QUEUE: queue.queueUrl },
});
queue.grantSendMessages(greeter);
const counter = new lambda.Function(stack, "Node", {
  runtime: lambda.Runtime.NODEJS_22_X,
  handler: "index.handler",
  code: lambda.Code.fromInline("exports.handler = async () => 1;"),
});
new events.Rule(stack, "Schedule", {
  schedule: events.Schedule.rate(cdk.Duration.minutes(1)),
  targets: [greeter, counter].map((each) => new targets.LambdaFunction(each)),
});
const bucket = new s3.Bucket(stack, "Bucket", { removalPolicy: cdk.RemovalPolicy.DESTROY, autoDeleteObjects: true });
bucket.grantRead(group);
app.synth();
