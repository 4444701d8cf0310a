"""Objects with the methods and attributes of Keras 3's, for tests without Keras: models (tests/keras/keras3.py writes
their JSON), variables, losses, metrics, optimizers, callbacks.
"""

import os
import sys
import types

import numpy

SOURCE = os.environ.get("CAIRN_SOURCE", os.path.abspath(os.path.join(os.path.dirname(__file__), "../..")))
sys.path.insert(0, os.path.join(SOURCE, "tests/keras"))

import keras3  # noqa: E402


class Variable:
    def __init__(self, path, value):
        self.path, self.name, self.value = path, path.split("/")[-1], value

    def numpy(self):
        return self.value


class Model:
    """Wraps a recorder: layers by to_json(), variables as they are given."""

    def __init__(self, recorded, weights):
        self.recorded = recorded
        self.name = recorded.name
        self.weights = [Variable(path, value) for path, value in weights.items()]

    def to_json(self):
        return self.recorded.to_json()

    def get_weights(self):
        return [variable.value for variable in self.weights]

    def compile(self, optimizer="rmsprop", loss=None, metrics=None, loss_weights=None):
        self.optimizer, self.loss, self.metrics, self.loss_weights = optimizer, loss, metrics, loss_weights
        return self


def small_mlp(inputs=4, hidden=8, classes=3, seed=0):
    """A Sequential model with its weights."""
    keras3.clear_names()
    layers = [
        keras3.Input((inputs,), name="features"),
        keras3.Dense(hidden, activation="relu", name="hidden"),
        keras3.Dense(classes, activation="softmax", name="classes"),
    ]
    random = numpy.random.default_rng(seed)
    weights = {
        "hidden/kernel": random.normal(0, 0.5, (inputs, hidden)).astype(numpy.float32),
        "hidden/bias": numpy.zeros(hidden, numpy.float32),
        "classes/kernel": random.normal(0, 0.5, (hidden, classes)).astype(numpy.float32),
        "classes/bias": numpy.zeros(classes, numpy.float32),
    }
    return Model(keras3.Sequential(layers, name="small mlp"), weights)


def mlp_outputs(weights, x):
    """What small_mlp gives, computed here."""
    hidden = numpy.maximum(x @ weights["hidden/kernel"] + weights["hidden/bias"], 0)
    logits = hidden @ weights["classes/kernel"] + weights["classes/bias"]
    powers = numpy.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def two_ended():
    """A Functional model of two inputs and two outputs."""
    keras3.clear_names()
    a, b = keras3.Input((3,), name="a"), keras3.Input((2,), name="b")
    joined = keras3.Dense(6, activation="relu", name="joined")(keras3.Concatenate(name="concatenated")([a, b]))
    outputs = [keras3.Dense(1, name="price")(joined), keras3.Dense(3, activation="softmax", name="kind")(joined)]
    random = numpy.random.default_rng(1)
    weights = {"joined/kernel": random.normal(0, 0.5, (5, 6)), "joined/bias": numpy.zeros(6)}
    for name, units in (("price", 1), ("kind", 3)):
        weights[f"{name}/kernel"] = random.normal(0, 0.5, (6, units))
        weights[f"{name}/bias"] = numpy.zeros(units)
    return Model(keras3.Model([a, b], outputs, name="two_ended"), weights)


# ---- what compile and fit take ----


class Configured:
    """An object with get_config(), as losses, metrics, optimizers and schedules are."""

    defaults = {}

    def __init__(self, **config):
        self.config = {"name": type(self).__name__.lower(), **self.defaults, **config}

    def get_config(self):
        return dict(self.config)


def configured(class_name, **defaults):
    return type(class_name, (Configured,), {"defaults": defaults})


LOSS = {"reduction": "sum_over_batch_size", "dtype": "float32"}
SparseCategoricalCrossentropy = configured(
    "SparseCategoricalCrossentropy", from_logits=False, ignore_class=None, axis=-1, **LOSS
)
CategoricalCrossentropy = configured("CategoricalCrossentropy", from_logits=False, label_smoothing=0.0, axis=-1, **LOSS)
Huber = configured("Huber", delta=1.0, **LOSS)
CTC = configured("CTC", **LOSS)
Circle = configured("Circle", gamma=80.0, margin=0.4, remove_diagonal=True, **LOSS)

SparseTopKCategoricalAccuracy = configured("SparseTopKCategoricalAccuracy", k=5, dtype="float32")
AUC = configured(
    "AUC",
    num_thresholds=200,
    curve="ROC",
    summation_method="interpolation",
    multi_label=False,
    num_labels=None,
    label_weights=None,
    from_logits=False,
    dtype="float32",
)
Accuracy = configured("Accuracy", dtype="float32")
MeanIoU = configured(
    "MeanIoU", num_classes=2, ignore_class=None, sparse_y_true=True, sparse_y_pred=True, axis=-1, dtype="float32"
)
Precision = configured("Precision", thresholds=None, top_k=None, class_id=None, dtype="float32")

