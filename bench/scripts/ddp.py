"""DistributedDataParallel over gloo on fixed pictures in memory. The first worker tells when it
begins and ends, and how many examples a second all of them took after warming up."""

import time

BEGUN = time.time()

import argparse  # noqa: E402

import torch  # noqa: E402
from torch import distributed  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=0.0)
    parser.add_argument("--batch", type=int, default=64, help="of each worker")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    distributed.init_process_group("gloo")
    rank, size = distributed.get_rank(), distributed.get_world_size()
    if rank == 0:
        print(f"begun={BEGUN:.6f}", flush=True)
    layers = [torch.nn.Conv2d(1, 16, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
              torch.nn.Conv2d(16, 32, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
              torch.nn.Flatten(), torch.nn.Linear(800, 64), torch.nn.ReLU(),
              torch.nn.Linear(64, 10)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images = torch.randn(arguments.batch, 1, 28, 28)
    labels = torch.randint(0, 10, (arguments.batch,))

    def step():
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    for _ in range(5):
        step()
    # Whether it is time to end is for the first worker to say: all take as many steps.
    steps, began, goes_on = 0, time.monotonic(), torch.tensor([arguments.seconds > 0])
    while goes_on:
        for _ in range(10):
            loss = step()
        steps += 10
        seconds = time.monotonic() - began
        if rank == 0:
            print(f"step={steps} loss={loss:.4f}", flush=True)
        goes_on = torch.tensor([seconds < arguments.seconds])
        distributed.broadcast(goes_on, 0)
    if rank == 0 and steps:
        print(f"examples_per_second={steps * arguments.batch * size / seconds:.2f}", flush=True)
    distributed.barrier()
    distributed.destroy_process_group()
    if rank == 0:
        print(f"ended={time.time():.6f}", flush=True)


main()
