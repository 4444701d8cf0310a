"""Models of tables, of several inputs and outputs, and variants of one idea, as tutorials build them. Sizes are small;
the architectures are the tutorials'."""

import keras3
from keras3 import *  # noqa: F401,F403

CLASSES = ("SPARSE_CATEGORICAL_CROSSENTROPY", "classes")
BINARY = ("BINARY_CROSSENTROPY", "binary")
NUMBERS = ("MEAN_SQUARED_ERROR", "numbers of the output")
MODELS = {}


def tutorial(loss=CLASSES):
    def add(function):
        MODELS[function.__name__] = (function, *loss)
        return function

    return add


def ids(steps=12, name=None):
    return Input((steps,), dtype="int32", name=name)


# ---- tables ----


@tutorial(BINARY)
def structured_mlp():
    layers = [Input((9,)), Normalization(mean=[0.5] * 9, variance=[2.0] * 9), Dense(16, "relu"), Dropout(0.5)]
    return Sequential(layers + [Dense(1, "sigmoid")])


@tutorial(NUMBERS)
def boston_housing():
    return Sequential([Input((13,)), Dense(16, "relu"), Dense(16, "relu"), Dense(1)])


@tutorial(NUMBERS)
def fuel_efficiency_linear():
    return Sequential([Input((9,)), Normalization(mean=[1.0] * 9, variance=[4.0] * 9), Dense(1)])


@tutorial(BINARY)
def credit_card_fraud():
    layers = [Input((29,))]
    for _ in range(2):
        layers += [Dense(16, "relu"), Dropout(0.3)]
    return Sequential(layers + [Dense(1, "sigmoid")])


@tutorial()
def wide_and_deep_one_input():
    x = Input((10,))
    deep = x
    for _ in range(2):
        deep = Dropout(0.1)(ReLU()(BatchNormalization()(Dense(16)(deep))))
    return Model(x, Dense(3, "softmax")(concatenate_of([BatchNormalization()(x), deep])))


def concatenate_of(parts):
    return Concatenate()(parts)


@tutorial()
def deep_and_cross():
    x = Input((10,))
    cross = x
    for _ in range(2):
        cross = x * Dense(10)(cross) + cross
    cross = BatchNormalization()(cross)
    deep = Dropout(0.1)(ReLU()(BatchNormalization()(Dense(16)(x))))
    return Model(x, Dense(3, "softmax")(Concatenate()([cross, deep])))


@tutorial()
def gated_residual_network():
    x = Input((10,))
    y = Dense(8, "elu")(x)
    y = Dropout(0.1)(Dense(8)(y))
    y = Dense(8)(y) * Dense(8, "sigmoid")(y)
    return Model(x, Dense(3, "softmax")(LayerNormalization()(Dense(8)(x) + y)))


@tutorial(NUMBERS)
def quantities_with_operations():
    x = Input((6,))
    y = Dense(4, "softplus")(x)
    total = Operation("Sum", axis=-1, keepdims=True)(y)
    return Model(x, Concatenate()([y / total, 1.0 - y, -y, 2.0 * y]))


@tutorial(NUMBERS)
def sliced_features():
    x = Input((8,))
    a, b = x[:, :3], x[:, 3:]
    return Model(x, Dense(2)(Concatenate()([Dense(4, "relu")(a), Dense(4, "tanh")(b)])))


@tutorial(("POISSON", "numbers of the output"))
def poisson_counts():
    return Sequential([Input((6,)), Dense(8, "relu"), Dense(1, "exponential")])


@tutorial(("HUBER", "numbers of the output"))
def robust_regression():
    return Sequential([Input((6,)), Dense(8, "relu", kernel_regularizer=l2(0.001)), Dense(1)])


# ---- several inputs, several outputs, layers used twice ----


@tutorial(NUMBERS)
def matrix_factorization():
    user, item = Input((1,), dtype="int32", name="user"), Input((1,), dtype="int32", name="item")
    vectors = [Flatten()(Embedding(20, 4)(x)) for x in (user, item)]
    biases = [Flatten()(Embedding(20, 1)(x)) for x in (user, item)]
    return Model([user, item], Add()([Dot(axes=1)(vectors), *biases]))


@tutorial(BINARY)
def neural_collaborative_filtering():
    user, item = Input((1,), dtype="int32", name="user"), Input((1,), dtype="int32", name="item")
    y = Concatenate()([Flatten()(Embedding(20, 4)(user)), Flatten()(Embedding(30, 4)(item))])
    return Model([user, item], Dense(1, "sigmoid")(Dense(8, "relu")(y)))


@tutorial()
def two_inputs():
    a, b = Input((6,), name="a"), Input((4,), name="b")
    y = Concatenate()([Dense(8, "relu")(a), b])
    return Model([a, b], Dense(3, "softmax")(y))


