"""
Faults that AWS refuses, planted into valid resources one at a time; each row names the page that states the rule.

A row is a fault, the resource that has it, the path of the property, the faulty value, and the source. The path is what
a finding must name.
"""

from dataclasses import dataclass
from typing import Any

_CFN = "https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference"
_EMR = "https://docs.aws.amazon.com/emr/latest/APIReference/API_HadoopJarStepConfig.html"
_SQS = "https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SetQueueAttributes.html"
_SQS_QUOTA = "https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-queues.html"
_LAMBDA = "https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html"
_LAMBDA_API = "https://docs.aws.amazon.com/lambda/latest/api/API_CreateFunction.html"
_LOGS = "https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_PutRetentionPolicy.html"
_LOG_GROUP = "https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_CreateLogGroup.html"
_EBS = "https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_EbsBlockDevice.html"
_INTERFACE = "https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_LaunchTemplateInstanceNetworkInterfaceSpecificationRequest.html"
_TEMPLATE = "https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RequestLaunchTemplateData.html"
_USER_DATA = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/user-data.html"
_EFA = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa.html"
_CARDS = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/using-eni.html"
_SUBNET = "https://docs.aws.amazon.com/vpc/latest/userguide/subnet-sizing.html"
_VPC = "https://docs.aws.amazon.com/vpc/latest/userguide/vpc-cidr-blocks.html"
_RULES = "https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_AuthorizeSecurityGroupIngress.html"
_GROUP = "https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateSecurityGroup.html"
_PLACEMENT = "https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreatePlacementGroup.html"
_ASG = "https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_CreateAutoScalingGroup.html"
_HOOK = "https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_PutLifecycleHook.html"
_METRICS = "https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_EnableMetricsCollection.html"
_IAM = "https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html"
_ROLE = "https://docs.aws.amazon.com/IAM/latest/APIReference/API_CreateRole.html"
_POLICY = "https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_grammar.html"
_EFS = "https://docs.aws.amazon.com/efs/latest/ug/API_CreateFileSystem.html"
_EFS_LIFE = "https://docs.aws.amazon.com/efs/latest/ug/API_LifecyclePolicy.html"
_DYNAMO = "https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_CreateTable.html"
_SNS = "https://docs.aws.amazon.com/sns/latest/api/API_CreateTopic.html"
_SUBSCRIBE = "https://docs.aws.amazon.com/sns/latest/api/API_Subscribe.html"
_RULE = "https://docs.aws.amazon.com/eventbridge/latest/APIReference/API_PutRule.html"
_RATE = "https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-scheduled-rule-pattern.html"
_TARGETS = "https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-quota.html"
_KMS = "https://docs.aws.amazon.com/kms/latest/developerguide/key-policy-default.html"
_KMS_API = "https://docs.aws.amazon.com/kms/latest/APIReference/API_PutKeyPolicy.html"
_KMS_KEY = f"{_CFN}/aws-resource-kms-key.html"
_ALARM = "https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutMetricAlarm.html"
_BOARD = "https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_PutDashboard.html"
_WAIT = f"{_CFN}/aws-resource-cloudformation-waitcondition.html"
_PARAMETER = "https://docs.aws.amazon.com/systems-manager/latest/APIReference/API_PutParameter.html"
_BUCKET = "https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html"
_BACKUP = "https://docs.aws.amazon.com/aws-backup/latest/devguide/API_Lifecycle.html"
_BUDGET = "https://docs.aws.amazon.com/aws-cost-management/latest/APIReference/API_budgets_Budget.html"
_MAPPING = "https://docs.aws.amazon.com/lambda/latest/api/API_CreateEventSourceMapping.html"
_MAPPING_SQS = "https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html"
_CFN_QUOTA = "https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/cloudformation-limits.html"
_HOP = "https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_LaunchTemplateInstanceMetadataOptionsRequest.html"
_MIXED = "https://docs.aws.amazon.com/autoscaling/ec2/userguide/ec2-auto-scaling-mixed-instances-groups.html"
_BLOCKS = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-launch.html"
_SPOT = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-reservations-using.html"

