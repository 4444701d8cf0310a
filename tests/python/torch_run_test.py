"""Goal: cairn.torch.Run on a local cluster, in this process.

- 100 steps of SGD with momentum, Nesterov's, weight decay and schedulers, over a sampler's order, are within 1e-6 of
  PyTorch's own loop, and of Adam and AdamW within 1e-5. The model has the job's weights afterwards.
- Samplers give each epoch the examples that they give PyTorch, the same in every process.
- A run that has ended is not computed again; Client.fit takes a Run; another one of the same name is refused.
- Weights are written once, however often the job is submitted; `timeout` is for the submission too.
- state_dict out of a job and of a checkpoint, and into a model and a run; autocast; a CUDA device where there is one.
- Wrong use, each with its whole text (wrong_torch.py).
"""

import os
import sys
import tempfile
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../integration"))

try:
    import torch
except ImportError as lacks:
    print(f"skipped: {lacks} (Debian: apt-get install python3-torch)")
    sys.exit(77)

import wrong_torch  # noqa: E402
from cluster import check  # noqa: E402

import cairn  # noqa: E402
import cairn.torch  # noqa: E402
from cairn import torch_run  # noqa: E402
from cairn.client import Client  # noqa: E402

nn = torch.nn
LOSS = nn.functional.cross_entropy
EXAMPLES, BATCH, EPOCHS = 200, 16, 8
STEPS = -(-EXAMPLES // BATCH) * EPOCHS
RELATIVE, RELATIVE_ADAM = 1e-6, 1e-5
QUIET = {"progress": False}


def examples():
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(EXAMPLES, 4, generator=generator)
    return torch.utils.data.TensorDataset(x, (x.sum(dim=1) > 0).long())


DATA = examples()


def mlp():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))


def run_of(name, model, optimizer, **more):
    options = {"batch_size": BATCH, "epochs": EPOCHS, "figures": {"accuracy": cairn.torch.accuracy}}
    return cairn.torch.Run(name, model, LOSS, DATA, optimizer=optimizer, **(options | more))


def loop(order, optimizer, model, scheduler=None):
    """PyTorch's own training over the same batches."""
    x, y = DATA.tensors
    for epoch in range(EPOCHS):
        ids = order.examples(0, epoch * (STEPS // EPOCHS), list(range(EXAMPLES)))
        for begin in range(0, EXAMPLES, BATCH):
            batch = ids[begin : begin + BATCH]
            optimizer.zero_grad()
            LOSS(model(x[batch]), y[batch]).backward()
            optimizer.step()
        if scheduler is not None:
            scheduler.step()


def worst_of(model, other):
    pairs = zip(model.state_dict().values(), other.state_dict().values())
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


def adamw(parameters):
    """With no decay of what has one axis, as language models are trained."""
    every = list(parameters)
    groups = [{"params": [p for p in every if p.dim() > 1]}, {"params": [p for p in every if p.dim() == 1]}]
    groups[1]["weight_decay"] = 0.0
    return torch.optim.AdamW(groups, lr=1e-3, weight_decay=0.1)


# Name -> (optimizer of parameters, scheduler of the optimizer or None)
LIKE_TORCH = {
    "nesterov": (lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-2, nesterov=True), None),
    "steps": (lambda p: torch.optim.SGD(p, lr=0.1), lambda o: torch.optim.lr_scheduler.StepLR(o, 2, 0.5)),
    "cosine": (lambda p: torch.optim.SGD(p, lr=0.1), lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, EPOCHS)),
    "adam": (lambda p: torch.optim.Adam(p, lr=1e-3, eps=1e-3, weight_decay=1e-3), None),
    "adamw": (adamw, None),
}


