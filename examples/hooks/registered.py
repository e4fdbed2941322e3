"""A hook by name, with options and wrappers: hookline run -n 2 examples/hooks/registered.py."""

import numpy as np

import hookline as hl


class TopK:
    """The largest part k of a rank's gradients travels."""

    def __init__(self, group, k=0.1):
        """The parameters after the group are the options of the hook."""
        self.group, self.k = group, k

    def __call__(self, state, bucket):
        """Each rank sends its largest gradients and where they are; the mean has zeros elsewhere."""
        values = bucket.buffer()
        count = max(1, int(len(values) * self.k))
        places = np.argsort(-np.abs(values))[:count]
        decoded = np.zeros_like(values)
        decoded[places] = values[places]
        bucket.set_contribution(decoded)  # what "… | error_feedback" compares with what the hook got
        all_places = np.empty(count * self.group.size(), np.int64)
        all_values = np.empty(count * self.group.size(), values.dtype)
        sent = [
            self.group.allgather_into_tensor(all_places, places).get_future(),
            self.group.allgather_into_tensor(all_values, values[places]).get_future(),
        ]

        def add(_):
            result = np.zeros_like(values)
            np.add.at(result, all_places, all_values / self.group.size())
            return result

        return hl.when_all(sent).then(add)


hl.register_hook("top_k", TopK, reports_contribution=True)

group = hl.init_process_group()
wanted = np.random.default_rng(0).normal(size=1000).astype(np.float32)
for text in ("top_k(k=0.05) | compare", "top_k(k=0.05) | error_feedback | compare"):
    params = {"w": np.zeros(1000, np.float32)}
    ddp = hl.numpy.DataParallel(params, group, hook=text)
    for step in range(200):
        noise = np.random.default_rng([step, group.rank()]).normal(size=1000)
        gradient = (params["w"] - wanted + 0.1 * noise).astype(np.float32)
        ddp.ready("w", gradient)
        ddp.finish()
        params["w"] -= 0.05 * gradient
    (cost,) = ddp.stats()["hook_stats"]
    if group.rank() == 0:
        error = float(np.abs(params["w"] - wanted).mean())
        print(f"{text}: {cost['ratio']:.1f} times fewer bytes than an allreduce, error {error:.2f}")