_STATEMENT = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}
_TRUST = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}
_ACCOUNT = {"Fn::Sub": "arn:${AWS::Partition}:iam::${AWS::AccountId}:root"}

VALID = {
    "Vpc": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.0.0.0/16"}},
    "Subnet": {
        "Type": "AWS::EC2::Subnet",
        "Properties": {
            "VpcId": {"Ref": "Vpc"},
            "CidrBlock": "10.0.0.0/24",
            "AvailabilityZone": {"Fn::Select": [0, {"Fn::GetAZs": ""}]},
        },
    },
    "Other": {"Type": "AWS::EC2::Subnet", "Properties": {"VpcId": {"Ref": "Vpc"}, "CidrBlock": "10.0.1.0/24"}},
    "Firewall": {
        "Type": "AWS::EC2::SecurityGroup",
        "Properties": {
            "GroupDescription": "nodes",
            "VpcId": {"Ref": "Vpc"},
            "SecurityGroupIngress": [{"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "CidrIp": "10.0.0.0/16"}],
        },
    },
    "Queue": {"Type": "AWS::SQS::Queue", "Properties": {"MessageRetentionPeriod": 3600}},
    "Role": {"Type": "AWS::IAM::Role", "Properties": {"AssumeRolePolicyDocument": _TRUST}},
    "Holder": {"Type": "AWS::IAM::Role", "Properties": {"AssumeRolePolicyDocument": _TRUST}},
    "Policy": {
        "Type": "AWS::IAM::ManagedPolicy",
        "Properties": {
            "PolicyDocument": {"Version": "2012-10-17", "Statement": [_STATEMENT]},
            "Roles": [{"Ref": "Holder"}],
        },
    },
    "Profile": {"Type": "AWS::IAM::InstanceProfile", "Properties": {"Roles": [{"Ref": "Role"}]}},
    "Function": {
        "Type": "AWS::Lambda::Function",
        "Properties": {
            "Runtime": "python3.13",
            "Handler": "index.handler",
            "Role": {"Fn::GetAtt": ["Role", "Arn"]},
            "Code": {"ZipFile": "def handler(event, context): ..."},
            "Timeout": 30,
        },
    },
    "Mapping": {
        "Type": "AWS::Lambda::EventSourceMapping",
        "Properties": {"FunctionName": {"Ref": "Function"}, "EventSourceArn": {"Fn::GetAtt": ["Queue", "Arn"]}},
    },
    "LogGroup": {"Type": "AWS::Logs::LogGroup", "Properties": {"RetentionInDays": 30}},
    "Nodes": {
        "Type": "AWS::EC2::LaunchTemplate",
        "Properties": {
            "LaunchTemplateData": {
                "ImageId": "ami-0123456789abcdef0",
                "InstanceType": "p3dn.24xlarge",
                "BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeType": "gp3", "VolumeSize": 100}}],
                "NetworkInterfaces": [
                    {"DeviceIndex": 0, "InterfaceType": "efa", "Groups": [{"Fn::GetAtt": ["Firewall", "GroupId"]}]}
                ],
                "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
                "UserData": {"Fn::Base64": "#!/bin/bash\ntrue\n"},
            }
        },
    },
    "Group": {
        "Type": "AWS::AutoScaling::AutoScalingGroup",
        "Properties": {
            "MinSize": "0",
            "MaxSize": "4",
            "DesiredCapacity": "2",
            "VPCZoneIdentifier": [{"Ref": "Subnet"}],
            "LaunchTemplate": {
                "LaunchTemplateId": {"Ref": "Nodes"},
                "Version": {"Fn::GetAtt": ["Nodes", "LatestVersionNumber"]},
            },
            "Tags": [{"Key": "role", "Value": "worker", "PropagateAtLaunch": True}],
        },
    },
    "Hook": {
        "Type": "AWS::AutoScaling::LifecycleHook",
        "Properties": {
            "AutoScalingGroupName": {"Ref": "Group"},
            "LifecycleTransition": "autoscaling:EC2_INSTANCE_TERMINATING",
            "HeartbeatTimeout": 60,
        },
    },
    "Placement": {"Type": "AWS::EC2::PlacementGroup", "Properties": {"Strategy": "cluster"}},
    "Partitions": {"Type": "AWS::EC2::PlacementGroup", "Properties": {"Strategy": "partition", "PartitionCount": 3}},
    "Files": {
        "Type": "AWS::EFS::FileSystem",
        "Properties": {"ThroughputMode": "elastic", "LifecyclePolicies": [{"TransitionToIA": "AFTER_30_DAYS"}]},
    },
    "Table": {
        "Type": "AWS::DynamoDB::Table",
        "Properties": {
            "BillingMode": "PAY_PER_REQUEST",
            "AttributeDefinitions": [{"AttributeName": "cluster", "AttributeType": "S"}],
            "KeySchema": [{"AttributeName": "cluster", "KeyType": "HASH"}],
        },
    },
    "Topic": {"Type": "AWS::SNS::Topic", "Properties": {}},
    "Subscription": {
        "Type": "AWS::SNS::Subscription",
        "Properties": {"TopicArn": {"Ref": "Topic"}, "Protocol": "sqs", "Endpoint": {"Fn::GetAtt": ["Queue", "Arn"]}},
    },
    "Rule": {
        "Type": "AWS::Events::Rule",
        "Properties": {
            "ScheduleExpression": "rate(1 minute)",
            "Targets": [{"Id": "one", "Arn": {"Fn::GetAtt": ["Function", "Arn"]}}],
        },
    },
    "Kubernetes": {
        "Type": "AWS::EKS::Cluster",
        "Properties": {
            "Name": "sample",
            "RoleArn": "arn:aws:iam::123456789012:role/cluster",
            "ResourcesVpcConfig": {"SubnetIds": ["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"]},
        },
    },
    "Lustre": {
        "Type": "AWS::FSx::FileSystem",
        "Properties": {
            "FileSystemType": "LUSTRE",
            "StorageCapacity": 1200,
            "SubnetIds": ["subnet-0123456789abcdef0"],
            "LustreConfiguration": {"DeploymentType": "SCRATCH_2"},
        },
    },
    "Key": {
        "Type": "AWS::KMS::Key",
        "Properties": {
            "KeyPolicy": {
                "Version": "2012-10-17",
                "Statement": [{"Effect": "Allow", "Principal": {"AWS": _ACCOUNT}, "Action": "kms:*", "Resource": "*"}],
            }
        },
    },
    "Alarm": {
        "Type": "AWS::CloudWatch::Alarm",
        "Properties": {
            "Namespace": "AWS/SQS",
            "MetricName": "ApproximateNumberOfMessagesVisible",
            "Statistic": "Sum",
            "Period": 60,
            "EvaluationPeriods": 1,
            "Threshold": 1,
            "ComparisonOperator": "GreaterThanThreshold",
        },
    },
    "Board": {
        "Type": "AWS::CloudWatch::Dashboard",
        "Properties": {"DashboardBody": '{"widgets": []}'},
    },
    "Handle": {"Type": "AWS::CloudFormation::WaitConditionHandle"},
    "Formed": {
        "Type": "AWS::CloudFormation::WaitCondition",
        "Properties": {"Handle": {"Ref": "Handle"}, "Timeout": "3600", "Count": 1},
    },
    "Setting": {"Type": "AWS::SSM::Parameter", "Properties": {"Type": "String", "Value": "4"}},
    "Bucket": {"Type": "AWS::S3::Bucket", "Properties": {}},
    "Vault": {"Type": "AWS::Backup::BackupVault", "Properties": {"BackupVaultName": "nightly"}},
    "Plan": {
        "Type": "AWS::Backup::BackupPlan",
        "Properties": {
            "BackupPlan": {
                "BackupPlanName": "nightly",
                "BackupPlanRule": [
                    {
                        "RuleName": "nightly",
                        "TargetBackupVault": {"Ref": "Vault"},
                        "ScheduleExpression": "cron(0 5 * * ? *)",
                        "Lifecycle": {"MoveToColdStorageAfterDays": 30, "DeleteAfterDays": 365},
                    }
                ],
            }
        },
    },
    "Budget": {
        "Type": "AWS::Budgets::Budget",
        "Properties": {
            "Budget": {
                "BudgetType": "COST",
                "TimeUnit": "MONTHLY",
                "BudgetLimit": {"Amount": 1000, "Unit": "USD"},
            }
        },
    },
    "Hadoop": {
        "Type": "AWS::EMR::Cluster",
        "Properties": {
            "Name": "hadoop",
            "ReleaseLabel": "emr-7.14.0",
            "JobFlowRole": "profile",
            "ServiceRole": "service",
            "Instances": {
                "MasterInstanceGroup": {"InstanceCount": 1, "InstanceType": "m5.xlarge"},
                "CoreInstanceGroup": {"InstanceCount": 1, "InstanceType": "m5.xlarge"},
            },
            "Steps": [{"Name": "one", "HadoopJarStep": {"Jar": "command-runner.jar", "Args": ["true"]}}],
        },
    },
}
"""Resources that AWS takes, as far as a template says."""