def check_like_torch(client):
    for name, (make, schedule) in LIKE_TORCH.items():
        model, other = mlp(), mlp()
        optimizer = make(model.parameters())
        scheduler = schedule(optimizer) if schedule else None
        rate = optimizer.param_groups[0]["lr"]
        sampler = torch.utils.data.RandomSampler(DATA)
        run = run_of(name, model, optimizer, scheduler=scheduler, sampler=sampler)
        check(optimizer.param_groups[0]["lr"] == rate, "the optimizer was changed")
        job = run.train(client, **QUIET)
        optimizer = make(other.parameters())
        loop(run.program.order, optimizer, other, schedule(optimizer) if schedule else None)
        worst = worst_of(model, other)
        print(
            f"{name}: after {STEPS} steps at most {worst:.2e} of its tensor's largest from PyTorch's loop", flush=True
        )
        allowed = RELATIVE_ADAM if name.startswith("adam") else RELATIVE
        check(job.status().step == STEPS and worst <= allowed, f"{name}: {job.status().step} steps, {worst}")
        check(job.history["accuracy"][-1] > job.history["accuracy"][0], f"it does not learn: {job.history}")


def check_samplers():
    data = torch.utils.data
    weights = torch.arange(EXAMPLES).double()
    samplers = {
        "subset": data.SubsetRandomSampler(list(range(0, EXAMPLES, 2))),
        "weighted": data.WeightedRandomSampler(weights, 50, generator=torch.Generator()),
        "sequential": data.SequentialSampler(DATA),
    }
    orders = {}
    for name, sampler in samplers.items():
        run = run_of("a", mlp(), cairn.SGD(0.1), sampler=sampler)
        check(run.spec().data.external.examples == len(sampler), f"{name}: {run.spec().data}")
        steps = run.program.order.steps_per_epoch
        ids = list(range(len(sampler)))
        first, second = (run.program.order.examples(7, steps * epoch, ids) for epoch in (0, 1))
        again = run_of("a", mlp(), cairn.SGD(0.1), sampler=sampler).program.order
        check(again.examples(7, steps, ids) == second and again.examples(7, 0, ids) == first, f"{name}: other orders")
        check(again.examples(7, steps - 1, [3]) == [first[3]], f"{name}: another epoch")
        orders[name] = first, second
    check(orders["sequential"][0] == orders["sequential"][1] == list(range(EXAMPLES)), "not in turn")
    check(orders["subset"][0] != orders["subset"][1], "each epoch has the same order")
    check(sorted(orders["subset"][0]) == list(range(0, EXAMPLES, 2)), "not each of the subset once")
    check(sum(orders["weighted"][0]) / 50 > EXAMPLES / 2, "heavy ones are not drawn more often")


def check_state(client, folder):
    model = mlp()
    where = {"checkpoints.dir": f"{folder}/checkpoints"}
    run = run_of("kept", model, cairn.SGD(0.05, momentum=0.9), epochs=2, replicas=2, set=where)
    job = run.train(client, **QUIET)
    check(run.train(client, **QUIET).id == job.id, "it was computed again")
    state = cairn.torch.state_dict(job)
    for other in (cairn.torch.state_dict(f"{folder}/checkpoints"), model.state_dict()):
        check(state.keys() == other.keys() and all(torch.equal(state[n], other[n]) for n in state), "other weights")
    check(worst_of(cairn.torch.load(mlp(), job), model) == 0, "load gives others")
    path = cairn.torch.save(model, f"{folder}/start.safetensors")
    check(worst_of(cairn.torch.load(mlp(), path), model) == 0, "a file gives others")
    further = mlp()
    slow = cairn.SGD(1e-9)
    run_of("further", further, slow, epochs=1, weights=state).train(client, **QUIET)
    check(worst_of(further, model) < RELATIVE, "a run does not begin with the state_dict that it was given")
    from_file = mlp()
    run_of("from-file", from_file, slow, epochs=1, weights=path).train(client, **QUIET)
    check(worst_of(from_file, further) == 0, "a run does not begin with the file that it was given")


