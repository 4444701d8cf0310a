"""Client.fit on a local cluster: the weights that training begins with are the model's, what comes back predicts the
same as the model computed here, history has Keras' keys; several inputs and outputs, one-hot targets, weights of
examples, callbacks. With Keras where it is installed, and always with objects that have its methods.
"""

import os
import sys
import tempfile

import numpy

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../integration"))

import keras_like as k  # noqa: E402
from cluster import check  # noqa: E402
from keras_files import read_keras, read_safetensors  # noqa: E402

import cairn  # noqa: E402

RANDOM = numpy.random.default_rng(5)
X = RANDOM.normal(size=(400, 4)).astype(numpy.float32)
Y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
ONE_HOT = numpy.eye(3)[Y]


def same(a, b, within=1e-5):
    return a.shape == b.shape and numpy.abs(a - b).max() <= within


def weights_of(job, folder):
    tensors = read_safetensors(job.export(f"{folder}/{job.id}.safetensors"))
    return tensors[0] if isinstance(tensors, tuple) else tensors


def begins_with_the_models_weights(client, folder):
    """A rate that changes nothing that float32 can show: the weights are those that the model had."""
    model = k.small_mlp().compile(k.SGD(learning_rate=1e-30), "sparse_categorical_crossentropy")
    job = client.fit(model, X, Y, batch_size=100)
    job.wait(progress=False)
    for variable in model.weights:
        check(same(weights_of(job, folder)[variable.path], variable.value, 1e-20), variable.path)
    other = client.fit(model, X, Y, batch_size=100, weights=False, seed=3)
    other.wait(progress=False)
    check(not numpy.array_equal(weights_of(other, folder)["hidden/kernel"], model.weights[0].value), "new weights")


def trains(client, folder):
    model = k.small_mlp().compile(k.Adam(learning_rate=0.01), k.SparseCategoricalCrossentropy(), metrics=["accuracy"])
    stop = k.EarlyStopping(monitor="val_loss", patience=50)
    job = client.fit(model, X, Y, epochs=12, batch_size=40, validation_split=0.25, replicas=2, callbacks=[stop])
    job.wait(progress=False)
    check(list(job.history) == ["loss", "accuracy", "val_loss", "val_accuracy"], str(list(job.history)))
    check(all(len(values) == 12 for values in job.history.values()), "a figure an epoch")
    check(job.history["loss"][-1] < job.history["loss"][0], f"it learns: {job.history['loss']}")
    check((job.status().data.train_examples, job.status().data.validation_examples) == (300, 100), "Keras' split")
    weights = weights_of(job, folder)
    outputs = k.mlp_outputs(weights, X)
    check(same(job.predict(X), outputs), "predict and the model computed here")
    accuracy = (outputs.argmax(axis=1) == Y).mean()
    check(abs(job.evaluate(X, Y)["accuracy"] - accuracy) < 0.01, "evaluate and the model computed here")
    check(same(job.predict(X.astype(float).tolist()), outputs), "a list of lists")
    sys.modules["keras"] = keras = k.module(read_keras)
    sys.modules["keras.models"] = keras.models
    try:
        _, loaded = job.load_model()
    finally:
        del sys.modules["keras"], sys.modules["keras.models"]
    check(same(k.mlp_outputs(loaded, X), outputs, 0), "load_model gives other weights")


def validation_at_the_end(client):
    """Arrays of validation are those that are given, and evaluate's figure is the last epoch's."""
    model = k.small_mlp().compile("adam", "categorical_crossentropy", metrics=["categorical_accuracy", "mse"])
    job = client.fit(model, (X, ONE_HOT), epochs=2, validation_data=(X[:90], ONE_HOT[:90]), shuffle=False)
    job.wait(progress=False)
    figures = job.evaluate(X[:90], ONE_HOT[:90])
    names = ["loss", "categorical_accuracy", "mse"]
    check(list(job.history) == names + [f"val_{name}" for name in names], str(list(job.history)))
    for name in names:
        check(abs(figures[name] - job.history[f"val_{name}"][-1]) < 1e-9, f"{name}: {figures}, {job.history}")


def weights_count(client, folder):
    """Examples of weight 0 do not matter: the same bits as with other targets for them."""
    model = k.small_mlp().compile(k.SGD(learning_rate=0.1), "sparse_categorical_crossentropy")
    weight = (numpy.arange(400) % 2).astype(float)
    digests = []
    for targets in (Y, numpy.where(weight > 0, Y, 2 - Y)):
        job = client.fit(model, X, targets, sample_weight=weight, batch_size=100, epochs=2, seed=1)
        job.wait(progress=False)
        digests.append(job.status().digest)
    check(digests[0] == digests[1], f"digests {digests}")
    other = client.fit(model, X, Y, batch_size=100, epochs=2, seed=1)
    other.wait(progress=False)
    check(other.status().digest != digests[0], "the weights change nothing")


