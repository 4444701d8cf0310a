"""PyTorch models on a Cairn cluster (docs/programs.md).

    run = cairn.torch.Run(
        "lenet", model, torch.nn.functional.cross_entropy, train_set, validation=test_set,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1), batch_size=64, replicas=4, epochs=2,
        figures={"accuracy": cairn.torch.accuracy})
    run.train("host:7070")  # on every machine that is to compute; each may be killed and started again

`Program` and `worker` are what `Run` is made of, for scripts that submit jobs by themselves.
"""

from cairn.torch_program import Program, accuracy, worker
from cairn.torch_run import Run
from cairn.torch_slot import seed_all
from cairn.torch_state import load, save, state_dict
from cairn.torch_variables import variables_of

__all__ = ["Program", "Run", "accuracy", "load", "save", "seed_all", "state_dict", "variables_of", "worker"]
