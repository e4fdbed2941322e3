"""Trains a small network on handwritten digits with NumPy: hookline run -n 2 examples/digits/digits.py."""

import argparse
import re
import time
from pathlib import Path

import numpy as np

import hookline as hl

HIDDEN = 128
BATCH = 64  # over all ranks
OPTIMIZER = "sgd(lr=0.2)"
TRAINED = 1536  # pictures; the rest measures the accuracy
COMPOSED = ["int8 | error_feedback", "int4 | error_feedback"]
START = 10  # steps before PowerSGD begins
POWERSGD = [f"{name}(rank={rank}, start_iter={START})" for name in ("powersgd", "batched_powersgd") for rank in (1, 2)]
LOCAL = "post_local_sgd(start_iter=96, group_size=1)"  # local steps after four epochs
PERIOD = 4  # steps between two model averages
COLUMNS = ["hook", "accuracy", "bytes sent a step", "ratio", "encode+decode", "relative error", "step time"]


def load():
    """Returns pictures and labels, in the same shuffled order on every rank."""
    raw = np.fromfile(Path(__file__).with_name("digits.bin"), np.uint8).reshape(-1, 65)
    raw = raw[np.random.default_rng(0).permutation(len(raw))]
    return raw[:, :64].astype(np.float32) / 16, raw[:, 64].astype(np.int64)


def new_network():
    """Returns random weights, the same in every run."""
    random = np.random.default_rng(1)
    return {
        "w1": random.normal(0, 0.15, (64, HIDDEN)).astype(np.float32),
        "b1": np.zeros(HIDDEN, np.float32),
        "w2": random.normal(0, 0.1, (HIDDEN, 10)).astype(np.float32),
        "b2": np.zeros(10, np.float32),
    }


def forward(net, images):
    """Returns the activations of the hidden layer and the scores of the ten digits."""
    hidden = np.maximum(images @ net["w1"] + net["b1"], 0)
    return hidden, hidden @ net["w2"] + net["b2"]


def train_step(net, ddp, images, labels):
    """Computes the gradients, marking each ready as soon as its weights are no longer needed in this step.

    The communication of the second layer overlaps the computation of the first.
    """
    hidden, scores = forward(net, images)
    scores = np.exp(scores - scores.max(1, keepdims=True))
    slope = scores / scores.sum(1, keepdims=True)
    slope[np.arange(len(labels)), labels] -= 1
    slope /= len(labels)
    grads = {"b2": slope.sum(0), "w2": hidden.T @ slope}
    ddp.ready("b2", grads["b2"])
    back = (slope @ net["w2"].T) * (hidden > 0)
    ddp.ready("w2", grads["w2"])
    grads["b1"] = back.sum(0)
    ddp.ready("b1", grads["b1"])
    grads["w1"] = images.T @ back
    ddp.ready("w1", grads["w1"])
    ddp.finish()  # waits for the averaged gradients and the optimizer's step


def show_progress(hook, done, total, started, redraw):
    """Prints a progress bar, on one line that is redrawn or on several."""
    filled = 24 * done // total
    elapsed = time.perf_counter() - started
    bar = f"{hook:>39} [{'#' * filled}{'.' * (24 - filled)}] {done}/{total} epochs, {elapsed:.1f} s"
    if redraw:
        print(f"\r{bar}", end="" if done < total else "\n", flush=True)
    elif done == total or done % (total // 4 or 1) == 0:
        print(bar, flush=True)


def relative_error(net, group, hook, images, labels):
    """Returns the relative error of the hook's mean in the worst bucket of one more step, on a copy of the network."""
    copy = {name: value.copy() for name, value in net.items()}
    ddp = hl.numpy.DataParallel(copy, group, hook=f"{hook} | compare", bucket_cap_mb=0.02)
    for _ in range(START + 1 if hook in POWERSGD else 1):
        train_step(copy, ddp, images, labels)
    return max(bucket["relative_error"] for bucket in ddp.stats()["hook_stats"])


def optimizer_for(hook, spec, group):
    """Returns the optimizer; for post-local SGD one that averages the models once the steps are local."""
    optimizer = hl.make_optimizer(spec)
    if not hook.startswith("post_local_sgd"):
        return optimizer
    start = re.search(r"start_iter *= *(\d+)", hook)
    averager = hl.PeriodicModelAverager(PERIOD, int(start[1]) if start else 1000, group)
    return hl.PostLocalSGDOptimizer(optimizer, averager)


def row_of(hook, accuracy, stats, coding, error, step_time, ranks):
    """Returns the cells of the table for one hook."""
    exact = sum(bucket["bytes"] for bucket in stats["buckets"]) * 2 * (ranks - 1) / ranks
    sent = stats["bytes_sent"]
    return [
        hook,
        f"{100 * accuracy:.1f} %",
        str(sent),
        f"{exact / sent:.2f}x" if sent else "-",
        f"{1e6 * coding:.0f} us" if coding else "-",
        f"{error:.1e}",
        f"{1e3 * step_time:.2f} ms",
    ]


def train(group, hook, optimizer, epochs, redraw):
    """Returns the trained network and its row of the table, with median times over the steps."""
    images, labels = load()
    net = new_network()
    ddp = hl.numpy.DataParallel(
        net, group, hook=hook, optimizer=optimizer_for(hook, optimizer, group), bucket_cap_mb=0.02
    )
    share = BATCH // group.size()
    order = np.random.default_rng(2)
    started = time.perf_counter()
    times, coding = [], []
    for epoch in range(epochs):
        for batch in order.permutation(TRAINED).reshape(-1, BATCH):
            mine = batch[group.rank() * share : (group.rank() + 1) * share]
            start = time.perf_counter()
            train_step(net, ddp, images[mine], labels[mine])
            times.append(time.perf_counter() - start)
            buckets = ddp.stats()["hook_stats"]
            coding.append(sum(bucket["encode_time"] + bucket["decode_time"] for bucket in buckets))
        if group.rank() == 0:
            show_progress(hook, epoch + 1, epochs, started, redraw)
    right = forward(net, images[TRAINED:])[1].argmax(1) == labels[TRAINED:]
    stats = ddp.stats()
    error = relative_error(net, group, hook, images[mine], labels[mine])
    return net, row_of(hook, right.mean(), stats, np.median(coding), error, np.median(times), group.size())


def all_hooks():
    """Returns all base hooks and a few compositions, including all of PyTorch's DDPCommHookType."""
    names = hl.registered_hooks(base_only=True)
    plain = [name for name in names if "powersgd" not in name and name != "post_local_sgd"]
    return [*plain, *POWERSGD, *COMPOSED, LOCAL]


def print_table(rows):
    """Prints the rows as aligned columns with a header."""
    rows = [COLUMNS, *rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)), flush=True)


def main():
    """Trains with each hook in turn and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hook", action="append", help="a hook spec; repeatable (default: all hooks)")
    parser.add_argument("--optimizer", default=OPTIMIZER, help="such as 'adamw(lr=0.01)' (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--redraw", action="store_true", help="redraw the progress bar in place, for terminals")
    parser.add_argument("--save", help="write rank 0's final weights to this file")
    arguments = parser.parse_args()

    group = hl.init_process_group()
    rows = []
    for hook in arguments.hook or all_hooks():
        net, row = train(group, hook, arguments.optimizer, arguments.epochs, arguments.redraw)
        rows.append(row)
        if arguments.save and group.rank() == 0:
            np.savez(arguments.save, **net)
    if group.rank() == 0:
        print_table(rows)


if __name__ == "__main__":
    main()
