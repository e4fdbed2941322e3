"""What a step of SGD and Adam costs on one core, beside torch.optim's fused=True on parameters of the same shapes.

Both sides step in turn, in every round, on arrays of their own; the medians of the rounds and of the ratios within them
are shown. torch's figures are of optimizer.step() alone, ours of optimizer.step(params, grads) from Python.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

MODELS: dict[str, list[tuple[int, ...]]] = {
    "12 layers of 1024 x 1024": [(1024, 1024)] * 12,
    "200 parameters of 64 x 64": [(64, 64)] * 200,
    "digits": [(64, 128), (128,), (128, 10), (10,)],
}
OPTIMIZERS: list[tuple[str, str, dict[str, Any]]] = [
    ("SGD", "sgd(lr=1e-4)", {"lr": 1e-4}),
    ("SGD", "sgd(lr=1e-4, momentum=0.9)", {"lr": 1e-4, "momentum": 0.9}),
    (
        "SGD",
        "sgd(lr=1e-4, momentum=0.9, nesterov=true, weight_decay=0.01)",
        {"lr": 1e-4, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    ),
    ("Adam", "adam(lr=1e-4)", {"lr": 1e-4}),
    ("Adam", "adam(lr=1e-4, amsgrad=true)", {"lr": 1e-4, "amsgrad": True}),
    ("AdamW", "adamw(lr=1e-4)", {"lr": 1e-4}),
]


def steps_of(shapes: list[tuple[int, ...]], name: str, text: str, options: dict[str, Any]) -> list[Callable[[], None]]:
    """Ours and theirs, each on tensors of its own that were touched before."""
    import torch

    import hookline as hl

    def tensors() -> list[Any]:
        generator = torch.Generator().manual_seed(0)
        return [torch.randn(shape, generator=generator) for shape in shapes]

    params, grads = [t.numpy() for t in tensors()], [t.numpy() for t in tensors()]
    ours = hl.make_optimizer(text)
    theirs_params = [t.requires_grad_() for t in tensors()]
    for parameter, gradient in zip(theirs_params, tensors(), strict=True):
        parameter.grad = gradient
    theirs = getattr(torch.optim, name)(theirs_params, fused=True, **options)
    return [lambda: ours.step(params, grads), lambda: theirs.step()]


def main() -> None:
    """Measures and prints the table."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=41)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'model':>26} {'optimizer':>62} {'ours':>11} {'torch fused':>12} {'ratio':>6}")
    for model, shapes in MODELS.items():
        repeats = max(1, 200_000 // sum(torch.Size(shape).numel() for shape in shapes))
        for name, text, options in OPTIMIZERS:
            both = steps_of(shapes, name, text, options)
            times: list[list[float]] = [[], []]
            for number in range(5 + arguments.rounds):
                for side, step in enumerate(both):
                    begin = time.perf_counter()
                    for _ in range(repeats):
                        step()
                    if number >= 5:
                        times[side].append((time.perf_counter() - begin) / repeats)
            ratio = statistics.median(a / b for a, b in zip(*times, strict=True))
            ours, theirs = (1e3 * statistics.median(t) for t in times)
            verdict = "met" if ratio <= 1 else "MISSED"
            print(f"{model:>26} {text:>62} {ours:8.3f} ms {theirs:9.3f} ms {ratio:6.2f} {verdict}")


if __name__ == "__main__":
    main()