@dataclass(frozen=True)
class Planted:
    """
    A fault: the value at a path of a resource, below its properties, and the page that states the rule.

    None takes the property away, and an empty path adds properties. `beside` names resources that it takes as well.
    """

    fault: str
    resource: str
    path: str
    value: Any
    source: str
    beside: tuple[str, ...] = ()


_DATA = "LaunchTemplateData"
_EBS_0 = f"{_DATA}.BlockDeviceMappings.0.Ebs"
_CARD_0 = f"{_DATA}.NetworkInterfaces"
_EFA_0 = {"DeviceIndex": 0, "InterfaceType": "efa"}
_EKS = "https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateCluster.html"
_FSX = "https://docs.aws.amazon.com/fsx/latest/APIReference/API_CreateFileSystem.html"
PLANTED = (
    Planted("a queue keeps messages for less than a minute", "Queue", "MessageRetentionPeriod", 30, _SQS),
    Planted(
        "an argument of a step above 10,280 characters", "Hadoop", "Steps.0.HadoopJarStep.Args.0", "x" * 10_281, _EMR
    ),
    Planted("a name of a cluster of EKS with a space", "Kubernetes", "Name", "my cluster", _EKS),
    Planted("a file system of FSx with 51 subnets", "Lustre", "SubnetIds", ["subnet-0123456789abcdef0"] * 51, _FSX),
    Planted("a visibility time-out above 12 hours", "Queue", "VisibilityTimeout", 43201, _SQS),
    Planted("a delay above 15 minutes", "Queue", "DelaySeconds", 901, _SQS),
    Planted("a long poll above 20 s", "Queue", "ReceiveMessageWaitTimeSeconds", 21, _SQS),
    Planted("a largest message below 1 KiB", "Queue", "MaximumMessageSize", 512, _SQS),
    Planted("a queue's name of 81 characters", "Queue", "QueueName", "q" * 81, _SQS_QUOTA),
    Planted(
        "a FIFO queue whose name does not end with .fifo",
        "Queue",
        "",
        {"FifoQueue": True, "QueueName": "q"},
        _SQS_QUOTA,
        beside=("Subscription",),
    ),
    Planted("a function that runs for more than 15 minutes", "Function", "Timeout", 1000, _LAMBDA, beside=("Queue",)),
    Planted("a function with 64 MB of memory", "Function", "MemorySize", 64, _LAMBDA),
    Planted("a function with 20 GB of memory", "Function", "MemorySize", 20480, _LAMBDA),
    Planted("a function with 256 MB of temporary storage", "Function", "EphemeralStorage", {"Size": 256}, _LAMBDA),
    Planted(
        "a function's environment of 5 KB", "Function", "Environment", {"Variables": {"LONG": "x" * 5000}}, _LAMBDA
    ),
    Planted("a function's name of 65 characters", "Function", "FunctionName", "f" * 65, _LAMBDA_API),
    Planted("a runtime that does not exist", "Function", "Runtime", "python3.99", _LAMBDA_API),
    Planted(
        "six layers",
        "Function",
        "Layers",
        [f"arn:aws:lambda:us-east-1:123456789012:layer:l{n}:1" for n in range(6)],
        _LAMBDA,
    ),
    Planted(
        "a reserved variable of Lambda",
        "Function",
        "Environment",
        {"Variables": {"AWS_REGION": "us-east-1"}},
        "https://docs.aws.amazon.com/lambda/latest/dg/configuration-envvars.html",
    ),
    Planted("an event source of 10,001 messages", "Mapping", "BatchSize", 10001, _MAPPING),
    Planted("100 messages of a queue without a window", "Mapping", "BatchSize", 100, _MAPPING_SQS),
    Planted(
        "a queue that shows a message again before its function ends", "Queue", "VisibilityTimeout", 10, _MAPPING_SQS
    ),
    Planted("a retention of 31 days", "LogGroup", "RetentionInDays", 31, _LOGS),
    Planted("a log group's name of 513 characters", "LogGroup", "LogGroupName", "l" * 513, _LOG_GROUP),
    Planted("a volume type that does not exist", "Nodes", f"{_EBS_0}.VolumeType", "gp9", _EBS),
    Planted("100,000 IOPS of gp3", "Nodes", f"{_EBS_0}.Iops", 100000, _EBS),
    Planted("a throughput of 3,000 MiB/s of gp3", "Nodes", f"{_EBS_0}.Throughput", 3000, _EBS),
    Planted("io2 without its IOPS", "Nodes", f"{_EBS_0}.VolumeType", "io2", _EBS),
    Planted("an interface type that does not exist", "Nodes", f"{_CARD_0}.0.InterfaceType", "efaa", _INTERFACE),
    Planted("an interface type in capitals", "Nodes", f"{_CARD_0}.0.InterfaceType", "EFA", _INTERFACE),
    Planted("an instance type that does not exist", "Nodes", f"{_DATA}.InstanceType", "p9.huge", _TEMPLATE),
    Planted(
        "user data of 17 KiB", "Nodes", f"{_DATA}.UserData", {"Fn::Base64": "#!/bin/bash\n" + "#" * 17408}, _USER_DATA
    ),
    Planted("EFA on a type without it", "Nodes", f"{_DATA}.InstanceType", "m5.large", _EFA),
    Planted(
        "a network card that the type does not have",
        "Nodes",
        _CARD_0,
        [_EFA_0, {"NetworkCardIndex": 1, "DeviceIndex": 1, "InterfaceType": "efa"}],
        _CARDS,
    ),
    Planted("two interfaces at one place", "Nodes", _CARD_0, [_EFA_0, _EFA_0], _CARDS),
    Planted(
        "a public address with two interfaces",
        "Nodes",
        _CARD_0,
        [{"DeviceIndex": 0, "AssociatePublicIpAddress": True}, {"DeviceIndex": 1}],
        _INTERFACE,
    ),
    Planted("a hop limit of 65", "Nodes", f"{_DATA}.MetadataOptions.HttpPutResponseHopLimit", 65, _HOP),
    Planted(
        "spot instances in a reservation",
        "Nodes",
        _DATA,
        {
            "InstanceType": "p3dn.24xlarge",
            "ImageId": "ami-0123456789abcdef0",
            "InstanceMarketOptions": {"MarketType": "spot"},
            "CapacityReservationSpecification": {
                "CapacityReservationTarget": {"CapacityReservationId": "cr-0123456789abcdef0"}
            },
        },
        _SPOT,
    ),
    Planted(
        "a capacity block without its reservation",
        "Nodes",
        f"{_DATA}.InstanceMarketOptions",
        {"MarketType": "capacity-block"},
        _BLOCKS,
    ),
    Planted(
        "security groups beside interfaces",
        "Nodes",
        f"{_DATA}.SecurityGroupIds",
        [{"Fn::GetAtt": ["Firewall", "GroupId"]}],
        _TEMPLATE,
    ),
    Planted("a subnet of /30", "Subnet", "CidrBlock", "10.0.0.0/30", _SUBNET),
    Planted("a subnet outside its VPC", "Subnet", "CidrBlock", "10.1.0.0/24", _SUBNET),
    Planted("a VPC of /8", "Vpc", "CidrBlock", "10.0.0.0/8", _VPC),
    Planted("a block that is none", "Subnet", "CidrBlock", "10.0.0/24", _SUBNET),
    Planted("a port above 65,535", "Firewall", "SecurityGroupIngress.0.ToPort", 70000, _RULES),
    Planted("a range of ports that ends before it begins", "Firewall", "SecurityGroupIngress.0.FromPort", 80, _RULES),
    Planted("a security group's description of 256 characters", "Firewall", "GroupDescription", "d" * 256, _GROUP),
    Planted(
        "a description with a character that EC2 refuses", "Firewall", "GroupDescription", "nodes\u2019 group", _GROUP
    ),
    Planted("a placement strategy that does not exist", "Placement", "Strategy", "clustered", _PLACEMENT),
    Planted("eight partitions", "Partitions", "PartitionCount", 8, _PLACEMENT),
    Planted("a group whose minimum is above its maximum", "Group", "MinSize", "5", _ASG),
    Planted("a group that asks for more than its maximum", "Group", "DesiredCapacity", "9", _ASG),
    Planted("instances that live for an hour", "Group", "MaxInstanceLifetime", 3600, _ASG),
    Planted("a group's tag without PropagateAtLaunch", "Group", "Tags", [{"Key": "role", "Value": "worker"}], _ASG),
    Planted("metrics of a group by five minutes", "Group", "MetricsCollection", [{"Granularity": "5Minute"}], _METRICS),
    Planted("a group with neither subnets nor zones", "Group", "VPCZoneIdentifier", None, _ASG),
    Planted("a group without a template", "Group", "LaunchTemplate", None, _ASG),
    Planted("a hook of 10 s", "Hook", "HeartbeatTimeout", 10, _HOOK),
    Planted(
        "a hook for a transition that does not exist",
        "Hook",
        "LifecycleTransition",
        "autoscaling:EC2_INSTANCE_STOPPING",
        _HOOK,
    ),
    Planted("a role's name of 70 characters", "Role", "RoleName", "r" * 70, _IAM),
    Planted("a session of half an hour", "Role", "MaxSessionDuration", 1800, _ROLE),
    Planted("a trust policy with resources", "Role", "AssumeRolePolicyDocument.Statement.0.Resource", "*", _ROLE),
    Planted("a trust policy of an unknown version", "Role", "AssumeRolePolicyDocument.Version", "2012-10-18", _POLICY),
    Planted(
        "inline policies of 11,000 characters",
        "Role",
        "Policies",
        [
            {
                "PolicyName": f"p{n}",
                "PolicyDocument": {
                    "Version": "2012-10-17",
                    "Statement": [
                        {
                            "Effect": "Allow",
                            "Action": "s3:GetObject",
                            "Resource": [f"arn:aws:s3:::b/{k:040}" for k in range(90)],
                        }
                    ],
                },
            }
            for n in range(2)
        ],
        _IAM,
    ),
    Planted(
        "a managed policy of 7,000 characters",
        "Policy",
        "PolicyDocument.Statement.0.Resource",
        [f"arn:aws:s3:::b/{n:044}" for n in range(114)],
        _IAM,
    ),
    Planted("an effect that does not exist", "Policy", "PolicyDocument.Statement.0.Effect", "Permit", _POLICY),
    Planted("a statement without a resource", "Policy", "PolicyDocument.Statement.0.Resource", None, _POLICY),
    Planted("a principal in the policy of a role", "Policy", "PolicyDocument.Statement.0.Principal", "*", _POLICY),
    Planted("provisioned throughput without a figure", "Files", "ThroughputMode", "provisioned", _EFS),
    Planted("a transition after 5 days", "Files", "LifecyclePolicies.0.TransitionToIA", "AFTER_5_DAYS", _EFS_LIFE),
    Planted("elastic throughput of Max I/O", "Files", "PerformanceMode", "maxIO", _EFS),
    Planted("a type of attribute that does not exist", "Table", "AttributeDefinitions.0.AttributeType", "X", _DYNAMO),
    Planted("a key that is no attribute", "Table", "KeySchema.0.AttributeName", "node", _DYNAMO),
    Planted("provisioned capacity without figures", "Table", "BillingMode", "PROVISIONED", _DYNAMO),
    Planted("a table's name of 2 characters", "Table", "TableName", "ab", _DYNAMO),
    Planted("a topic's name of 257 characters", "Topic", "TopicName", "t" * 257, _SNS),
    Planted(
        "a FIFO topic whose name does not end with .fifo", "Topic", "", {"FifoTopic": True, "TopicName": "events"}, _SNS
    ),
    Planted("a protocol that does not exist", "Subscription", "Protocol", "mail", _SUBSCRIBE),
    Planted("a rate of 1 minutes", "Rule", "ScheduleExpression", "rate(1 minutes)", _RATE),
    Planted("a cron of both days", "Rule", "ScheduleExpression", "cron(0 5 * * * *)", _RATE),
    Planted("a rule that nothing starts", "Rule", "ScheduleExpression", None, _RULE),
    Planted(
        "six targets",
        "Rule",
        "Targets",
        [{"Id": f"t{n}", "Arn": {"Fn::GetAtt": ["Function", "Arn"]}} for n in range(6)],
        _TARGETS,
    ),
    Planted("a key that nobody can administer", "Key", "KeyPolicy.Statement.0.Action", "kms:Decrypt", _KMS_API),
    Planted(
        "a key policy of a role that does not exist",
        "Key",
        "KeyPolicy.Statement.0.Principal",
        {"AWS": {"Fn::Sub": "arn:${AWS::Partition}:iam::${AWS::AccountId}:role/nobody"}},
        _KMS,
    ),
    Planted("a waiting period of 5 days", "Key", "PendingWindowInDays", 5, _KMS_KEY),
    Planted("an alarm's period of 15 s", "Alarm", "Period", 15, _ALARM),
    Planted("an alarm over two days of minutes", "Alarm", "EvaluationPeriods", 2880, _ALARM),
    Planted("a comparison that does not exist", "Alarm", "ComparisonOperator", "GreaterThan", _ALARM),
    Planted("a dashboard that is no JSON", "Board", "DashboardBody", "widgets", _BOARD),
    Planted("a wait condition of 13 hours", "Formed", "Timeout", "46800", _WAIT),
    Planted("a parameter whose name is AWS's", "Setting", "Name", "/aws/cluster", _PARAMETER),
    Planted("a value of 5 KB in the standard tier", "Setting", "Value", "v" * 5000, _PARAMETER),
    Planted("a bucket's name with capitals", "Bucket", "BucketName", "Training-Data", _BUCKET),
    Planted(
        "a backup that ends before 90 days in cold storage",
        "Plan",
        "BackupPlan.BackupPlanRule.0.Lifecycle.DeleteAfterDays",
        60,
        _BACKUP,
    ),
    Planted("a budget by week", "Budget", "Budget.TimeUnit", "WEEKLY", _BUDGET),
    Planted("a resource that does not exist", "Mapping", "FunctionName", {"Ref": "Nobody"}, _CFN_QUOTA),
)