@tutorial(BINARY)
def two_texts_one_embedding():
    a, b = ids(6, "first"), ids(6, "second")
    shared = Embedding(40, 8)
    y = Concatenate()([GlobalAveragePooling1D()(shared(a)), GlobalAveragePooling1D()(shared(b))])
    return Model([a, b], Dense(1, "sigmoid")(y))


@tutorial(BINARY)
def siamese_lstm():
    a, b = Input((6, 4), name="left"), Input((6, 4), name="right")
    tower = LSTM(6)
    return Model([a, b], Dense(1, "sigmoid")(Operation("Absolute")(tower(a) - tower(b))))


@tutorial()
def image_and_table():
    picture, table = Input((12, 12, 1), name="picture"), Input((5,), name="table")
    y = GlobalMaxPooling2D()(Conv2D(8, 3, activation="relu")(picture))
    return Model([picture, table], Dense(4, "softmax")(Concatenate()([y, Dense(4, "relu")(table)])))


@tutorial(("MEAN_SQUARED_ERROR", "two outputs"))
def two_outputs():
    x = Input((8,))
    y = Dense(8, "relu")(x)
    return Model(x, [Dense(1, name="price")(y), Dense(2, name="place")(y)])


@tutorial(("MEAN_SQUARED_ERROR", "two outputs"))
def auxiliary_output():
    main, more = Input((8,), name="main_input"), Input((3,), name="aux_input")
    y = Dense(8, "relu")(main)
    return Model([main, more], [Dense(1, name="main")(Concatenate()([y, more])), Dense(1, name="aux")(y)])


@tutorial()
def nested_models():
    inner = Sequential([Input((8,)), Dense(8, "relu"), Dense(4)], name="encoder")
    x = Input((8,))
    return Model(x, Dense(3, "softmax")(inner(x)))


@tutorial()
def weights_used_twice():
    x = Input((8,))
    layer = Dense(8, "relu")
    return Model(x, Dense(3, "softmax")(layer(layer(x))))


# ---- variants of one idea ----


# ---- categories ----


@tutorial(BINARY)
def structured_data_from_scratch():
    """Columns of numbers and of codes, each with the suitable layer."""
    age, sex, thal = Input((1,), name="age"), ids(1, "sex"), ids(1, "thal")
    vocabulary = [1, 2, 3, 5, 8]
    parts = [
        Discretization([0.2, 0.4, 0.6, 0.8], output_mode="one_hot")(age),
        Normalization(mean=0.5, variance=0.1)(age),
        CategoryEncoding(num_tokens=12, output_mode="one_hot")(sex),
        IntegerLookup(vocabulary=vocabulary, output_mode="multi_hot", num_oov_indices=2)(thal),
    ]
    x = Dropout(0.5)(Dense(8, "relu")(concatenate_of(parts)))
    return Model([age, sex, thal], Dense(1, "sigmoid")(x))


@tutorial()
def categories_with_embeddings():
    user = ids(1, "user")
    index = IntegerLookup(vocabulary=[2, 3, 5, 7, 11], mask_token=0)(user)
    return Model(user, Dense(3, "softmax")(Flatten()(Embedding(7, 4)(index))))


@tutorial(BINARY)
def hashing_trick():
    """Two columns and their cross, by hashes."""
    a, b = ids(1, "a"), ids(1, "b")
    crossed = HashedCrossing(16, output_mode="one_hot")([a, b])
    salted = CategoryEncoding(8, "one_hot")(Hashing(8, salt=[133, 137])(b))
    parts = [crossed, Hashing(6, mask_value=3, output_mode="one_hot")(a), salted]
    return Model([a, b], Dense(1, "sigmoid")(concatenate_of(parts)))


@tutorial()
def bag_of_tokens():
    tokens = ids(12)
    counts = IntegerLookup(vocabulary=[1, 2, 3, 4], output_mode="tf_idf", idf_weights=[0.5, 0.75, 1.5, 2.0])(tokens)
    return Model(tokens, Dense(3, "softmax")(Dense(8, "relu")(counts)))


@tutorial(NUMBERS)
def buckets_in_embeddings():
    layers = [Input((5,)), Discretization([0.25, 0.5, 0.75]), Embedding(4, 3), GlobalAveragePooling1D(), Dense(1)]
    return Sequential(layers)


def activated(name):
    def build():
        return Sequential([Input((6,)), Dense(8, name), Dense(3, "softmax")])

    return build


for activation in (
    "relu relu6 leaky_relu elu selu gelu silu sigmoid tanh softplus softsign exponential hard_sigmoid hard_silu mish "
    "linear log_sigmoid celu hard_tanh tanh_shrink soft_shrink hard_shrink squareplus"
).split():
    MODELS[f"dense_{activation}"] = (activated(activation), *CLASSES)


