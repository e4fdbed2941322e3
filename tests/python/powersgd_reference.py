"""Reference implementation of PowerSGD (algorithm 1 of the paper) in NumPy: all ranks in one object, in float64."""

import math

import numpy as np

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def mix_bits(x):
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def fill_random_column(seed, step, name, k, count):
    """Returns a column of the initial factor, as specified in docs/reference/hook.md."""
    with np.errstate(over="ignore"):
        hashed = np.uint64(0xCBF29CE484222325)
        for letter in name.encode():
            hashed = (hashed ^ np.uint64(letter)) * np.uint64(0x100000001B3)
        key = np.uint64(0)
        for part in (np.uint64(seed), np.uint64(step), hashed, np.uint64(k)):
            key = mix_bits(key + part + GOLDEN)
        bits = mix_bits(key + np.arange(1, count + 1, dtype=np.uint64) * GOLDEN)
        parts = [(bits >> np.uint64(shift)) & np.uint64(0xFFFF) for shift in (0, 16, 32, 48)]
    return (sum(part.astype(np.int64) for part in parts) - 2 * 0xFFFF) / 32768


def orthogonalise(matrix, epsilon):
    """Gram-Schmidt; zero columns stay zero."""
    for i in range(matrix.shape[1]):
        norm = np.linalg.norm(matrix[:, i])
        if norm > 0:
            matrix[:, i] /= norm + epsilon
        for j in range(i + 1, matrix.shape[1]):
            matrix[:, j] -= (matrix[:, i] @ matrix[:, j]) * matrix[:, i]
    return matrix


class Reference:
    """Averages the gradients of all ranks, step after step."""

    def __init__(self, rank=1, start=2, min_rate=2, feedback=True, warm=True, epsilon=0, seed=0):
        self.rank, self.start, self.min_rate = rank, start, min_rate
        self.feedback, self.warm, self.epsilon, self.seed = feedback, warm, epsilon, seed
        self.step_number = 0
        self.errors, self.factors = {}, {}

    def go_on_from(self, order, errors, q):
        """Replaces the state of a bucket with parameters in this order by hookline's state on each rank.

        Otherwise rounding differences would accumulate: error feedback about doubles them in each step.
        """
        at = 0
        for name, shape in order.items():
            if name == "bucket 0":
                rows, columns = shape
                begin, end = 0, len(errors[0])
            else:
                if not self.compresses(shape):
                    at += math.prod(shape)
                    continue
                rows, columns = shape[0], math.prod(shape[1:])
                begin, end = at, at + math.prod(shape)
                at = end
            rank = min(rows, columns, self.rank)
            self.errors[name] = []
            for own in errors:
                error = np.zeros(rows * columns)
                error[: end - begin] = own[begin:end]
                self.errors[name].append(error.reshape(rows, columns))
            self.factors[name] = q[: rank * columns].astype(np.float64).reshape(rank, columns).T
            q = q[rank * columns :]

    def step(self, gradients):
        """Takes gradients[rank][name] and returns means[name]."""
        means = {}
        for name in gradients[0]:
            own = [np.asarray(g[name], np.float64) for g in gradients]
            if self.step_number < self.start or not self.compresses(own[0].shape):
                means[name] = sum(own) / len(own)
            else:
                matrices = [g.reshape(g.shape[0], -1) for g in own]
                means[name] = self.approximate(name, matrices).reshape(own[0].shape)
        self.step_number += 1
        return means

    def step_batched(self, gradients, order):
        """Like step(), but compresses the whole bucket, with its gradients in this order, as one square matrix."""
        if self.step_number < self.start:
            return self.step(gradients)
        shapes = {name: gradients[0][name].shape for name in order}
        count = sum(math.prod(shape) for shape in shapes.values())
        side = math.isqrt(count - 1) + 1
        squares = []
        for own in gradients:
            square = np.zeros(side * side)
            square[:count] = np.concatenate([own[name].ravel() for name in order])
            squares.append(square.reshape(side, side))
        flat = self.approximate("bucket 0", squares, beyond=count).ravel()
        self.step_number += 1
        means, at = {}, 0
        for name, shape in shapes.items():
            means[name] = flat[at : at + math.prod(shape)].reshape(shape)
            at += math.prod(shape)
        return means

    def compresses(self, shape):
        if len(shape) < 2:
            return False
        rows, columns = shape[0], math.prod(shape[1:])
        return (rows + columns) * min(rows, columns, self.rank) * self.min_rate < rows * columns

    def approximate(self, name, matrices, beyond=None):
        rows, columns = matrices[0].shape
        rank = min(rows, columns, self.rank)
        if self.feedback:
            matrices = [m + e for m, e in zip(matrices, self.errors.get(name, [0] * len(matrices)), strict=True)]
        if self.warm and name in self.factors:
            q = self.factors[name].copy()
        else:
            drawn = [fill_random_column(self.seed, self.step_number, name, k, columns) for k in range(rank)]
            q = np.stack(drawn, axis=1)
        orthogonalise(q, self.epsilon)
        p = orthogonalise(sum(m @ q for m in matrices), self.epsilon)
        q = sum(m.T @ p for m in matrices) / len(matrices)
        result = p @ q.T
        self.factors[name] = q
        self.errors[name] = [m - result for m in matrices]
        if beyond is not None:  # the padding of a bucket has no residual
            for error in self.errors[name]:
                error.ravel()[beyond:] = 0
        return result
