"""Models of texts, series and sounds, as tutorials build them. Sizes are small; the architectures are the tutorials'.
"""

import keras3
from keras3 import *  # noqa: F401,F403

CLASSES = ("SPARSE_CATEGORICAL_CROSSENTROPY", "classes")
BINARY = ("BINARY_CROSSENTROPY", "binary")
STEPS = ("SPARSE_CATEGORICAL_CROSSENTROPY", "classes of each position")
NUMBERS = ("MEAN_SQUARED_ERROR", "numbers of the output")
MODELS = {}


def tutorial(loss=CLASSES):
    def add(function):
        MODELS[function.__name__] = (function, *loss)
        return function

    return add


def ids(steps=12, name=None):
    return Input((steps,), dtype="int32", name=name)


# ---- recurrent cells in every common form ----


def recurrent(cell, **kwargs):
    def build():
        x = ids()
        return Model(x, Dense(1, "sigmoid")(getattr(keras3, cell)(8, **kwargs)(Embedding(50, 8)(x))))

    return build


for cell in ("SimpleRNN", "LSTM", "GRU"):
    MODELS[f"text_{cell.lower()}"] = (recurrent(cell), *BINARY)
    MODELS[f"text_{cell.lower()}_dropout"] = (recurrent(cell, dropout=0.2, recurrent_dropout=0.2), *BINARY)
    MODELS[f"text_{cell.lower()}_backwards"] = (recurrent(cell, go_backwards=True), *BINARY)
MODELS["text_gru_of_keras_1"] = (recurrent("GRU", reset_after=False, recurrent_activation="hard_sigmoid"), *BINARY)
MODELS["text_lstm_relu"] = (recurrent("LSTM", activation="relu", unit_forget_bias=False), *BINARY)


@tutorial(BINARY)
def imdb_bidirectional_lstm():
    x = ids()
    y = Bidirectional(LSTM(8, return_sequences=True))(Embedding(50, 8)(x))
    return Model(x, Dense(1, "sigmoid")(Bidirectional(LSTM(8))(y)))


@tutorial(BINARY)
def masked_imdb_lstm():
    layers = [ids(), Embedding(50, 8, mask_zero=True), Bidirectional(LSTM(8)), Dense(8, "relu"), Dense(1)]
    return Sequential(layers)


MODELS["masked_imdb_lstm"] = (MODELS["masked_imdb_lstm"][0], "BINARY_CROSSENTROPY from_logits", "binary")


@tutorial(BINARY)
def masked_mean():
    x = ids()
    return Model(x, Dense(1, "sigmoid")(GlobalAveragePooling1D()(Embedding(50, 8, mask_zero=True)(x))))


@tutorial()
def bidirectional_gru_sum():
    x = Input((10, 4))
    return Model(x, Dense(3, "softmax")(Bidirectional(GRU(6), merge_mode="sum")(x)))


@tutorial()
def masked_series():
    return Sequential([Input((10, 4)), Masking(mask_value=0.0), LSTM(8), Dense(3, "softmax")])


@tutorial(BINARY)
def bag_of_words():
    return Sequential([ids(), Embedding(50, 8), GlobalAveragePooling1D(), Dense(8, "relu"), Dense(1, "sigmoid")])


@tutorial(BINARY)
def text_convnet():
    x = ids(20)
    y = Dropout(0.5)(Embedding(50, 8)(x))
    for _ in range(2):
        y = Conv1D(8, 3, padding="valid", activation="relu", strides=1)(y)
    y = Dropout(0.5)(Dense(8, "relu")(GlobalMaxPooling1D()(y)))
    return Model(x, Dense(1, "sigmoid")(y))


@tutorial()
def newsgroups_glove_convnet():
    x = ids(30)
    y = Embedding(60, 8, name="glove")(x)
    y = MaxPooling1D(3)(Conv1D(8, 3, activation="relu")(y))
    y = GlobalMaxPooling1D()(Conv1D(8, 3, activation="relu")(y))
    return Model(x, Dense(20, "softmax")(Dropout(0.5)(Dense(8, "relu")(y))))


@tutorial()
def text_of_several_widths():
    x = ids(20)
    y = SpatialDropout1D(0.2)(Embedding(50, 8)(x))
    parts = [GlobalMaxPooling1D()(Conv1D(4, width, activation="relu")(y)) for width in (2, 3, 4)]
    return Model(x, Dense(3, "softmax")(Concatenate()(parts)))


@tutorial(BINARY)
def transformer_classifier():
    x = ids(16)
    y = Embedding(50, 8)(x)
    a = Dropout(0.1)(MultiHeadAttention(num_heads=2, key_dim=8)(y, y))
    y = LayerNormalization(epsilon=1e-6)(y + a)
    z = Dropout(0.1)(Dense(8)(Dense(16, "relu")(y)))
    y = LayerNormalization(epsilon=1e-6)(y + z)
    return Model(x, Dense(1, "sigmoid")(Dropout(0.1)(GlobalAveragePooling1D()(y))))


@tutorial(STEPS)
def mini_gpt():
    x = ids(16)
    y = Embedding(50, 8)(x)
    y = y + MultiHeadAttention(2, 4)(y, y, use_causal_mask=True)
    y = LayerNormalization(epsilon=1e-6)(y)
    return Model(x, Dense(50, "softmax")(LayerNormalization()(y + Dense(8)(Dense(32, "gelu")(y)))))


