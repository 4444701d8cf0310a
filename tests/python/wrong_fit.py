"""Wrong use of Client.fit, for wrong_use_test: (what is called with its places, the exception, its text)."""

import keras_like as k
import numpy

X, Y = numpy.zeros((8, 4), numpy.float32), numpy.arange(8) % 3
PATH = "/data"


def model(optimizer="adam", loss="sparse_categorical_crossentropy", **more):
    return k.small_mlp().compile(optimizer, loss, **more)


class Subclassed:
    name = "subclassed"

    def to_json(self):
        raise NotImplementedError


FIT = [
    (lambda p: p.here.fit(5, X, Y), TypeError, "model: is an int; give a model of Keras, which has to_json()"),
    (
        lambda p: p.here.fit(Subclassed(), X, Y),
        ValueError,
        "model: Subclassed cannot be written as JSON; Cairn takes Sequential and Functional models",
    ),
    (
        lambda p: p.here.fit(k.small_mlp(), X, Y),
        ValueError,
        "model: has no optimizer; call model.compile(optimizer=..., loss=...) before fit",
    ),
    (
        lambda p: p.here.fit(model(), X, Y, verbose=2),
        TypeError,
        "fit: verbose has no counterpart in Cairn: job.wait(progress=False) shows nothing",
    ),
    (
        lambda p: p.here.fit(model(), X, Y, epoch=2),
        TypeError,
        'fit: there is no argument "epoch"; did you mean "epochs"?',
    ),
    (lambda p: p.here.fit(model(), X, Y, epochs=0), ValueError, "epochs: is 0; give 1 to 2147483647"),
    (lambda p: p.here.fit(model(), X, Y, epochs=1.5), TypeError, "epochs: is a float; give a whole number"),
    (
        lambda p: p.here.fit(model(), X, Y, strategy="fast"),
        ValueError,
        'strategy: "fast" is not one of mirrored, multi_worker_mirrored, parameter_server, central_storage',
    ),
    (lambda p: p.here.fit(model(), X), ValueError, "y: is missing; give data and y, or data=(x, y)"),
    (lambda p: p.here.fit(model()), TypeError, "data: is missing; give a path, arrays, or a dict of the job's data"),
    (
        lambda p: p.here.fit(model(), iter([])),
        TypeError,
        "data: is a list_iterator; give a path, arrays, or a dict of the job's data",
    ),
    (
        lambda p: p.here.fit(model(), X, Y, validation_split=1.5),
        ValueError,
        "validation_split: is 1.5; give a number of at least 0 and below 1",
    ),
    (
        lambda p: p.here.fit(model(), X, Y, validation_data=X),
        TypeError,
        "validation_data: is a ndarray; give (x, y) or (x, y, sample_weight)",
    ),
    (
        lambda p: p.here.fit(model(), X, Y, validation_data=(X[:, :2], Y)),
        ValueError,
        "validation_data: an example of x has the shape [2], one of the training [4]",
    ),
    (
        lambda p: p.here.fit(model(), PATH, validation_data=(X, Y)),
        ValueError,
        "validation_data: goes with arrays alone; of data that the workers read: validation_split sets examples aside",
    ),
    (
        lambda p: p.here.fit(model(), X, Y, sample_weight=-Y),
        ValueError,
        "sample_weight: has numbers below 0, or that are not finite",
    ),
    (
        lambda p: p.here.fit(model(), X, Y, class_weight=[1, 2]),
        TypeError,
        "class_weight: is a list; give a dict of class numbers and weights",
    ),
    (
        lambda p: p.here.fit(model(), X, Y, weights=3),
        TypeError,
        "weights: is an int; give True, False or the path of a file that the workers see",
    ),
    (
        lambda p: p.here.fit(k.two_ended().compile("sgd", "mse"), {"a": X, "c": X}, Y),
        ValueError,
        'data: "c" is not one of the model\'s a, b',
    ),
    (
        lambda p: p.here.fit(k.two_ended().compile("sgd", {"cost": "mse"}), X, Y),
        ValueError,
        'loss: "cost" is not one of the outputs price, kind',
    ),
    (
        lambda p: p.there.fit(model(), X, Y),
        ValueError,
        "data: arrays are of this process, and the workers of ADDRESS read files; save them where the workers see them"
        ", and give the path",
    ),
    (
        lambda p: p.there.fit(model(), PATH),
        ValueError,
        "weights: the model's weights are of this process, and the workers of ADDRESS read files; give weights=False "
        "to start from new ones, or the path of a file that the workers see",
    ),
    (
        lambda p: p.here.fit(model(loss=lambda y, p: 0), X, Y),
        ValueError,
        "loss: <lambda> is a function of your own; Cairn has Keras' own ones alone",
    ),
    (lambda p: p.here.fit(model(loss=5), X, Y), TypeError, "loss: is an int; give a name or an object of Keras"),
    (
        lambda p: p.here.fit(model(loss=k.Huber(reduction="sum")), X, Y),
        ValueError,
        "loss: Huber(reduction='sum') has no counterpart in Cairn; leave reduction out",
    ),
    (
        lambda p: p.here.fit(model(optimizer=k.MultiOptimizer()), X, Y),
        ValueError,
        "optimizer: MultiOptimizer has no counterpart in Cairn; it has sgd, adagrad, rmsprop, adam, adamw, adadelta, "
        "adamax, nadam, ftrl, lion, lamb, adafactor, muon, schedule_free_adamw",
    ),
    (
        lambda p: p.here.fit(
            model(optimizer={"class_name": "Muon", "config": {"muon_a": 3.4445, "learning_rate": 0.01}}), X, Y
        ),
        ValueError,
        'optimizer: Muon without rms_rate, as in Keras before 3.13, scales its step otherwise; give "muon"',
    ),
    (
        lambda p: p.here.fit(model(optimizer=k.SGD(loss_scale_factor=2.0)), X, Y),
        ValueError,
        "optimizer: SGD(loss_scale_factor=2.0) has no counterpart in Cairn; leave loss_scale_factor out",
    ),
    (
        lambda p: p.here.fit(model(metrics=[k.AUC(multi_label=True)]), X, Y),
        ValueError,
        "metrics[0]: AUC(multi_label=True) has no counterpart in Cairn; leave multi_label out",
    ),
    (
        lambda p: p.here.fit(model(), X, Y, callbacks=[k.LambdaCallback()]),
        ValueError,
        "callbacks[0]: LambdaCallback has no counterpart in Cairn; it has EarlyStopping, ReduceLROnPlateau, "
        "LearningRateScheduler, ModelCheckpoint, BackupAndRestore, CSVLogger, TensorBoard, TerminateOnNaN",
    ),
    (
        lambda p: p.here.fit(model(), X, Y, callbacks=[k.TensorBoard(write_images=True)]),
        ValueError,
        "callbacks[0]: TensorBoard(write_images=True) has no counterpart in Cairn; leave write_images out",
    ),
    (
        lambda p: p.here.fit(model(), X, Y, callbacks=k.EarlyStopping(mode="least")),
        ValueError,
        'callbacks[0].mode: "least" is not one of auto, min, max',
    ),
    (
        lambda p: p.here.fit(model(), X, Y, callbacks=[k.LearningRateScheduler(schedule=lambda e, r: 0)]),
        ValueError,
        "callbacks[0]: LearningRateScheduler's function at epoch 0 is 0; give a rate above 0",
    ),
    (
        lambda p: p.here.fit(model(), X, Y, callbacks=[k.ModelCheckpoint(filepath="/m.keras", save_weights_only=True)]),
        ValueError,
        "callbacks[0]: ModelCheckpoint(save_weights_only=True) writes /m.keras; let it end in .weights.h5",
    ),
]
