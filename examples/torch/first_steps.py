"""PyTorch's DistributedDataParallel with the hookline backend and a hook, then hookline's DistributedDataParallel.

hookline run -n 2 examples/torch/first_steps.py, or torchrun --nproc-per-node 2 examples/torch/first_steps.py
"""

import torch
import torch.distributed as dist

import hookline.torch as ht

torch.manual_seed(0)  # the same model and target on every rank
net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
target = torch.randn(32, 1) / 32**0.5

dist.init_process_group("hookline")
model = torch.nn.parallel.DistributedDataParallel(net)
state = ht.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=10)
ht.register_ddp_comm_hook(ht.DDPCommHookType.POWER_SGD, model, state)


def train(model, steps):
    """Trains on this rank's data; returns the first and the last loss."""
    torch.manual_seed(dist.get_rank() + 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        points = torch.randn(64, 32)
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(points), points @ target)
        loss.backward()  # gradients are averaged when it returns
        optimizer.step()
        losses.append(loss.item())
    return losses[0], losses[-1]


first, last = train(model, 30)
# Hookline's own DistributedDataParallel has its own process group and does not need torch.distributed.
ddp = ht.DistributedDataParallel(net, hook="powersgd(rank=2, start_iter=10)")
_, end = train(ddp, 30)
assert max(last, end) < first / 2, (first, last, end)
rate = state.compression_stats()[0]
weights = sum(float(p.detach().abs().sum()) for p in net.parameters())
print(f"rank {dist.get_rank()}: loss {first:.3f}, then {last:.3f} sending {rate:.1f} times less, then {end:.3f}")
print(f"weights {weights:.6f}; {ddp.stats()['bytes_sent']} bytes sent in a step")
dist.destroy_process_group()
