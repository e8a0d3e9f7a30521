"""AdamW on the host's cores beside a triad in the same run, and beside PyTorch's fused one where it is installed."""

import os
import re
import time

from rows import last_lines, run


def compared(setup, _):
    program = setup.build / "bin" / "cpu_adamw"
    if not program.exists():
        return {"failed": f"{program} is missing; tools/build makes it"}
    cores, millions = len(os.sched_getaffinity(0)), 4 if setup.small else 256
    text, code, _ = run([program, cores, millions], setup.limit())
    if code:
        return {"failed": last_lines(text)}
    triad = float(re.search(r"triad ([\d.]+) GB/s", text)[1])
    found = re.findall(r"^(.+?) +([\d.]+) Gparam/s +(\d+) B each +([\d.]+) GB/s", text, re.M)
    lines = [line(name, float(rate), int(each), triad) for name, rate, each, _ in found]
    return {"cores": cores, "triad_gb_per_second": triad, "formats": lines + torch_lines(millions, cores, triad)}


def line(name, gparams, each, triad):
    return {"format": name, "gparams_per_second": gparams, "bytes_each": each, "of_triad": gparams * each / triad}


def torch_lines(millions, cores, triad):
    try:
        import torch
    except ImportError:
        return []
    torch.set_num_threads(cores)
    parameter = torch.zeros(millions << 20, requires_grad=True)
    parameter.grad = torch.ones_like(parameter)
    optimizer = torch.optim.AdamW([parameter], fused=True)
    seconds = min(step_seconds(optimizer) for _ in range(6))
    return [line(f"PyTorch {torch.__version__} fused, fp32", (millions << 20) / seconds / 1e9, 28, triad)]


def step_seconds(optimizer):
    begin = time.perf_counter()
    optimizer.step()
    return time.perf_counter() - begin
