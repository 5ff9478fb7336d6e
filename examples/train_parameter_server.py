#!/usr/bin/env python3
"""
Training of a classifier of CIFAR-10 with TensorFlow 2, with parameter servers if TF_CONFIG names some.

Every process of the job runs this program, in the role from TF_CONFIG. Parameter servers and their workers serve until
they are ended; without servers, the workers mirror each other. The chief, or worker 0, writes checkpoints and
TensorBoard's summaries, measures the accuracy on held-out images and prints the result as one line of JSON. Without
CIFAR-10, digits are used.

    deeplearning run --launcher tf-ps -- python3 train_parameter_server.py --data_dir $EFS_MOUNT/cifar10_data
    deeplearning run --launcher tf-multiworker -- python3 train_parameter_server.py
"""

import argparse
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported

import tensorflow as tf
from digits import (
    HELD_OUT_FILE,
    RECORD_BYTES,
    SEED,
    TRAINING_FILES,
    name_cifar,
    prepare_cifar,
    read_cifar,
    wait_for_cifar,
)

KEPT_CHECKPOINTS = 2


def parse_arguments() -> argparse.Namespace:
    """Parse the flags, which are those of TensorFlow's own cifar10_multi_machine_train.py."""
    efs = os.environ.get("EFS_MOUNT", ".")
    parser = argparse.ArgumentParser(description="Train on CIFAR-10 with parameter servers.", allow_abbrev=False)
    parser.add_argument("--data_dir", type=Path, default=Path(efs, "cifar10_data"), help="default: %(default)s")
    parser.add_argument("--train_dir", type=Path, default=Path(efs, "cifar10_train"), help="default: %(default)s")
    parser.add_argument("--batch_size", type=int, default=64, help="images per step of a worker (default: %(default)s)")
    parser.add_argument("--max_steps", type=int, default=600, help="steps of all workers (default: %(default)s)")
    parser.add_argument("--save_steps", type=int, default=200, help="steps between checkpoints (default: %(default)s)")
    parser.add_argument("--learning_rate", type=float, default=0.002, help="default: %(default)s")
    parser.add_argument("--log_dir", help="folder of the processes' output, used by their launcher")
    return parser.parse_args()


def make_model() -> tf.keras.Model:
    """Return a small convolutional network for images of 32 x 32 x 3."""
    layers = tf.keras.layers
    first = layers.Conv2D(16, 5, strides=2, padding="same", activation="relu", input_shape=(32, 32, 3))
    others = [layers.Conv2D(channels, 3, strides=2, padding="same", activation="relu") for channels in (32, 64)]
    return tf.keras.Sequential(
        [first, *others, layers.Flatten(), layers.Dense(64, activation="relu"), layers.Dense(10)]
    )


def find_newest(folder: Path) -> Path | None:
    """Return the newest complete checkpoint in a folder."""
    return max(folder.glob("step-*"), default=None)


def measure(model: tf.keras.Model, data: Path) -> float:
    """Return the accuracy on the held-out images."""
    images, labels = read_cifar([data / HELD_OUT_FILE])
    parts = [slice(first, first + 500) for first in range(0, len(labels), 500)]
    return sum(int((model(images[part]).numpy().argmax(1) == labels[part]).sum()) for part in parts) / len(labels)


