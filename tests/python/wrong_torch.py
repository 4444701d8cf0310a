"""Wrong use of cairn.torch, for torch_run_test.py: (what is called, the exception, its whole text). Nothing of it needs
a cluster. FOLDER stands for that of the test."""

import os
import tempfile
from pathlib import Path

import torch

import cairn
import cairn.torch

nn, data = torch.nn, torch.utils.data
LOSS = nn.functional.cross_entropy
SET = data.TensorDataset(torch.zeros(12, 4), torch.zeros(12, dtype=torch.long))
SGD = {"sgd": {}, "learning_rate": 0.1}
FOLDER = tempfile.mkdtemp(prefix="cairn-wrong-")
CUT = Path(FOLDER, "cut.safetensors")
CUT.write_bytes(b"\xff" * 20)


def run(dataset=SET, model=None, optimizer=None, **more):
    return cairn.torch.Run("a", model or nn.Linear(4, 2), LOSS, dataset, optimizer=optimizer or SGD, **more)


def of_torch(make, model=None, **more):
    model = model or nn.Linear(4, 2)
    return run(model=model, optimizer=make(model), **more)


def two_groups(m, one, two, kind=torch.optim.SGD, **more):
    return kind([{"params": [m.weight], **one}, {"params": [m.bias], **two}], lr=0.1, **more)


