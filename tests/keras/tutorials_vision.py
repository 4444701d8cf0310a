"""Models that classify pictures, as tutorials build them. Sizes are small; the architectures are the tutorials'."""

from keras3 import *  # noqa: F401,F403

CLASSES = ("SPARSE_CATEGORICAL_CROSSENTROPY", "classes")
BINARY = ("BINARY_CROSSENTROPY", "binary")
MODELS = {}


def tutorial(loss=CLASSES):
    def add(function):
        MODELS[function.__name__] = (function, *loss)
        return function

    return add


def conv_bn(x, filters, kernel=3, strides=1, activation="relu", groups=1):
    x = Conv2D(filters, kernel, strides=strides, padding="same", use_bias=False, groups=groups)(x)
    return Activation(activation)(BatchNormalization()(x))


@tutorial()
def simple_mnist_convnet():
    layers = [Input((28, 28, 1)), Conv2D(32, 3, activation="relu"), MaxPooling2D(2), Conv2D(64, 3, activation="relu")]
    return Sequential(layers + [MaxPooling2D(2), Flatten(), Dropout(0.5), Dense(10, activation="softmax")])


@tutorial()
def mnist_mlp():
    layers = [Input((28, 28, 1)), Flatten(), Dense(64, "relu"), Dropout(0.2), Dense(64, "relu"), Dense(10, "softmax")]
    return Sequential(layers)


@tutorial()
def scaled_in_the_graph():
    x = Input((28, 28, 1))
    y = Conv2D(8, 3, activation="relu")(x / 255.0)
    return Model(x, Dense(10, "softmax")(GlobalMaxPooling2D()(y)))


@tutorial()
def preprocess_input_of_applications():
    x = Input((24, 24, 3))
    y = x[..., ::-1] / 127.5 - 1.0
    return Model(x, Dense(5, "softmax")(GlobalAveragePooling2D()(conv_bn(y, 8))))


@tutorial()
def augmented_flowers():
    x = Input((24, 24, 3))
    y = RandomZoom(0.1)(RandomRotation(0.1)(RandomFlip("horizontal")(x)))
    y = Rescaling(1.0 / 255)(y)
    for filters in (8, 16):
        y = MaxPooling2D()(Conv2D(filters, 3, padding="same", activation="relu")(y))
    return Model(x, Dense(5, "softmax")(Dense(16, "relu")(Flatten()(Dropout(0.2)(y)))))


@tutorial(BINARY)
def cats_vs_dogs_small_xception():
    x = Input((32, 32, 3))
    y = conv_bn(Rescaling(1.0 / 255)(x), 8, strides=2)
    before = y
    for size in (16, 24):
        for _ in range(2):
            y = BatchNormalization()(SeparableConv2D(size, 3, padding="same")(Activation("relu")(y)))
        y = MaxPooling2D(3, strides=[2, 2], padding="same")(y)
        y = Add()([y, Conv2D(size, 1, strides=2, padding="same")(before)])
        before = y
    y = Dropout(0.25)(GlobalAveragePooling2D()(conv_bn(y, 32)))
    return Model(x, Dense(1, "sigmoid")(y))