def bytes_of_pictures(client):
    """uint8 arrays, also where a picture begins as a JPEG file does."""
    pictures = RANDOM.integers(0, 256, (64, 2, 2, 3), dtype=numpy.uint8)
    pictures[0].reshape(-1)[:4] = [0xFF, 0xD8, 0xFF, 0xE0]
    layers = [k.keras3.Input((2, 2, 3)), k.keras3.Flatten(), k.keras3.Dense(3, activation="softmax", name="classes")]
    model = k.Model(
        k.keras3.Sequential(layers, name="bytes"),
        {"classes/kernel": numpy.full((12, 3), 0.001), "classes/bias": numpy.zeros(3)},
    ).compile(k.SGD(learning_rate=1e-6), "sparse_categorical_crossentropy", ["accuracy"])
    job = client.fit(model, pictures, Y[:64], epochs=1)
    job.wait(progress=False)
    check(same(job.predict(pictures), job.predict(pictures.astype(numpy.float64))), "bytes and numbers")
    check(job.evaluate(pictures, Y[:64]) == job.evaluate(pictures.astype(float), Y[:64]), "figures of both")
    try:
        job.evaluate(pictures + 0.5, Y[:64])
    except ValueError as error:
        check(str(error) == "x: the job was given whole numbers from 0 to 255, and here are others", str(error))


def several_ends(client):
    model = k.two_ended().compile(
        "sgd",
        {"price": "mse", "kind": "sparse_categorical_crossentropy"},
        metrics={"kind": ["accuracy"]},
        loss_weights={"price": 0.5},
    )
    x = {"a": X[:, :3], "b": X[:, 2:]}
    y = {"price": X[:, 0], "kind": Y}
    job = client.fit(model, x, y, epochs=2, validation_data=(x, y), strategy="central_storage", replicas=1)
    job.wait(progress=False)
    wanted = ["loss", "price_loss", "kind_loss", "kind_accuracy"]
    check(list(job.history) == wanted + [f"val_{name}" for name in wanted], str(list(job.history)))
    outputs = job.predict(x)
    check({name: a.shape for name, a in outputs.items()} == {"price": (400, 1), "kind": (400, 3)}, str(outputs))
    check(same(job.predict([x["a"], x["b"]])["kind"], outputs["kind"], 0), "a list in the order of the inputs")
    check(abs(job.evaluate(x, [y["price"], y["kind"]])["loss"] - job.history["val_loss"][-1]) < 1e-9, "evaluate")
    check(
        abs(((outputs["price"][:, 0] - y["price"]) ** 2).mean() - job.evaluate(x, y)["price_loss"]) < 1e-5, "its loss"
    )


def rates(client):
    model = k.small_mlp().compile("sgd", "sparse_categorical_crossentropy")
    halve = k.LearningRateScheduler(schedule=lambda epoch, rate: rate / 2)
    with tempfile.TemporaryDirectory() as folder:
        callbacks = [halve, k.CSVLogger(filename=f"{folder}/log.csv"), k.TerminateOnNaN()]
        job = client.fit(model, X, Y, epochs=3, callbacks=callbacks)
        job.wait(progress=False)
        check(numpy.allclose(job.history["learning_rate"], [0.005, 0.0025, 0.00125]), str(job.history))
        with open(f"{folder}/log.csv", encoding="utf-8") as file:
            check(len(file.readlines()) == 4, "a line an epoch below its head")


def with_keras(client, folder):
    try:
        import keras
    except ImportError:
        print("Keras itself: skipped, it is not installed", flush=True)
        return
    inputs = keras.Input((4,))
    hidden = keras.layers.Dense(8, activation="relu")(inputs)
    functional = keras.Model(inputs, keras.layers.Dense(3, activation="softmax")(hidden))
    layers = [keras.Input((4,)), keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(3, activation="softmax")]
    for model in (functional, keras.Sequential(layers)):
        loss = keras.losses.SparseCategoricalCrossentropy()
        model.compile(optimizer=keras.optimizers.Adam(0.01), loss=loss, metrics=["accuracy"])
        stop = keras.callbacks.EarlyStopping(patience=50)
        job = client.fit(model, X, Y, epochs=3, validation_split=0.25, callbacks=[stop])
        job.wait(progress=False)
        check(list(job.history) == ["loss", "accuracy", "val_loss", "val_accuracy"], str(list(job.history)))
        check(same(numpy.asarray(job.load_model()(X)), job.predict(X)), "load_model predicts other numbers")


def main():
    os.environ.pop("CAIRN_COORDINATOR", None)
    with cairn.Client() as client, tempfile.TemporaryDirectory() as folder:
        begins_with_the_models_weights(client, folder)
        trains(client, folder)
        validation_at_the_end(client)
        weights_count(client, folder)
        bytes_of_pictures(client)
        several_ends(client)
        rates(client)
        with_keras(client, folder)
        check(
            not os.listdir(client._local.data)
            or all(d.startswith(("data-", "weights-")) for d in os.listdir(client._local.data)),
            "files",
        )
        print(f"{len(client.jobs())} jobs: ok", flush=True)


if __name__ == "__main__":
    main()
