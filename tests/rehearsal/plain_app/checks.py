"""Holds when both targets of the load balancer answer its health check."""


def check(run):
    balancing = run.client("elbv2")
    (group,) = balancing.describe_target_groups()["TargetGroups"]

    def are_healthy():
        targets = balancing.describe_target_health(TargetGroupArn=group["TargetGroupArn"])["TargetHealthDescriptions"]
        return [each["TargetHealth"]["State"] for each in targets] == ["healthy", "healthy"]

    run.wait_until(are_healthy, 120)