class Training:
    """Training job on chief and workers."""

    def __init__(self, arguments: argparse.Namespace, strategy: tf.distribute.Strategy, data: Path) -> None:
        self.arguments, self.strategy, self.data = arguments, strategy, data
        self.folder = Path(os.environ.get("DEEPLEARNING_CHECKPOINT_PATH") or arguments.train_dir)
        with strategy.scope():
            self.model = make_model()
            self.optimizer = tf.keras.optimizers.Adam(arguments.learning_rate)
            self.optimizer.build(self.model.trainable_variables)
        self.checkpoint = tf.train.Checkpoint(model=self.model, optimizer=self.optimizer)
        found = os.environ.get("DEEPLEARNING_RESUME_FROM") or find_newest(self.folder)
        if found:
            self.checkpoint.read(str(Path(found, "state"))).assert_existing_objects_matched()
        self.begin = int(self.optimizer.iterations.numpy())

    def make_dataset(self, context: tf.distribute.InputContext | None = None) -> tf.data.Dataset:
        """Return batches without end, in a different order on each worker."""
        files = [str(self.data / name) for name in TRAINING_FILES]
        records = tf.data.FixedLengthRecordDataset(files, RECORD_BYTES)
        seed = SEED + (context.input_pipeline_id if context else 0) + self.begin
        batches = records.shuffle(10_000, seed=seed).repeat().batch(self.arguments.batch_size, drop_remainder=True)
        return batches.map(self._decode).prefetch(2)

    @staticmethod
    def _decode(records: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        octets = tf.reshape(tf.io.decode_raw(records, tf.uint8), [-1, RECORD_BYTES])
        images = tf.transpose(tf.reshape(octets[:, 1:], [-1, 3, 32, 32]), [0, 2, 3, 1])
        return tf.cast(images, tf.float32) / 255, tf.cast(octets[:, 0], tf.int64)

    def step(self, images: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Train one replica on its images; return the mean loss."""
        with tf.GradientTape() as tape:
            answers = self.model(images, training=True)
            losses = tf.keras.losses.sparse_categorical_crossentropy(labels, answers, from_logits=True)
            loss = tf.reduce_mean(losses) / self.strategy.num_replicas_in_sync
        gradients = tape.gradient(loss, self.model.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.model.trainable_variables, strict=True))
        return loss

    def save(self, number: int, *, is_chief: bool = True) -> None:
        """Write a checkpoint atomically, and delete old ones; all workers that mirror each other must take part."""
        unfinished = self.folder / (f".step-{number:09d}" if is_chief else f".not-chief-{os.getpid()}")
        shutil.rmtree(unfinished, ignore_errors=True)
        self.checkpoint.write(str(unfinished / "state"))
        if not is_chief:
            shutil.rmtree(unfinished)
            return
        target = self.folder / f"step-{number:09d}"
        if not target.exists():
            unfinished.rename(target)
        for old in sorted(self.folder.glob("step-*"))[:-KEPT_CHECKPOINTS]:
            shutil.rmtree(old)


def train_with_servers(arguments: argparse.Namespace, data: Path) -> tuple[Training, float]:
    """Distribute steps to the workers on demand; return the training and its duration in seconds."""
    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    training = Training(arguments, tf.distribute.ParameterServerStrategy(resolver), data)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(training.strategy)
    per_worker = coordinator.create_per_worker_dataset(
        lambda: training.strategy.distribute_datasets_from_function(training.make_dataset)
    )
    batches = iter(per_worker)

    @tf.function
    def step(each: Any) -> tf.Tensor:
        return training.strategy.run(training.step, args=next(each))

    def run(count: int) -> float:
        losses = [coordinator.schedule(step, args=(batches,)) for _ in range(count)]
        coordinator.join()
        return sum(float(loss.fetch()) for loss in losses) / count

    return training, run_steps(training, run, training.save)


def train_mirrored(arguments: argparse.Namespace, data: Path, *, is_chief: bool) -> tuple[Training, float]:
    """Step together with all workers; return the training and its duration in seconds."""
    training = Training(arguments, tf.distribute.MultiWorkerMirroredStrategy(), data)
    batches = iter(training.strategy.distribute_datasets_from_function(training.make_dataset))

    @tf.function
    def step(images: Any, labels: Any) -> tf.Tensor:
        losses = training.strategy.run(training.step, args=(images, labels))
        return training.strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    def run(count: int) -> float:
        return sum(float(step(*next(batches))) for _ in range(count)) / count

    return training, run_steps(
        training, run, lambda number: training.save(number, is_chief=is_chief), is_chief=is_chief
    )


def run_steps(
    training: Training, run: Callable[[int], float], save: Callable[[int], None], *, is_chief: bool = True
) -> float:
    """
    Train the remaining steps, with checkpoints and summaries at regular intervals.

    Args:
        training: The job.
        run: Function that trains a number of steps and returns their mean loss.
        save: Function that writes a checkpoint of a number of completed steps.
        is_chief: True if this process writes summaries.

    Returns:
        Duration of the steps in seconds.
    """
    writer = tf.summary.create_file_writer(str(training.arguments.train_dir)) if is_chief else None
    begin = time.monotonic()
    done = training.begin
    while done < training.arguments.max_steps:
        count = min(training.arguments.save_steps, training.arguments.max_steps - done)
        loss = run(count)
        done += count
        save(done)
        if writer:
            with writer.as_default(step=done):
                tf.summary.scalar("loss", loss)
                tf.summary.scalar("accuracy", measure(training.model, training.data))
            writer.flush()
    return time.monotonic() - begin


def main() -> None:
    """Run in the role from TF_CONFIG."""
    arguments = parse_arguments()
    config = json.loads(os.environ["TF_CONFIG"])
    cluster, task = config["cluster"], config["task"]
    has_servers = bool(cluster.get("ps"))
    if has_servers and task["type"] in ("worker", "ps"):
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        tf.distribute.Server(resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id).join()
    is_chief = task["type"] == "chief" or (task["index"] == 0 and "chief" not in cluster)
    data = prepare_cifar(arguments.data_dir) if is_chief else wait_for_cifar(arguments.data_dir)
    if has_servers:
        training, seconds = train_with_servers(arguments, data)
    else:
        training, seconds = train_mirrored(arguments, data, is_chief=is_chief)
    if not is_chief:
        return
    workers = [*cluster["worker"], *(() if has_servers else cluster.get("chief", ()))]
    replicas = 1 if has_servers else len(workers)
    trained = max(0, arguments.max_steps - training.begin) * arguments.batch_size * replicas
    result = {
        "framework": f"TensorFlow {tf.__version__}",
        "launcher": "tf-ps" if has_servers else "tf-multiworker",
        "ranks": len(workers),
        "hosts": [worker.rpartition(":")[0] for worker in workers],
        "dataset": name_cifar(data),
        "accuracy": round(measure(training.model, training.data), 4),
        "seconds": round(seconds, 2),
        "samples_per_second": round(trained / max(seconds, 1e-9), 1),
    }
    print(json.dumps(result), flush=True)  # noqa: T201 - the program's result


if __name__ == "__main__":
    main()
