#!/usr/bin/env python3
"""
Evaluation of train_parameter_server.py's model on the held-out images, with a summary for TensorBoard.

    python3 evaluate_cifar10.py --data_dir $EFS_MOUNT/cifar10_data --eval_dir $EFS_MOUNT/cifar10_eval \\
        --checkpoint_dir $EFS_MOUNT/cifar10_train

The checkpoints of a job of `deeplearning run` are in $EFS_MOUNT/jobs/<job>/checkpoints.
"""

import argparse
import json
import os
from pathlib import Path

import tensorflow as tf
from digits import name_cifar, prepare_cifar
from train_parameter_server import find_newest, make_model, measure


def main() -> None:
    """Evaluate the newest checkpoint and print the result as one line of JSON."""
    efs = os.environ.get("EFS_MOUNT", ".")
    parser = argparse.ArgumentParser(description="Evaluate a classifier of CIFAR-10.", allow_abbrev=False)
    parser.add_argument("--data_dir", type=Path, default=Path(efs, "cifar10_data"), help="default: %(default)s")
    parser.add_argument("--eval_dir", type=Path, default=Path(efs, "cifar10_eval"), help="default: %(default)s")
    parser.add_argument("--checkpoint_dir", type=Path, default=Path(efs, "cifar10_train"), help="default: %(default)s")
    arguments = parser.parse_args()

    checkpoint = find_newest(arguments.checkpoint_dir)
    if checkpoint is None:
        parser.error(f"--checkpoint_dir must contain a checkpoint, got none in {arguments.checkpoint_dir}; train first")
    data = prepare_cifar(arguments.data_dir)
    model = make_model()
    tf.train.Checkpoint(model=model).read(str(checkpoint / "state")).assert_existing_objects_matched().expect_partial()
    step = int(checkpoint.name.split("-")[1])
    accuracy = measure(model, data)
    with tf.summary.create_file_writer(str(arguments.eval_dir)).as_default(step=step):
        tf.summary.scalar("accuracy", accuracy)
    result = {"dataset": name_cifar(data), "checkpoint": str(checkpoint), "step": step, "accuracy": round(accuracy, 4)}
    print(json.dumps(result), flush=True)  # noqa: T201 - the program's result


if __name__ == "__main__":
    main()
