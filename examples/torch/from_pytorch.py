"""PyTorch's DistributedDataParallel with hookline as its backend, and PowerSGD as its hook.

hookline run -n 2 examples/torch/from_pytorch.py, or torchrun --nproc-per-node 2.
"""

import torch
import torch.distributed as dist

import hookline.torch as ht

dist.init_process_group("hookline")
torch.manual_seed(dist.get_rank())
net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 10))
model = torch.nn.parallel.DistributedDataParallel(net)
state = ht.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=10)
ht.register_ddp_comm_hook(ht.DDPCommHookType.POWER_SGD, model, state)
# or all of it hookline's:  model = ht.DistributedDataParallel(net, hook="powersgd(rank=2)")

optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for _ in range(30):
    images = torch.randn(16, 64)
    labels = images[:, :10].argmax(1)
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()

rate = state.compression_stats()[0]
weights = sum(float(p.detach().abs().sum()) for p in model.parameters())
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: weights {weights:.6f}, compressed {rate:.1f}x")
dist.destroy_process_group()
