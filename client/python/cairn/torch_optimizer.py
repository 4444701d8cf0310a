"""A torch.optim.Optimizer as a job's optimizer: the same update on the servers, or a refusal by name.

| of PyTorch | in the job |
|---|---|
| SGD: momentum, nesterov | sgd, the same |
| Adam, AdamW: betas, eps, amsgrad | adam, adamw: beta_1, beta_2, epsilon with corrected_epsilon, amsgrad |
| AdamW: weight_decay | adamw.weight_decay; a group with 0 is left out by the names of its parameters |
| SGD, Adam: weight_decay | an L2 regularizer of half of it on each variable, which is the same gradient |
"""

from __future__ import annotations

from typing import Any

import torch

from cairn import arguments

Optimizer = torch.optim.Optimizer

# Arguments that have to be as given here, since there is no counterpart of another value.
_FIXED = {"dampening": 0, "maximize": False, "lr_decay": 0}
_KINDS = ("SGD", "Adam", "AdamW")


def put(spec: Any, optimizer: Any, model: torch.nn.Module) -> None:
    """Sets spec.optimizer and regularizers of spec.model.external. Errors: ValueError, TypeError."""
    kind = type(optimizer)
    if kind.__module__.split(".")[0] != "torch" or kind.__name__ not in _KINDS:
        raise ValueError(
            f"optimizer: {kind.__name__} has no counterpart; give torch.optim's {', '.join(_KINDS)}, or one of Cairn's "
            'as cairn.RMSprop(0.001) or {"rmsprop": {}}'
        )
    if optimizer.state:
        raise ValueError("optimizer: it has made steps, and their state is not taken over; give a new one")
    groups = optimizer.param_groups
    _check_parameters(groups, model)
    same = {key: _common(groups, key) for key in groups[0] if key not in ("params", "weight_decay", "initial_lr")}
    for key, value in _FIXED.items():
        if same.get(key, value) != value:
            raise ValueError(f"optimizer: {key}={same[key]!r} of {kind.__name__} has no counterpart; leave it out")
    spec.optimizer.learning_rate = float(same["lr"])
    if kind.__name__ == "SGD":
        spec.optimizer.sgd.momentum = float(same["momentum"])
        spec.optimizer.sgd.nesterov = bool(same["nesterov"])
    else:
        to = spec.optimizer.adam if kind.__name__ == "Adam" else spec.optimizer.adamw
        to.beta_1, to.beta_2 = (float(beta) for beta in same["betas"])
        to.epsilon, to.amsgrad = float(same["eps"]), bool(same["amsgrad"])
        to.corrected_epsilon = True
    if kind.__name__ == "AdamW":
        _put_decoupled(spec, groups, model)
    else:
        _put_l2(spec, groups, model)


def _common(groups: list[dict[str, Any]], key: str) -> Any:
    values = [group[key] for group in groups]
    for value in values:
        if value != values[0]:
            raise ValueError(
                f"optimizer: its groups have {key}={values[0]!r} and {key}={value!r}; a job has one for all variables"
            )
    return values[0]


def _check_parameters(groups: list[dict[str, Any]], model: torch.nn.Module) -> None:
    given = {id(parameter) for group in groups for parameter in group["params"]}
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    if given - set(names):
        raise ValueError("optimizer: it has parameters that are not the model's; give it model.parameters()")
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and id(parameter) not in given:
            raise ValueError(f"optimizer: it lacks the parameter {name!r}; give it, or set its requires_grad to False")


def _decays(groups: list[dict[str, Any]], model: torch.nn.Module) -> dict[str, float]:
    """By name, of the parameters that are trained."""
    of = {id(parameter): float(group["weight_decay"]) for group in groups for parameter in group["params"]}
    return {name: of[id(p)] for name, p in model.named_parameters() if p.requires_grad}


def _put_l2(spec: Any, groups: list[dict[str, Any]], model: torch.nn.Module) -> None:
    decays = _decays(groups, model)
    for variable in spec.model.external.variables:
        if decays.get(variable.name):
            variable.regularizer.l2 = decays[variable.name] / 2


def _put_decoupled(spec: Any, groups: list[dict[str, Any]], model: torch.nn.Module) -> None:
    decays = _decays(groups, model)
    above = sorted({decay for decay in decays.values() if decay})
    if len(above) > 1:
        raise ValueError(
            f"optimizer: its groups have weight_decay={above[0]:g} and {above[1]:g}; a job of AdamW has one, and groups"
            " with 0"
        )
    spec.optimizer.adamw.weight_decay = above[0] if above else 0.0
    for name, decay in decays.items():
        if decay or not above:
            continue
        spec.optimizer.exclude_from_weight_decay.append(name)  # of every variable whose name holds it
        for other, its in decays.items():
            if its and name in other:
                raise ValueError(
                    f"optimizer: {name!r} has no weight decay, and {other!r} has, whose name holds the other; "
                    "rename one"
                )


def rates(scheduler: Any, optimizer: Any, epochs: int) -> list[float]:
    """The learning rate of each epoch, of a scheduler of torch.optim that steps once an epoch.

    Neither of the two is changed. Errors: TypeError, ValueError.
    """
    if not isinstance(optimizer, Optimizer) or getattr(scheduler, "optimizer", None) is not optimizer:
        raise ValueError("scheduler: is not of the Run's optimizer; give both of torch.optim, one made of the other")
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise ValueError(
            "scheduler: ReduceLROnPlateau follows figures; give set={'callbacks': [{'reduce_lr_on_plateau': {...}}]}"
        )
    # Both as they are, on a parameter of no size: what a scheduler changes is the groups' lr.
    kept = [dict(group) for group in optimizer.param_groups]
    state = scheduler.state_dict()
    state = {key: list(value) if isinstance(value, list) else value for key, value in state.items()}
    called = getattr(optimizer, "_step_count", None)
    found = []
    try:
        optimizer._step_count = 1  # else it warns that the optimizer has not stepped
        for _ in range(epochs):
            found.append(arguments.real("scheduler's rate", optimizer.param_groups[0]["lr"]))
            scheduler.step()
            _check_alone(optimizer.param_groups, kept)
    finally:
        scheduler.load_state_dict(state)
        for group, before in zip(optimizer.param_groups, kept):
            group.update(before)
        optimizer._step_count = called if called is not None else 0
    for epoch, rate in enumerate(found):
        if not rate > 0:
            raise ValueError(f"scheduler: the rate of epoch {epoch} is {rate:g}; give a rate above 0")
    return found


def _check_alone(groups: list[dict[str, Any]], before: list[dict[str, Any]]) -> None:
    for now, then in zip(groups, before):
        if now["lr"] != groups[0]["lr"]:
            raise ValueError("scheduler: gives the groups different rates; a job has one for all variables")
        for key in ("momentum", "betas"):
            if now.get(key) != then.get(key):
                raise ValueError(f"scheduler: changes {key} too; leave that out, as by cycle_momentum=False")