def check_fit_and_names(client):
    run = run_of("fitted", mlp(), cairn.Adam(1e-3), epochs=10**6)
    job = client.fit(run)
    check(job.name == "fitted", repr(job))
    other = run_of("fitted", mlp(), cairn.Adam(1e-3), epochs=10**6, batch_size=BATCH // 2)
    try:
        other.train(client, **QUIET)
    except ValueError as error:
        wanted = (
            f'name: job {job.id} "fitted" goes on and is another one: its batch_size is {BATCH}, and '
            f"{BATCH // 2} here; give the run another name, or cancel that job"
        )
        check(str(error) == wanted, f"{error}\nwanted {wanted}")
    else:
        check(False, "two runs of one name")
    twin = run_of("fitted", mlp(), cairn.Adam(1e-3), epochs=10**6)
    check(twin.start(client).id == job.id, "submitted twice")
    twin.stop()
    job.cancel()
    run.stop()
    again = run_of("fitted", mlp(), cairn.Adam(1e-3), epochs=10**6).start(client)
    check(again.id != job.id, "a cancelled run is not submitted anew")
    again.cancel()


class NoWorker:
    def stop(self):
        pass


def check_waits(client):
    """A submission that is repeated writes the weights once; `timeout` is for all that train waits for."""
    real, torch_run.ASK_AGAIN_S = (Client._submit, torch_run.worker, torch_run.ASK_AGAIN_S), 0.01
    try:
        run, tries, written = run_of("again", mlp(), cairn.SGD(0.1), epochs=1), [], []
        write = run._write_weights
        run._write_weights = lambda path: written.append(path) or write(path)

        def away_twice(*args):
            tries.append(args)
            if len(tries) < 3:
                raise cairn.Unreachable("cannot reach the coordinator")
            return real[0](*args)

        Client._submit = away_twice
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            run.train(client, **QUIET)
        Client._submit = real[0]
        check(len(tries) == 3 and len(written) == 1, f"{len(tries)} submissions, weights written to {written}")

        expect_timeout(lambda: run_of("away", mlp(), cairn.SGD(0.1)).train("127.0.0.1:1", timeout=0.1), "cannot reach")

        torch_run.worker = lambda *args, **more: NoWorker()
        with cairn.Client(client.address) as far:
            job = run_of("far", mlp(), cairn.SGD(0.1)).start(far)
            os.unlink(job.status().spec.initial_weights)
            late = run_of("far", nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)), cairn.SGD(0.1))
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                expect_timeout(lambda: late.train(far, timeout=0.1, **QUIET), "has not begun")
            check(any("are not used" in str(w.message) for w in warned), f"{warned}")
            job.cancel()
    finally:
        Client._submit, torch_run.worker, torch_run.ASK_AGAIN_S = real


def expect_timeout(call, text):
    try:
        call()
    except TimeoutError as error:
        check(str(error).startswith("timeout: ") and text in str(error), str(error))
    else:
        check(False, f"no TimeoutError with {text!r}")


def check_autocast_and_cuda(client):
    model = mlp()
    options = {"epochs": 3, "autocast": torch.bfloat16}
    job = run_of("half", model, cairn.SGD(0.1), **options).train(client, **QUIET)
    check(job.history["loss"][-1] < job.history["loss"][0], f"it does not learn under autocast: {job.history}")
    if not torch.cuda.is_available():
        print("cuda: skipped, PyTorch has no CUDA device here", flush=True)
        return
    job = run_of("cuda", mlp(), cairn.SGD(0.1), epochs=3, device="cuda").train(client, **QUIET)
    check(job.history["loss"][-1] < job.history["loss"][0], f"it does not learn on CUDA: {job.history}")


def main():
    os.environ.pop("CAIRN_COORDINATOR", None)
    torch.set_num_threads(1)
    print(f"{wrong_torch.check_all()} cases of wrong use", flush=True)
    check_samplers()
    with tempfile.TemporaryDirectory() as folder, cairn.Client() as client:
        check_like_torch(client)
        check_state(client, folder)
        check_fit_and_names(client)
        check_waits(client)
        check_autocast_and_cuda(client)


if __name__ == "__main__":
    main()
    print("ok")
