"""Imports the framework, says its CUDA, and computes on each GPU of the pod."""

import torch

print("pytorch", torch.__version__, "CUDA", torch.version.cuda)
gpus = torch.cuda.device_count()
assert gpus, "no GPU: the pod asks for none, or the driver does not run this CUDA"
for number in range(gpus):
    ones = torch.ones(64, 64, device=f"cuda:{number}")
    assert (ones @ ones).sum().item() == 64**3
    print(number, torch.cuda.get_device_name(number), torch.cuda.get_device_capability(number))
