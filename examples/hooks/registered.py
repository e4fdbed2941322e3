"""A registered hook, with options and wrappers: hookline run -n 2 examples/hooks/registered.py."""

import numpy as np

import hookline as hl


class TopK:
    """Sends only the fraction k of a rank's gradients with the largest magnitudes."""

    def __init__(self, group, k=0.1):
        """The parameters after the group are the options of the hook."""
        self.group, self.k = group, k

    def __call__(self, state, bucket):
        """Each rank sends its largest gradients and their indices. Elements that no rank sends become zero."""
        values = bucket.buffer()
        count = max(1, int(len(values) * self.k))
        indices = np.argsort(-np.abs(values))[:count]
        decoded = np.zeros_like(values)
        decoded[indices] = values[indices]
        bucket.set_contribution(decoded)  # "… | error_feedback" subtracts it from the gradients
        all_indices = np.empty(count * self.group.size(), np.int64)
        all_values = np.empty(count * self.group.size(), values.dtype)
        gathered = [
            self.group.allgather_into_tensor(all_indices, indices).get_future(),
            self.group.allgather_into_tensor(all_values, values[indices]).get_future(),
        ]

        def add(_):
            result = np.zeros_like(values)
            np.add.at(result, all_indices, all_values / self.group.size())
            return result

        return hl.when_all(gathered).then(add)


hl.register_hook("top_k", TopK, reports_contribution=True)

group = hl.init_process_group()
target = np.random.default_rng(0).normal(size=1000).astype(np.float32)
for spec in ("top_k(k=0.05) | compare", "top_k(k=0.05) | error_feedback | compare"):
    params = {"w": np.zeros(1000, np.float32)}
    ddp = hl.numpy.DataParallel(params, group, hook=spec)
    for step in range(200):
        noise = np.random.default_rng([step, group.rank()]).normal(size=1000)
        gradient = (params["w"] - target + 0.1 * noise).astype(np.float32)
        ddp.ready("w", gradient)
        ddp.finish()
        params["w"] -= 0.05 * gradient
    (bucket,) = ddp.stats()["hook_stats"]
    if group.rank() == 0:
        error = float(np.abs(params["w"] - target).mean())
        print(f"{spec}: {bucket['ratio']:.1f} times fewer bytes than an allreduce, error {error:.2f}")