def used(m):
    optimizer = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
    m(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    return optimizer


def scheduled(make, momentum=0.0):
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
    return run(model=model, optimizer=optimizer, scheduler=make(optimizer), epochs=3)


class Endless(data.IterableDataset):
    def __iter__(self):
        return iter([])


class Changing:
    """Gives fewer examples than it says."""

    def __len__(self):
        return 5

    def __iter__(self):
        return iter(range(4))


schedulers = torch.optim.lr_scheduler
KINDS = (
    "sgd, adagrad, rmsprop, adam, adamw, adadelta, adamax, nadam, ftrl, lion, lamb, adafactor, muon, "
    "schedule_free_adamw"
)
GIVE = "use a map-style one"
RUN = [
    (lambda: run(batch_size=0), ValueError, "batch_size: is 0; give 1 to 2147483647"),
    (lambda: run(epochs="2"), TypeError, "epochs: is a str; give a whole number"),
    (lambda: run(replicas=0), ValueError, "replicas: is 0; give 1 to 2147483647"),
    (lambda: run(seed=-1), ValueError, "seed: is -1; give 0 to 18446744073709551615"),
    (lambda: run(shuffle=1), TypeError, "shuffle: is an int; give True or False"),
    (
        lambda: run(weights=3),
        TypeError,
        "weights: is an int; give True, False, a state_dict, or the path of a file that the workers see",
    ),
    (lambda: run(set={"epoch": 2}), ValueError, 'set[\'epoch\']: JobSpec has no field "epoch"; did you mean "epochs"?'),
    (lambda: run(Endless()), ValueError, f"train: Endless has no __len__ or __getitem__; {GIVE}"),
    (lambda: run(iter([])), ValueError, f"train: list_iterator has no __len__ or __getitem__; {GIVE}"),
    (
        lambda: run(data.DataLoader(SET)),
        ValueError,
        "train: is a DataLoader; give its dataset, and its collate_fn as collate",
    ),
    (lambda: run(validation=Endless()), ValueError, f"validation: Endless has no __len__ or __getitem__; {GIVE}"),
    (
        lambda: run(strategy="ring"),
        ValueError,
        'strategy: "ring" is not one of mirrored, multi_worker_mirrored, parameter_server, central_storage',
    ),
    (
        lambda: cairn.Client("127.0.0.1:1").fit(run(), epochs=2),
        TypeError,
        "fit: epochs goes with a model of Keras; a Run has its own",
    ),
    (
        lambda: cairn.Client("127.0.0.1:1").fit(run(), SET),
        TypeError,
        "fit: data goes with a model of Keras; a Run has its own",
    ),
]
SAMPLER = [
    (lambda: run(sampler=data.DataLoader(SET)), TypeError, "sampler: is a DataLoader; give its sampler"),
    (
        lambda: run(sampler=data.BatchSampler(data.SequentialSampler(SET), 4, False)),
        ValueError,
        "sampler: BatchSampler makes batches, which the job does; give its sampler, and batch_size",
    ),
    (
        lambda: run(sampler=data.DistributedSampler(SET, 2, 0)),
        ValueError,
        "sampler: DistributedSampler shares examples out, which the job does; leave it out",
    ),
    (
        lambda: run(sampler=iter([1])),
        TypeError,
        "sampler: list_iterator has no __len__ or __iter__; give a sampler of torch.utils.data",
    ),
    (lambda: run(sampler=data.SubsetRandomSampler([])), ValueError, "sampler: SubsetRandomSampler gives no examples"),
    (
        lambda: run(sampler=data.SequentialSampler(SET), shuffle=True),
        ValueError,
        "shuffle: goes without a sampler, which has an order of its own; leave one of the two out",
    ),
    (
        lambda: run(sampler=data.SequentialSampler(SET), set={"data.shuffle": True}),
        ValueError,
        "set: data.shuffle does not go with a sampler; leave one of the two out",
    ),
    (
        lambda: run(sampler=data.SequentialSampler(SET), set={"steps_per_epoch": 2}),
        ValueError,
        "set: steps_per_epoch does not go with a sampler; leave one of the two out",
    ),
    (
        lambda: run(sampler=data.SequentialSampler(SET), set={"accumulate_steps": 2}),
        ValueError,
        "set: accumulate_steps does not go with a sampler; leave one of the two out",
    ),
    (
        lambda: run(sampler=Changing()).program.order.examples(0, 0, [0]),
        ValueError,
        "sampler: gave 4 examples in epoch 0, its length is 5",
    ),
]
OPTIMIZER = [
    (
        lambda: of_torch(lambda m: torch.optim.RMSprop(m.parameters())),
        ValueError,
        "optimizer: RMSprop has no counterpart; give torch.optim's SGD, Adam, AdamW, or one of Cairn's as "
        'cairn.RMSprop(0.001) or {"rmsprop": {}}',
    ),
    (
        lambda: of_torch(used),
        ValueError,
        "optimizer: it has made steps, and their state is not taken over; give a new one",
    ),
    (
        lambda: of_torch(lambda m: torch.optim.SGD([m.weight], lr=0.1)),
        ValueError,
        "optimizer: it lacks the parameter 'bias'; give it, or set its requires_grad to False",
    ),
    (
        lambda: of_torch(lambda m: torch.optim.SGD(nn.Linear(4, 2).parameters(), lr=0.1)),
        ValueError,
        "optimizer: it has parameters that are not the model's; give it model.parameters()",
    ),
    (
        lambda: of_torch(lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, dampening=0.5)),
        ValueError,
        "optimizer: dampening=0.5 of SGD has no counterpart; leave it out",
    ),
    (
        lambda: of_torch(lambda m: torch.optim.Adam(m.parameters(), maximize=True)),
        ValueError,
        "optimizer: maximize=True of Adam has no counterpart; leave it out",
    ),
    (
        lambda: of_torch(lambda m: two_groups(m, {}, {"lr": 0.2})),
        ValueError,
        "optimizer: its groups have lr=0.1 and lr=0.2; a job has one for all variables",
    ),
    (
        lambda: of_torch(lambda m: two_groups(m, {"weight_decay": 0.1}, {"weight_decay": 0.2}, torch.optim.AdamW)),
        ValueError,
        "optimizer: its groups have weight_decay=0.1 and 0.2; a job of AdamW has one, and groups with 0",
    ),
    (lambda: run(optimizer="sdg"), ValueError, f'optimizer: "sdg" is not one of {KINDS}'),
    (lambda: cairn.SGD(0.1, momentun=0.9), TypeError, 'SGD: there is no argument "momentun"; did you mean "momentum"?'),
    (lambda: cairn.Adam("fast"), TypeError, "learning_rate: is a str; give a number"),
    (
        lambda: scheduled(lambda o: schedulers.ReduceLROnPlateau(o)),
        ValueError,
        "scheduler: ReduceLROnPlateau follows figures; give set={'callbacks': [{'reduce_lr_on_plateau': {...}}]}",
    ),
    (
        lambda: scheduled(lambda o: schedulers.StepLR(torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1), 1)),
        ValueError,
        "scheduler: is not of the Run's optimizer; give both of torch.optim, one made of the other",
    ),
    (
        lambda: scheduled(lambda o: schedulers.LambdaLR(o, lambda epoch: 1 - epoch)),
        ValueError,
        "scheduler: the rate of epoch 1 is 0; give a rate above 0",
    ),
    (
        lambda: scheduled(lambda o: schedulers.OneCycleLR(o, 1.0, total_steps=9), 0.9),
        ValueError,
        "scheduler: changes momentum too; leave that out, as by cycle_momentum=False",
    ),
]
STATE = [
    (lambda: cairn.torch.state_dict(5), TypeError, "source: is an int; give a job or a path"),
    (
        lambda: cairn.torch.state_dict(FOLDER),
        ValueError,
        "source: FOLDER holds no checkpoint; give the folder that `checkpoints.dir` names",
    ),
    (
        lambda: cairn.torch.state_dict(CUT),
        ValueError,
        "FOLDER/cut.safetensors: is no .safetensors file that can be read: its header is cut off",
    ),
    (lambda: cairn.torch.save(5, f"{FOLDER}/a"), TypeError, "state: is an int; give a state_dict or a model"),
    (lambda: cairn.torch.save({"a": 1}, f"{FOLDER}/a"), TypeError, "state['a']: is an int; give tensors"),
    (
        lambda: cairn.torch.load(nn.Linear(4, 2), {"weight": torch.zeros(2, 4)}),
        ValueError,
        "source: it has no 'bias'; it has weight",
    ),
    (
        lambda: cairn.torch.load(nn.Linear(4, 2), nn.Linear(3, 2).state_dict()),
        ValueError,
        "source: 'weight' has the shape [2, 3], and [2, 4] in the model",
    ),
]


def check_all():
    """How many cases there are. Errors: AssertionError with all that differ."""
    wrong, cases = [], RUN + SAMPLER + OPTIMIZER + STATE
    for call, kind, wanted in cases:
        try:
            got, text = None, f"nothing was raised: {call()!r}"
        except Exception as error:  # whatever is raised is compared
            got, text = type(error), str(error).replace(FOLDER, "FOLDER")
        if got is not kind or text != wanted:
            wrong.append(f"{got}: {text!r}\n  wanted {kind.__name__}: {wanted!r}")
    for path in sorted(Path(FOLDER).iterdir()):
        path.unlink()
    os.rmdir(FOLDER)
    assert not wrong, "\n".join(wrong)
    return len(cases)
