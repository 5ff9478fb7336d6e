#!/usr/bin/env python3
"""
Data-parallel training of a classifier of handwritten digits with Horovod and TensorFlow/Keras.

Every rank takes a part of each batch; rank 0 writes a checkpoint after each epoch, measures the accuracy on held-out
digits and prints the result as one line of JSON.

    deeplearning run [--launcher mpi] -- python3 train_keras.py [--epochs N]
    run_horovod.sh train_keras.py [--epochs N]
"""

import argparse
import hashlib
import json
import os
import socket
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported

import horovod.tensorflow as hvd
import numpy as np
import tensorflow as tf
from digits import SEED, load_digits, split

GLOBAL_BATCH = 128
KEPT_CHECKPOINTS = 2


def make_model() -> tuple[tf.keras.Model, int]:
    """Return a compiled model, new or from the checkpoint that `deeplearning run` found, and its completed epochs."""
    path = os.environ.get("DEEPLEARNING_RESUME_FROM")
    if path:
        return tf.keras.models.load_model(path), int(Path(path).stem.split("-")[1])
    layers = [tf.keras.layers.Dense(128, activation="relu", input_shape=(64,)), tf.keras.layers.Dense(10)]
    model = tf.keras.Sequential(layers)
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=tf.keras.optimizers.SGD(learning_rate=0.3, momentum=0.9), loss=loss)
    model.optimizer.build(model.trainable_variables)
    return model, 0


def train(model: tf.keras.Model, x: np.ndarray, y: np.ndarray, epochs: range, folder: Path) -> int:
    """
    Train on this rank's part; the batch over all ranks does not depend on their number.

    Args:
        model: Model, whose weights are changed.
        x: Images.
        y: Labels of the images.
        epochs: Passes in all; those before the checkpoint from which the job resumes are not repeated.
        folder: Folder for a checkpoint after each epoch.

    Returns:
        Number of images on which all ranks together have trained.
    """

    @tf.function(reduce_retracing=True)
    def step(images: tf.Tensor, labels: tf.Tensor) -> None:
        with tf.GradientTape() as plain:
            loss = model.loss(labels, model(images, training=True))
        tape = hvd.DistributedGradientTape(plain)
        gradients = tape.gradient(loss, model.trainable_variables)
        model.optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    hvd.broadcast_variables(model.variables, root_rank=0)
    hvd.broadcast_variables(model.optimizer.variables, root_rank=0)
    share = len(y) // hvd.size()  # the same on all ranks, which would otherwise wait for each other for ever
    batch = max(1, GLOBAL_BATCH // hvd.size())
    for epoch in epochs:
        mine = np.random.default_rng(SEED + epoch).permutation(len(y))[hvd.rank() :: hvd.size()][:share]
        for part in np.split(mine, range(batch, share, batch)):
            step(tf.constant(x[part]), tf.constant(y[part]))
        if hvd.rank() == 0:
            save_checkpoint(folder, epoch + 1, model)
    return share * hvd.size() * len(epochs)


def save_checkpoint(folder: Path, epochs: int, model: tf.keras.Model) -> None:
    """Write a checkpoint atomically, and delete old ones."""
    unfinished = folder / ".epochs.keras"
    model.save(unfinished)
    unfinished.replace(folder / f"epochs-{epochs:05d}.keras")
    for old in sorted(folder.glob("epochs-*.keras"))[:-KEPT_CHECKPOINTS]:
        old.unlink()


def check_same_weights(model: tf.keras.Model) -> None:
    """
    Check that all ranks have the same weights, bit for bit.

    Raises:
        RuntimeError: They do not.
    """
    content = b"".join(weight.tobytes() for weight in model.get_weights())
    digests = hvd.allgather_object(hashlib.sha256(content).hexdigest())
    if len(set(digests)) != 1:
        raise RuntimeError(f"all ranks must have the same weights, got {digests}")


def use_own_gpu() -> None:
    """Assign one GPU of the host to each rank."""
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        tf.config.set_visible_devices(gpus[hvd.local_rank() % len(gpus)], "GPU")
    else:
        tf.config.threading.set_intra_op_parallelism_threads(1)  # ranks share the machine's cores
        tf.config.threading.set_inter_op_parallelism_threads(1)


def main() -> None:
    """Train, check and print."""
    parser = argparse.ArgumentParser(description="Train on handwritten digits with Horovod and TensorFlow/Keras.")
    parser.add_argument("--epochs", type=int, default=15, help="passes over the training part (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="folder of the checkpoints outside of `deeplearning run`")
    arguments = parser.parse_args()

    hvd.init()
    use_own_gpu()
    tf.keras.utils.set_random_seed(SEED)
    out = arguments.out or Path(os.environ["EFS_MOUNT"], "train_keras")
    folder = Path(os.environ.get("DEEPLEARNING_CHECKPOINT_PATH") or out)
    folder.mkdir(parents=True, exist_ok=True)
    name, images, labels = load_digits()
    (x, y), (held_out_x, held_out_y) = split(images, labels)
    model, done = make_model()
    begin = time.monotonic()
    trained = train(model, x, y, range(done, arguments.epochs), folder)
    seconds = time.monotonic() - begin
    check_same_weights(model)
    hosts = hvd.allgather_object(socket.gethostname())
    if hvd.rank() == 0:
        accuracy = float((model(held_out_x).numpy().argmax(1) == held_out_y).mean())
        result = {
            "framework": f"TensorFlow {tf.__version__}",
            "launcher": "mpi" if "OMPI_COMM_WORLD_RANK" in os.environ else "horovod",
            "ranks": hvd.size(),
            "hosts": hosts,
            "dataset": name,
            "trained_on": len(y),
            "held_out": len(held_out_y),
            "accuracy": round(accuracy, 4),
            "seconds": round(seconds, 2),
            "samples_per_second": round(trained / seconds, 1),
        }
        print(json.dumps(result), flush=True)  # noqa: T201 - the program's result
    hvd.shutdown()


if __name__ == "__main__":
    main()
