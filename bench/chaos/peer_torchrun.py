"""A torchrun worker that writes down when it has taken each step; it starts from nothing when it is
restarted, as a script without checkpoints does."""

import os
import sys
import time

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel


def main():
    torch.set_num_threads(1)
    # After a restart gloo would look for the addresses of the processes before it, which are still in
    # the agent's store: each attempt gets names of its own.
    store = distributed.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]),
                                 is_master=False)
    attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
    distributed.init_process_group("gloo", store=distributed.PrefixStore(f"try-{attempt}", store),
                                   rank=int(os.environ["RANK"]),
                                   world_size=int(os.environ["WORLD_SIZE"]))
    rank = distributed.get_rank()
    torch.manual_seed(1)
    layers = [torch.nn.Conv2d(1, 16, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
              torch.nn.Conv2d(16, 32, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
              torch.nn.Flatten(), torch.nn.Linear(800, 64), torch.nn.ReLU(),
              torch.nn.Linear(64, 10)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images, labels = torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,))
    with open(f"{sys.argv[1]}/rank-{rank}", "a", buffering=1) as log:
        log.write(f"{time.time()} start {os.getpid()}\n")
        while True:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(images), labels).backward()
            optimizer.step()
            log.write(f"{time.time()} step {os.getpid()}\n")


main()
