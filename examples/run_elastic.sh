#!/usr/bin/env bash
# Runs a program with Horovod Elastic on the cluster, and goes on when nodes are lost, replaced or added.
# usage: run_elastic.sh [PROGRAM [ARGUMENT...]]        default: $EFS_MOUNT/train_elastic.py
# Start it on the master, as the login user, or make it the cluster's run script. By hand, `deeplearning run --elastic`
# does the same with its checks before and its logs after; a run script, which starts while nodes may still join or be
# replaced, goes straight to the launcher that both share.
# Jobs run in the cluster's environment, where it has one.
environment=/opt/deeplearning/environments/current/bin
[ ! -d "$environment" ] || export PATH="$environment:$PATH" ELASTIC_PYTHON="$environment/python3"
exec bash /opt/deeplearning/agent/deeplearning_jobs/elastic_horovod.sh "$@"