def with_loss(units, activation):
    def build():
        return Sequential([Input((6,)), Dense(8, "relu"), Dense(units, activation)])

    return build


for loss, units, activation in (
    ("MEAN_ABSOLUTE_ERROR", 2, "linear"),
    ("MEAN_ABSOLUTE_PERCENTAGE_ERROR", 2, "softplus"),
    ("MEAN_SQUARED_LOGARITHMIC_ERROR", 2, "softplus"),
    ("LOG_COSH", 2, "linear"),
    ("HINGE", 1, "tanh"),
    ("SQUARED_HINGE", 1, "tanh"),
    ("COSINE_SIMILARITY", 4, "linear"),
    ("KL_DIVERGENCE", 3, "softmax"),
    ("BINARY_FOCAL_CROSSENTROPY", 1, "sigmoid"),
    ("CATEGORICAL_CROSSENTROPY", 3, "softmax"),
):
    target = {"CATEGORICAL_CROSSENTROPY": "classes", "BINARY_FOCAL_CROSSENTROPY": "binary", "HINGE": "signs"}
    target["SQUARED_HINGE"] = "signs"
    kind = target.get(loss, "numbers of the output in 0..1")
    MODELS[f"loss_{loss.lower()}"] = (with_loss(units, activation), loss, kind)


def merged(kind):
    def build():
        x = Input((6,))
        return Model(x, Dense(3, "softmax")(getattr(keras3, kind)()([Dense(4)(x), Dense(4, "relu")(x)])))

    return build


for kind in ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum"):
    MODELS[f"merge_{kind.lower()}"] = (merged(kind), *CLASSES)


# ---- penalties on weights and activities ----


@tutorial()
def sparse_autoencoder_features():
    """keras.io's autoencoders: a code that is mostly zero."""
    x = Input((8,))
    code = Dense(16, "relu", activity_regularizer=l1(1e-4))(x)
    return Model(x, Dense(3, "softmax")(ActivityRegularization(l2=1e-3)(Dense(8, "tanh")(code))))


@tutorial()
def weights_without_a_sign():
    x = Input((8,))
    kwargs = {"kernel_constraint": constraint("NonNeg"), "bias_constraint": constraint("NonNeg")}
    return Model(x, Dense(3, "softmax", **kwargs)(Dense(8, "relu", **kwargs)(x)))


@tutorial()
def weights_of_norms():
    x = Input((8,))
    between = constraint("MinMaxNorm", min_value=0.5, max_value=2.0, rate=0.9, axis=0)
    y = Dense(8, "relu", kernel_constraint=between)(x)
    y = BatchNormalization(gamma_constraint=constraint("NonNeg"))(y)
    return Model(x, Dense(3, "softmax", kernel_constraint=constraint("UnitNorm", axis=[0, 1]))(y))


@tutorial()
def orthogonal_features():
    x = Input((8,))
    y = Dense(6, "relu", kernel_regularizer=orthogonal_regularizer(0.01, "columns"))(x)
    return Model(x, Dense(3, "softmax", kernel_regularizer=orthogonal_regularizer())(y))


# ---- one number an example, without an axis ----


@tutorial()
def columns_without_an_axis():
    """keras.io's structured data: an input for each column, of shape ()."""
    age, place, kind = Input((), name="age"), Input((), "place", "int32"), Input((), "kind", "int32")
    number = Operation("ExpandDims", axis=-1)(age * 0.5)
    known = IntegerLookup(vocabulary=[2, 3, 5, 7], vocabulary_size=5, output_mode="int")(place)
    parts = [number, Embedding(5, 4)(known), CategoryEncoding(12, "one_hot")(kind)]
    return Model([age, place, kind], Dense(3, "softmax")(Dense(8, "relu")(concatenate_of(parts))))


@tutorial(BINARY)
def recommender_of_ids():
    """keras.io's collaborative filtering: user and film are numbers without an axis."""
    user, film = Input((), "user", "int32"), Input((), "film", "int32")
    match = Dot(1)([Embedding(16, 6)(user), Embedding(16, 6)(film)])
    bias = Embedding(16, 1)(user) + Embedding(16, 1)(film)
    return Model([user, film], Activation("sigmoid")(match + bias))


@tutorial()
def softmax_over_a_picture():
    """keras.io's attention maps: weights of all pixels, which sum up to one."""
    x = Input((4, 4, 3))
    y = Conv2D(2, 3, padding="same")(x)
    maps = Softmax([1, 2])(y) + Operation("Softmax", axis=[-3, -2])(y) + Softmax([2, 3])(y)
    return Model(x, Dense(3, "softmax")(Flatten()(maps * y)))