@tutorial()
def cifar_resnet():
    x = Input((32, 32, 3))
    y = conv_bn(x, 8)
    for filters in (8, 16):
        before = y if filters == 8 else Conv2D(16, 1, strides=2, padding="same")(y)
        y = conv_bn(y, filters, strides=filters // 8)
        y = BatchNormalization()(Conv2D(filters, 3, padding="same")(y))
        y = Activation("relu")(y + before)
    return Model(x, Dense(10, "softmax")(GlobalAveragePooling2D()(y)))


@tutorial()
def preactivation_resnet():
    x = Input((32, 32, 3))
    y = Conv2D(8, 3, padding="same")(x)
    for _ in range(2):
        z = Conv2D(8, 3, padding="same")(ReLU()(BatchNormalization()(y)))
        y = Add()([y, Dropout(0.1)(z)])
    return Model(x, Dense(10, "softmax")(GlobalAveragePooling2D()(y)))


@tutorial()
def resnext_block():
    x = Input((24, 24, 3))
    y = conv_bn(x, 16, 1)
    y = Add()([conv_bn(conv_bn(y, 16, groups=4), 16, 1), y])
    return Model(x, Dense(7, "softmax")(GlobalAveragePooling2D()(y)))


@tutorial()
def squeeze_and_excitation():
    x = Input((24, 24, 3))
    y = conv_bn(x, 16)
    s = GlobalAveragePooling2D(keepdims=True)(y)
    s = Conv2D(16, 1, activation="sigmoid")(Conv2D(4, 1, activation="relu")(s))
    return Model(x, Dense(7, "softmax")(GlobalAveragePooling2D()(Multiply()([y, s]))))


@tutorial()
def squeeze_with_reshape():
    x = Input((24, 24, 3))
    y = conv_bn(x, 16)
    s = Dense(16, "sigmoid")(Dense(4, "relu")(Reshape((1, 1, 16))(GlobalAveragePooling2D()(y))))
    return Model(x, Dense(7, "softmax")(GlobalAveragePooling2D()(y * s)))


@tutorial()
def mobilenet_v3_block():
    x = Input((32, 32, 3))
    y = Activation("hard_silu")(BatchNormalization()(Conv2D(8, 3, strides=2, padding="same", use_bias=False)(x)))
    z = DepthwiseConv2D(3, padding="same", use_bias=False)(Conv2D(16, 1, use_bias=False)(y))
    s = GlobalAveragePooling2D(keepdims=True)(z)
    s = Activation("hard_sigmoid")(Conv2D(16, 1)(ReLU()(Conv2D(4, 1)(s))))
    y = Add()([y, BatchNormalization()(Conv2D(8, 1, use_bias=False)(Multiply()([z, s])))])
    return Model(x, Dense(10, "softmax")(GlobalAveragePooling2D()(y)))


@tutorial()
def efficientnet_block():
    x = Input((32, 32, 3))
    y = conv_bn(x, 8, strides=2, activation="silu")
    z = conv_bn(y, 32, 1, activation="silu")
    z = DepthwiseConv2D(3, padding="same", use_bias=False)(z)
    z = Activation("silu")(BatchNormalization()(z))
    s = Conv2D(32, 1, activation="sigmoid")(Conv2D(2, 1, activation="silu")(GlobalAveragePooling2D(keepdims=True)(z)))
    z = BatchNormalization()(Conv2D(8, 1, use_bias=False)(Multiply()([z, s])))
    z = Dropout(0.2, noise_shape=[None, 1, 1, 1])(z)
    return Model(x, Dense(10, "softmax")(Dropout(0.2)(GlobalAveragePooling2D()(Add()([z, y])))))


@tutorial()
def densenet_block():
    x = Input((24, 24, 3))
    y = conv_bn(x, 8)
    for _ in range(3):
        z = Conv2D(4, 3, padding="same", use_bias=False)(Activation("relu")(BatchNormalization()(y)))
        y = Concatenate()([y, z])
    y = AveragePooling2D(2)(Conv2D(8, 1)(y))
    return Model(x, Dense(10, "softmax")(GlobalAveragePooling2D()(y)))


@tutorial()
def inception_block():
    x = Input((24, 24, 3))
    a = Conv2D(4, 1, padding="same", activation="relu")(x)
    b = Conv2D(4, 3, padding="same", activation="relu")(Conv2D(4, 1, activation="relu")(x))
    c = Conv2D(4, 5, padding="same", activation="relu")(Conv2D(4, 1, activation="relu")(x))
    d = Conv2D(4, 1, activation="relu")(MaxPooling2D(3, strides=[1, 1], padding="same")(x))
    y = Concatenate(axis=-1)([a, b, c, d])
    return Model(x, Dense(10, "softmax")(Dropout(0.4)(GlobalAveragePooling2D()(y))))


@tutorial()
def convmixer():
    x = Input((32, 32, 3))
    y = BatchNormalization()(Activation("gelu")(Conv2D(16, 2, strides=2)(Rescaling(1 / 255)(x))))
    for _ in range(2):
        z = BatchNormalization()(Activation("gelu")(DepthwiseConv2D(5, padding="same")(y)))
        y = BatchNormalization()(Activation("gelu")(Conv2D(16, 1)(Add()([z, y]))))
    return Model(x, Dense(10, "softmax")(GlobalAveragePooling2D()(y)))


@tutorial()
def convnext_block():
    x = Input((32, 32, 3))
    y = LayerNormalization(epsilon=1e-6)(Conv2D(16, 4, strides=4)(x))
    z = LayerNormalization(epsilon=1e-6)(Conv2D(16, 7, padding="same", groups=16)(y))
    z = Dense(16)(Activation("gelu")(Dense(64)(z)))
    return Model(x, Dense(10, "softmax")(LayerNormalization()(GlobalAveragePooling2D()(y + z))))


@tutorial()
def mlp_mixer():
    x = Input((32, 32, 3))
    y = Reshape((16, 24))(Conv2D(24, 8, strides=8)(x))
    z = Permute((2, 1))(LayerNormalization()(y))
    z = Permute((2, 1))(Dense(16)(Dense(32, "gelu")(z)))
    y = y + z
    y = y + Dense(24)(Dense(48, "gelu")(LayerNormalization()(y)))
    return Model(x, Dense(10, "softmax")(GlobalAveragePooling1D()(y)))


@tutorial()
def vision_transformer():
    x = Input((32, 32, 3))
    y = Reshape((16, 24))(Conv2D(24, 8, strides=8, padding="valid")(x))
    for _ in range(2):
        z = LayerNormalization(epsilon=1e-6)(y)
        y = Add()([MultiHeadAttention(num_heads=2, key_dim=12, dropout=0.1)(z, z), y])
        z = LayerNormalization(epsilon=1e-6)(y)
        z = Dropout(0.1)(Dense(24, "gelu")(Dropout(0.1)(Dense(48, "gelu")(z))))
        y = Add()([z, y])
    y = Dropout(0.5)(Flatten()(LayerNormalization(epsilon=1e-6)(y)))
    return Model(x, Dense(10)(y))


MODELS["vision_transformer"] = (
    MODELS["vision_transformer"][0],
    "SPARSE_CATEGORICAL_CROSSENTROPY from_logits",
    "classes",
)


@tutorial()
def compact_convolutional_transformer():
    x = Input((32, 32, 3))
    y = x
    for filters in (8, 16):
        y = MaxPooling2D(3, strides=[2, 2], padding="same")(
            Conv2D(filters, 3, padding="same", use_bias=False, activation="relu", kernel_initializer="he_normal")(y)
        )
    y = Reshape((-1, 16))(y)
    z = LayerNormalization(epsilon=1e-5)(y)
    y = Add()([y, MultiHeadAttention(num_heads=2, key_dim=16, dropout=0.1)(z, z)])
    y = LayerNormalization(epsilon=1e-5)(y)
    weights = Softmax(axis=1)(Dense(1)(y))
    pooled = Reshape((16,))(Permute((2, 1))(Dot(axes=1)([weights, y])))
    return Model(x, Dense(10, "softmax")(pooled))


@tutorial()
def fine_tuned_with_a_frozen_base():
    base_in = Input((24, 24, 3))
    base = Model(base_in, conv_bn(conv_bn(base_in, 8), 16, strides=2), name="base")
    x = Input((24, 24, 3))
    y = base(x, training=False)
    return Model(x, Dense(1, "sigmoid")(Dropout(0.2)(GlobalAveragePooling2D()(y))))


MODELS["fine_tuned_with_a_frozen_base"] = (MODELS["fine_tuned_with_a_frozen_base"][0], *BINARY)


@tutorial()
def normalized_head():
    x = Input((20, 20, 3))
    y = Normalization(mean=[0.5, 0.4, 0.3], variance=[0.1, 0.2, 0.3])(x)
    return Model(x, Dense(4, "softmax")(GlobalAveragePooling2D()(Conv2D(8, 3, activation="relu")(y))))


@tutorial()
def resized_and_cropped():
    x = Input((30, 26, 3))
    y = CenterCrop(16, 16)(Resizing(20, 20)(x))
    return Model(x, Dense(4, "softmax")(GlobalMaxPooling2D()(Conv2D(8, 3, activation="relu")(y))))


@tutorial()
def prelu_and_leaky():
    x = Input((20, 20, 1))
    y = PReLU(shared_axes=[1, 2])(Conv2D(8, 3)(x))
    y = LeakyReLU(negative_slope=0.2)(Conv2D(8, 3)(y))
    return Model(x, Dense(4, "softmax")(Flatten()(ELU()(MaxPooling2D()(y)))))


@tutorial()
def selu_network():
    layers = [Input((20, 20, 1)), Flatten(), Dense(32, "selu"), AlphaDropout(0.1), Dense(32, "selu")]
    return Sequential(layers + [Dense(4, "softmax")])


@tutorial()
def noisy_network():
    layers = [Input((20, 20, 1)), GaussianNoise(0.1), Conv2D(8, 3, activation="relu"), SpatialDropout2D(0.2)]
    return Sequential(layers + [Flatten(), GaussianDropout(0.2), Dense(4, "softmax")])


@tutorial()
def weight_constraints():
    kwargs = {"kernel_constraint": max_norm(3.0), "kernel_regularizer": l2(1e-4)}
    layers = [Input((20, 20, 1)), Conv2D(8, 3, activation="relu", **kwargs), MaxPooling2D(), Flatten()]
    return Sequential(layers + [Dropout(0.5), Dense(4, "softmax", **kwargs)])


@tutorial()
def groups_and_rms():
    x = Input((16, 16, 3))
    y = Activation("relu")(GroupNormalization(4)(Conv2D(8, 3)(x)))
    return Model(x, Dense(4, "softmax")(RMSNormalization()(Dense(8, "mish")(GlobalAveragePooling2D()(y)))))