OPTIMIZER = {
    "weight_decay": None,
    "clipnorm": None,
    "global_clipnorm": None,
    "clipvalue": None,
    "use_ema": False,
    "ema_momentum": 0.99,
    "ema_overwrite_frequency": None,
    "loss_scale_factor": None,
    "gradient_accumulation_steps": None,
}
SGD = configured("SGD", learning_rate=0.01, momentum=0.0, nesterov=False, **OPTIMIZER)
Adam = configured("Adam", learning_rate=0.001, beta_1=0.9, beta_2=0.999, epsilon=1e-07, amsgrad=False, **OPTIMIZER)
AdamW = configured(
    "AdamW",
    learning_rate=0.001,
    beta_1=0.9,
    beta_2=0.999,
    epsilon=1e-07,
    amsgrad=False,
    **{**OPTIMIZER, "weight_decay": 0.004},
)
Lamb = configured("Lamb", learning_rate=0.001, beta_1=0.9, beta_2=0.999, epsilon=1e-07, **OPTIMIZER)
Adafactor = configured(
    "Adafactor",
    learning_rate=0.001,
    beta_2_decay=-0.8,
    epsilon_1=1e-30,
    epsilon_2=0.001,
    clip_threshold=1.0,
    relative_step=True,
    **OPTIMIZER,
)
Muon = configured(
    "Muon",
    learning_rate=0.001,
    adam_beta_1=0.9,
    adam_beta_2=0.999,
    epsilon=1e-07,
    exclude_layers=[],
    muon_a=3.4445,
    muon_b=-4.775,
    muon_c=2.0315,
    adam_lr_ratio=1,
    momentum=0.95,
    ns_steps=5,
    nesterov=True,
    exclude_embeddings=True,
    adam_weight_decay=0.004,
    rms_rate=0.2,
    **{**OPTIMIZER, "weight_decay": 0.004},
)
LossScaleOptimizer = configured("LossScaleOptimizer", initial_scale=32768.0, dynamic_growth_steps=2000)
MultiOptimizer = configured("MultiOptimizer", learning_rate=0.001, **OPTIMIZER)
ExponentialDecay = configured("ExponentialDecay", staircase=False)


class Callback:
    """Keeps its arguments as attributes, as Keras' do."""

    defaults = {}

    def __init__(self, **arguments):
        for name, value in {**self.defaults, **arguments}.items():
            setattr(self, name, value)


def callback(class_name, **defaults):
    return type(class_name, (Callback,), {"defaults": defaults})


EarlyStopping = callback(
    "EarlyStopping",
    monitor="val_loss",
    min_delta=0,
    patience=0,
    mode="auto",
    baseline=None,
    restore_best_weights=False,
    start_from_epoch=0,
)
ReduceLROnPlateau = callback(
    "ReduceLROnPlateau",
    monitor="val_loss",
    factor=0.1,
    patience=10,
    mode="auto",
    min_delta=1e-4,
    cooldown=0,
    min_lr=0.0,
)
ModelCheckpoint = callback(
    "ModelCheckpoint",
    monitor="val_loss",
    mode="auto",
    save_best_only=False,
    save_weights_only=False,
    save_freq="epoch",
    best=float("inf"),
)
CSVLogger = callback("CSVLogger", sep=",", append=False)
TensorBoard = callback("TensorBoard", log_dir="logs", histogram_freq=0, write_graph=True, update_freq="epoch")
BackupAndRestore = callback("BackupAndRestore", save_freq="epoch", delete_checkpoint=True)
TerminateOnNaN = callback("TerminateOnNaN")
LearningRateScheduler = callback("LearningRateScheduler")
History = callback("History")
LambdaCallback = callback("LambdaCallback")


# ---- a module like Keras ----


class Sequential(Model):
    """Dense and Flatten layers, with weights of its own."""

    def __init__(self, layers):
        recorded = keras3.Sequential(layers)
        random = numpy.random.default_rng(11)
        weights, size = {}, 0
        for layer in recorded.members:
            if not hasattr(layer, "config"):  # the input
                size = int(numpy.prod(layer.description()["config"]["batch_shape"][1:]))
            elif layer.class_name == "Dense":
                units = layer.config["units"]
                weights[f"{layer.name}/kernel"] = random.normal(0, 0.2, (size, units)).astype(numpy.float32)
                weights[f"{layer.name}/bias"] = numpy.zeros(units, numpy.float32)
                size = units
        super().__init__(recorded, weights)


def module(load_model):
    """What `import keras` gives, as far as examples and the guide need it."""
    keras = types.ModuleType("keras")
    keras.Sequential, keras.Input = Sequential, keras3.Input
    keras.layers = types.SimpleNamespace(Dense=keras3.Dense, Flatten=keras3.Flatten)
    keras.optimizers = types.SimpleNamespace(Adam=Adam)
    keras.callbacks = types.SimpleNamespace(EarlyStopping=EarlyStopping, ReduceLROnPlateau=ReduceLROnPlateau)
    keras.models = types.ModuleType("keras.models")
    keras.models.load_model = load_model
    return keras
