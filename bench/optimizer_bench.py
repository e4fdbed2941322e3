"""Measures a step of SGD and Adam on one core against torch.optim with fused=True on parameters of the same shapes.

The two libraries alternate in every round, each on its own arrays. Prints the medians of the times and of the ratios
within a round. The times are those of optimizer.step() in torch and optimizer.step(params, grads) in hookline.
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


def make_steps(
    shapes: list[tuple[int, ...]], name: str, spec: str, options: dict[str, Any]
) -> list[Callable[[], None]]:
    """Returns the step functions of hookline and torch, each on its own tensors, whose pages are already mapped."""
    import torch

    import hookline as hl

    def tensors() -> list[Any]:
        generator = torch.Generator().manual_seed(0)
        return [torch.randn(shape, generator=generator) for shape in shapes]

    params, grads = [t.numpy() for t in tensors()], [t.numpy() for t in tensors()]
    hookline_optimizer = hl.make_optimizer(spec)
    torch_params = [t.requires_grad_() for t in tensors()]
    for parameter, gradient in zip(torch_params, tensors(), strict=True):
        parameter.grad = gradient
    torch_optimizer = getattr(torch.optim, name)(torch_params, fused=True, **options)
    return [lambda: hookline_optimizer.step(params, grads), lambda: torch_optimizer.step()]


def main() -> None:
    """Measures and prints the table."""
    import torch

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=41)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{'model':>26} {'optimizer':>62} {'hookline':>11} {'torch fused':>12} {'ratio':>6}")
    for model, shapes in MODELS.items():
        repeats = max(1, 200_000 // sum(torch.Size(shape).numel() for shape in shapes))
        for name, spec, options in OPTIMIZERS:
            steps = make_steps(shapes, name, spec, options)
            times: list[list[float]] = [[], []]
            for number in range(5 + arguments.rounds):
                for library, step in enumerate(steps):
                    begin = time.perf_counter()
                    for _ in range(repeats):
                        step()
                    if number >= 5:
                        times[library].append((time.perf_counter() - begin) / repeats)
            ratio = statistics.median(a / b for a, b in zip(*times, strict=True))
            hookline_ms, torch_ms = (1e3 * statistics.median(t) for t in times)
            verdict = "met" if ratio <= 1 else "MISSED"
            print(f"{model:>26} {spec:>62} {hookline_ms:8.3f} ms {torch_ms:9.3f} ms {ratio:6.2f} {verdict}")


if __name__ == "__main__":
    main()
