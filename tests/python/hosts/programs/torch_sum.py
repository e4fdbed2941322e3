"""An all_reduce by torch.distributed on the backend "hookline", with an explicit init_method."""

import datetime
import os

import torch
import torch.distributed as dist

import hookline.torch


def main() -> None:
    place, rank = os.environ["PLACE"], int(os.environ["HOST"])
    timeout = datetime.timedelta(seconds=60)
    dist.init_process_group("hookline", init_method=place, rank=rank, world_size=2, timeout=timeout)
    x = torch.ones(5000)
    dist.all_reduce(x)
    print(f"{x[0].item():g} on {hookline.torch.group_from_torch().getBackendName()}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
