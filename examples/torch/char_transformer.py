"""Trains a small character-level transformer on the sources of Python's standard library, data-parallel.

torchrun --nproc-per-node 2 examples/torch/char_transformer.py
torchrun --nproc-per-node 2 examples/torch/char_transformer.py --hook "int8(block=512) | error_feedback"
torchrun --nproc-per-node 2 examples/torch/char_transformer.py --backend gloo --hook FP16_COMPRESS
"""

import argparse
import sysconfig
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import hookline.torch as ht

CONTEXT = 64


def read_sources(size: int) -> torch.Tensor:
    """Returns the first `size` bytes of the standard library as ASCII codes."""
    text = b""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text += path.read_bytes()
        if len(text) >= size:
            break
    return torch.frombuffer(bytearray(text[:size]), dtype=torch.uint8).long().clamp_(max=127)


class Transformer(nn.Module):
    """Predicts the next character at each position."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(128, width)
        self.positions = nn.Parameter(torch.zeros(CONTEXT, width))
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, 128)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """Returns the logits at each position."""
        return self.head(self.body(self.tokens(text) + self.positions, mask=self.mask, is_causal=True))


def main() -> None:
    """Trains and prints the loss."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", default="hookline")
    parser.add_argument("--hook", help="a DDPCommHookType or a hook spec (default: PyTorch's allreduce)")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=16)
    options = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group(options.backend)
    text = read_sources(1 << 20)
    model = DistributedDataParallel(Transformer(options.width, options.layers), bucket_cap_mb=1)
    if options.hook:
        ht.register_ddp_comm_hook(options.hook, model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(dist.get_rank())

    start = time.perf_counter()
    for step in range(1, options.steps + 1):
        offsets = torch.randint(0, len(text) - CONTEXT - 1, (options.batch,), generator=generator)
        batch = torch.stack([text[i : i + CONTEXT + 1] for i in offsets])
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        if step % max(1, options.steps // 10) == 0:
            mean = loss.detach().clone()
            dist.all_reduce(mean, dist.ReduceOp.SUM)
            if dist.get_rank() == 0:
                print(f"step {step}: loss {mean / dist.get_world_size():.3f}, {time.perf_counter() - start:.1f} s")
    if options.hook and dist.get_rank() == 0:
        stats = ht.stats(model)
        print(f"{stats['hook']}: {stats['bytes_sent']} bytes sent in the last step, in {len(stats['buckets'])} buckets")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
