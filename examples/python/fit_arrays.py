"""Trains a model of Keras on arrays, with Keras' callbacks, and predicts with it.

    fit_arrays.py [--examples N] [--epochs N]
"""

import argparse

import keras
import numpy

import cairn


def spirals(count, seed=0):
    """Points of three arms, and the arm of each."""
    random = numpy.random.default_rng(seed)
    arm = random.integers(0, 3, count)
    along = random.uniform(0.1, 1, count)
    turn = 4 * along + 2 * numpy.pi / 3 * arm + random.normal(0, 0.1, count)
    return numpy.stack([along * numpy.cos(turn), along * numpy.sin(turn)], axis=1).astype(numpy.float32), arm


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--examples", type=int, default=3000)
    parser.add_argument("--epochs", type=int, default=30)
    flags = parser.parse_args()
    model = keras.Sequential(
        [
            keras.Input((2,)),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(3, activation="softmax"),
        ]
    )
    rate = keras.optimizers.Adam(learning_rate=0.01)
    model.compile(optimizer=rate, loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    x, y = spirals(flags.examples)
    stop = keras.callbacks.EarlyStopping(monitor="val_loss", patience=5)
    with cairn.Client() as client:
        job = client.fit(model, x, y, epochs=flags.epochs, batch_size=64, validation_split=0.2, callbacks=[stop])
        job.wait()
        others, arms = spirals(500, seed=1)
        print("accuracy on others:", job.evaluate(others, arms)["accuracy"])
        print("of predictions:", (job.predict(others).argmax(axis=1) == arms).mean())


if __name__ == "__main__":
    main()
