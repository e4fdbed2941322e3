"""PowerSGD compared with torch's hook, in one bucket on two ranks with Gloo: equal gradients give equal means."""

from pathlib import Path

PROGRAM = """
import sys
import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as theirs
sys.path.insert(0, TESTS)
from powersgd_reference import fill_random_column
import hookline as hl

SHAPES = [(20, 30), (30,), (6, 5, 7), (20, 30), (40, 8)]


class Bucket:
    def __init__(self, flat):
        self.flat = flat
    def index(self):
        return 0
    def is_last(self):
        return True
    def buffer(self):
        return self.flat
    def gradients(self):
        sizes = [int(np.prod(s)) for s in SHAPES]
        return [part.view(shape) for part, shape in zip(self.flat.split(sizes), SHAPES)]


group = hl.init_process_group()
dist.init_process_group("gloo", init_method="file://STORE", rank=group.rank(), world_size=2)
world = dist.group.WORLD  # kept alive: if a Gloo thread destroyed the group, the process would terminate
torch.set_num_threads(1)
for options in [
    {}, {"matrix_approximation_rank": 2}, {"matrix_approximation_rank": 4, "min_compression_rate": 1.5},
    {"matrix_approximation_rank": 2, "use_error_feedback": False},
    {"matrix_approximation_rank": 2, "orthogonalization_epsilon": 1e-2},
    {"batch_tensors_with_same_shape": True, "min_compression_rate": 3},
]:
    options = {"start_powerSGD_iter": 3, **options}
    rank = options.get("matrix_approximation_rank", 1)
    state = theirs.PowerSGDState(None, **options)
    ours = hl.PowerSGDState(group, **options)
    # torch's hook starts with hookline's random factors, in the order of the shapes.
    rate = options.get("min_compression_rate", 2)
    chosen = [(i, s[0], int(np.prod(s[1:]))) for i, s in enumerate(SHAPES) if len(s) > 1]
    chosen = [(i, n, m, min(n, m, rank)) for i, n, m in chosen if (n + m) * min(n, m, rank) * rate < n * m]
    shapes = [c[1:] for c in chosen]
    chosen.sort(key=lambda c: shapes.index(c[1:]))
    columns = [
        np.stack([fill_random_column(0, 3, f"gradient {i} of bucket 0", k, m) for k in range(r)], axis=1).ravel()
        for i, n, m, r in chosen
    ]
    state.p_memory_dict[0] = torch.empty(sum(n * r for _, n, _, r in chosen))
    state.q_memory_dict[0] = torch.tensor(np.concatenate(columns), dtype=torch.float32)
    for step in range(30):
        noise = np.random.default_rng([group.rank(), step])
        parts = []
        for number, shape in enumerate(SHAPES):
            part = noise.normal(0, 0.1, shape)
            if len(shape) > 1:
                common = np.random.default_rng([number])
                left, right = common.normal(size=(shape[0], 4)), common.normal(size=(4, *shape[1:]))
                part += np.einsum("ik,k,k...->i...", left, [4, 2, 1, 0.5] * noise.uniform(0.8, 1.2, 4), right)
            parts.append(part.ravel())
        flat = np.concatenate(parts).astype(np.float32)
        mine = flat.copy()
        expected = theirs.powerSGD_hook(state, Bucket(torch.from_numpy(flat))).wait().numpy()
        hl.powerSGD_hook(ours, hl.GradBucket(mine, SHAPES)).wait()
        off = float(np.abs(mine - expected).max())
        assert off < 5e-5, (options, step, off)
        if step < 3:
            continue
        # torch's hook continues from hookline's state, so rounding errors do not accumulate; its factors are row-major.
        if options.get("use_error_feedback", True):
            state.error_dict[0] = torch.from_numpy(ours.error_dict[0])
        parts, at = {}, 0
        for i, n, m, r in sorted(chosen):
            parts[i] = ours.q_memory_dict[0][at : at + m * r].reshape(r, m).T.ravel()
            at += m * r
        state.q_memory_dict[0] = torch.from_numpy(np.concatenate([parts[i] for i, *_ in chosen]))
    assert ours.compression_stats() == state.compression_stats(), (ours.compression_stats(), state.compression_stats())
    assert ours.iter == state.iter == 30
print("done")
dist.destroy_process_group()
"""


def test_means_and_statistics_are_torchs(launch, tmp_path):
    tests = Path(__file__).resolve().parents[1]
    result = launch(2, PROGRAM.replace("TESTS", repr(str(tests))).replace("STORE", str(tmp_path / "store")))
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("done") == 2
