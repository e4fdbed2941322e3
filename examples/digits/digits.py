"""Trains a small network on handwritten digits with NumPy: hookline run -n 2 examples/digits/digits.py."""

import argparse
import time
from pathlib import Path

import numpy as np

import hookline as hl

HIDDEN = 128
BATCH = 64  # of all ranks together
RATE = 0.2
TRAINED = 1536  # the other pictures are for the accuracy


def load():
    """Pictures and digits, shuffled alike on every rank."""
    raw = np.fromfile(Path(__file__).with_name("digits.bin"), np.uint8).reshape(-1, 65)
    raw = raw[np.random.default_rng(0).permutation(len(raw))]
    return raw[:, :64].astype(np.float32) / 16, raw[:, 64].astype(np.int64)


def new_network():
    """Weights that are the same in every run."""
    random = np.random.default_rng(1)
    return {
        "w1": random.normal(0, 0.15, (64, HIDDEN)).astype(np.float32),
        "b1": np.zeros(HIDDEN, np.float32),
        "w2": random.normal(0, 0.1, (HIDDEN, 10)).astype(np.float32),
        "b2": np.zeros(10, np.float32),
    }


def forward(net, images):
    """The hidden layer, and the scores of the ten digits."""
    hidden = np.maximum(images @ net["w1"] + net["b1"], 0)
    return hidden, hidden @ net["w2"] + net["b2"]


def train_step(net, ddp, images, labels):
    """Gradients are marked as soon as they are there; those of the first layer are computed meanwhile."""
    hidden, scores = forward(net, images)
    scores = np.exp(scores - scores.max(1, keepdims=True))
    slope = scores / scores.sum(1, keepdims=True)
    slope[np.arange(len(labels)), labels] -= 1
    slope /= len(labels)
    grads = {"b2": slope.sum(0), "w2": hidden.T @ slope}
    ddp.ready("b2", grads["b2"])
    ddp.ready("w2", grads["w2"])
    back = (slope @ net["w2"].T) * (hidden > 0)
    grads["b1"] = back.sum(0)
    ddp.ready("b1", grads["b1"])
    grads["w1"] = images.T @ back
    ddp.ready("w1", grads["w1"])
    ddp.finish()
    for name, gradient in grads.items():
        net[name] -= RATE * gradient


def show_progress(hook, done, total, started, redraw):
    """A bar, drawn again in its place or line by line."""
    filled = 24 * done // total
    elapsed = time.perf_counter() - started
    bar = f"{hook:>12} [{'#' * filled}{'.' * (24 - filled)}] {done}/{total} epochs, {elapsed:.1f} s"
    if redraw:
        print(f"\r{bar}", end="" if done < total else "\n", flush=True)
    elif done == total or done % (total // 4 or 1) == 0:
        print(bar, flush=True)


def train(group, hook, epochs, redraw):
    """The trained network and one row of the table: hook, accuracy, bytes sent a step, milliseconds a step."""
    images, labels = load()
    net = new_network()
    ddp = hl.numpy.DataParallel(net, group, hook=hook, bucket_cap_mb=0.02)
    share = BATCH // group.size()
    order = np.random.default_rng(2)
    started = time.perf_counter()
    times = []
    for epoch in range(epochs):
        for batch in order.permutation(TRAINED).reshape(-1, BATCH):
            mine = batch[group.rank() * share : (group.rank() + 1) * share]
            begun = time.perf_counter()
            train_step(net, ddp, images[mine], labels[mine])
            times.append(time.perf_counter() - begun)
        if group.rank() == 0:
            show_progress(hook, epoch + 1, epochs, started, redraw)
    right = forward(net, images[TRAINED:])[1].argmax(1) == labels[TRAINED:]
    return net, (
        hook,
        f"{100 * right.mean():.1f} %",
        str(ddp.stats()["sent_bytes"]),
        f"{1e3 * np.median(times):.2f} ms",
    )


def print_table(rows):
    """Columns under their names."""
    rows = [("hook", "accuracy", "bytes sent a step", "step time"), *rows]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    for row in rows:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)), flush=True)


def main():
    """Trains with one hook, or with each in turn, and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hook", help="all of them, one after another, where not given")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--redraw", action="store_true", help="draw the progress bar in its place, as for a terminal")
    parser.add_argument("--save", help="a file for the weights that rank 0 ends with")
    arguments = parser.parse_args()

    group = hl.init_process_group()
    rows = []
    # Wrappers need something to be around, so they are not tried by themselves.
    for hook in [arguments.hook] if arguments.hook else hl.registered_hooks(alone=True):
        net, row = train(group, hook, arguments.epochs, arguments.redraw)
        rows.append(row)
        if arguments.save and group.rank() == 0:
            np.savez(arguments.save, **net)
    if group.rank() == 0:
        print_table(rows)


if __name__ == "__main__":
    main()