@tutorial(STEPS)
def character_lstm():
    x = ids(16)
    return Model(x, Dense(30, "softmax")(LSTM(12, return_sequences=True)(Embedding(30, 8)(x))))


@tutorial()
def next_character_lstm():
    return Sequential([Input((20, 15)), LSTM(16), Dense(15, "softmax")])


@tutorial(STEPS)
def named_entities():
    x = ids(16)
    y = Bidirectional(LSTM(8, return_sequences=True))(Embedding(50, 8, mask_zero=True)(x))
    return Model(x, TimeDistributed(Dense(5, "softmax"))(y))


@tutorial(STEPS)
def addition_rnn():
    layers = [Input((7, 12)), LSTM(16), RepeatVector(4), LSTM(16, return_sequences=True), Dense(12, "softmax")]
    return Sequential(layers)


@tutorial(STEPS)
def dilated_tagger():
    x = ids(16)
    y = Embedding(50, 8)(x)
    for rate in (1, 2, 4):
        y = y + Conv1D(8, 2, padding="causal", dilation_rate=rate, activation="relu")(y)
    return Model(x, Dense(6, "softmax")(y))


@tutorial()
def luong_attention():
    q, v = Input((6, 8)), Input((9, 8))
    y = Attention()([q, v])
    return Model([q, v], Dense(4, "softmax")(Concatenate()([GlobalAveragePooling1D()(q), GlobalAveragePooling1D()(y)])))


@tutorial()
def bahdanau_attention():
    x = Input((9, 8))
    return Model(x, Dense(4, "softmax")(GlobalAveragePooling1D()(AdditiveAttention()([x, x]))))


# ---- series ----


@tutorial(NUMBERS)
def weather_lstm():
    return Sequential([Input((24, 7)), LSTM(16), Dense(1)])


@tutorial(NUMBERS)
def weather_conv_gru():
    return Sequential([Input((24, 7)), Conv1D(8, 4, strides=2, padding="causal", activation="relu"), GRU(8), Dense(1)])


@tutorial(NUMBERS)
def stacked_gru_forecast():
    layers = [Input((24, 7)), GRU(8, return_sequences=True, dropout=0.1), GRU(8, activation="relu"), Dense(3)]
    return Sequential(layers)


@tutorial(NUMBERS)
def wavenet():
    layers = [Input((32, 1))]
    for rate in (1, 2, 4, 8):
        layers.append(Conv1D(8, 2, padding="causal", activation="relu", dilation_rate=rate))
    return Sequential(layers + [Conv1D(1, 1)])


@tutorial()
def series_convnet():
    x = Input((40, 1))
    y = x
    for _ in range(3):
        y = ReLU()(BatchNormalization()(Conv1D(8, 3, padding="same")(y)))
    return Model(x, Dense(2, "softmax")(GlobalAveragePooling1D()(y)))


@tutorial()
def series_transformer():
    x = Input((20, 1))
    y = x
    for _ in range(2):
        z = Dropout(0.25)(MultiHeadAttention(key_dim=8, num_heads=2, dropout=0.25)(y, y))
        y = LayerNormalization(epsilon=1e-6)(z) + y
        z = Conv1D(1, 1)(Dropout(0.25)(Conv1D(4, 1, activation="relu")(y)))
        y = LayerNormalization(epsilon=1e-6)(z) + y
    y = Dropout(0.4)(Dense(16, "relu")(GlobalAveragePooling1D(data_format="channels_last")(y)))
    return Model(x, Dense(2, "softmax")(y))


@tutorial(NUMBERS)
def anomaly_autoencoder():
    layers = [Input((32, 1)), Conv1D(8, 7, padding="same", strides=2, activation="relu"), Dropout(0.2)]
    layers += [Conv1D(4, 7, padding="same", strides=2, activation="relu")]
    layers += [Conv1DTranspose(4, 7, padding="same", strides=2, activation="relu"), Dropout(0.2)]
    layers += [Conv1DTranspose(8, 7, padding="same", strides=2, activation="relu")]
    return Sequential(layers + [Conv1DTranspose(1, 7, padding="same")])


@tutorial(NUMBERS)
def lstm_autoencoder():
    layers = [Input((10, 3)), LSTM(8), RepeatVector(10), LSTM(8, return_sequences=True), TimeDistributed(Dense(3))]
    return Sequential(layers)


@tutorial()
def speaker_resnet():
    x = Input((64, 1))
    y = x
    for filters in (4, 8):
        s = Conv1D(filters, 1, padding="same")(y)
        y = Activation("relu")(Conv1D(filters, 3, padding="same")(y))
        y = MaxPooling1D(2, strides=[2])(Activation("relu")(Add()([Conv1D(filters, 3, padding="same")(y), s])))
    y = Dense(16, "relu")(Flatten()(AveragePooling1D(3, strides=[3])(y)))
    return Model(x, Dense(5, "softmax")(y))


@tutorial()
def keyword_spotting():
    x = Input((32, 10))
    y = SeparableConv1D(8, 3, activation="relu")(ZeroPadding1D(2)(x))
    y = DepthwiseConv1D(3, activation="relu")(Cropping1D(1)(y))
    return Model(x, Dense(6, "softmax")(GlobalMaxPooling1D(keepdims=False)(UpSampling1D(2)(y))))
