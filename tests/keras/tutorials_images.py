"""Models with non-label targets, and of volumes and videos, as tutorials build them. Sizes are small; the architectures
are the tutorials'."""

from keras3 import *  # noqa: F401,F403

CLASSES = ("SPARSE_CATEGORICAL_CROSSENTROPY", "classes")
BINARY = ("BINARY_CROSSENTROPY", "binary")
PIXELS = ("SPARSE_CATEGORICAL_CROSSENTROPY", "classes of each position")
MASK = ("BINARY_CROSSENTROPY", "numbers of the output in 0..1")
IMAGE = ("MEAN_SQUARED_ERROR", "numbers of the output")
MODELS = {}


def tutorial(loss=CLASSES):
    def add(function):
        MODELS[function.__name__] = (function, *loss)
        return function

    return add


def conv_bn(x, filters, kernel=3, strides=1, activation="relu", groups=1):
    x = Conv2D(filters, kernel, strides=strides, padding="same", use_bias=False, groups=groups)(x)
    return Activation(activation)(BatchNormalization()(x))


@tutorial(IMAGE)
def convolutional_autoencoder():
    x = Input((28, 28, 1))
    y = MaxPooling2D(2, padding="same")(Conv2D(8, 3, activation="relu", padding="same")(x))
    y = MaxPooling2D(2, padding="same")(Conv2D(8, 3, activation="relu", padding="same")(y))
    y = Conv2DTranspose(8, 3, strides=2, activation="relu", padding="same")(y)
    y = Conv2DTranspose(8, 3, strides=2, activation="relu", padding="same")(y)
    return Model(x, Conv2D(1, 3, activation="sigmoid", padding="same")(y))


@tutorial(IMAGE)
def dense_autoencoder():
    x = Input((28, 28))
    code = Dense(16, "relu")(Flatten()(x))
    return Model(x, Reshape((28, 28))(Dense(784, "sigmoid")(code)))


@tutorial(IMAGE)
def super_resolution():
    x = Input((12, 12, 1))
    y = Conv2D(8, 5, padding="same", activation="relu")(x)
    y = UpSampling2D(2, interpolation="bilinear")(Conv2D(8, 3, padding="same", activation="relu")(y))
    return Model(x, Conv2D(1, 3, padding="same")(y))


@tutorial(IMAGE)
def zero_dce_enhancement():
    x = Input((16, 16, 3))
    a = Conv2D(8, 3, padding="same", activation="relu")(x)
    b = Conv2D(8, 3, padding="same", activation="relu")(a)
    c = Concatenate(axis=-1)([a, b])
    curve = Conv2D(3, 3, padding="same", activation="tanh")(c)
    return Model(x, x + curve * (x * x - x))


@tutorial(IMAGE)
def residual_dense_denoiser():
    x = Input((16, 16, 1))
    a = Conv2D(8, 3, padding="same", activation="relu")(x)
    b = Conv2D(8, 3, padding="same", activation="relu")(a)
    y = Conv2D(1, 1, padding="same")(Concatenate()([a, b]))
    return Model(x, Subtract()([x, y]))


@tutorial(PIXELS)
def oxford_pets_unet_xception():
    x = Input((32, 32, 3))
    y = conv_bn(x, 8, strides=2)
    before = y
    for filters in (16,):
        y = BatchNormalization()(SeparableConv2D(filters, 3, padding="same")(Activation("relu")(y)))
        y = MaxPooling2D(3, strides=[2, 2], padding="same")(y)
        y = Add()([y, Conv2D(filters, 1, strides=2, padding="same")(before)])
        before = y
    for filters in (16, 8):
        y = BatchNormalization()(Conv2DTranspose(filters, 3, padding="same")(Activation("relu")(y)))
        y = UpSampling2D(2)(y)
        y = Add()([y, Conv2D(filters, 1, padding="same")(UpSampling2D(2)(before))])
        before = y
    return Model(x, Conv2D(3, 3, activation="softmax", padding="same")(y))


@tutorial(MASK)
def unet():
    x = Input((32, 32, 1))
    skips, y = [], x
    for filters in (8, 16):
        y = Conv2D(filters, 3, padding="same", activation="relu", kernel_initializer="he_normal")(y)
        skips.append(y)
        y = Dropout(0.1)(MaxPooling2D()(y))
    y = Conv2D(32, 3, padding="same", activation="relu")(y)
    for filters in (16, 8):
        y = Concatenate()([Conv2DTranspose(filters, 2, strides=2, padding="same")(y), skips.pop()])
        y = Conv2D(filters, 3, padding="same", activation="relu")(y)
    return Model(x, Conv2D(1, 1, activation="sigmoid")(y))


@tutorial(PIXELS)
def deeplab_head():
    x = Input((32, 32, 3))
    y = conv_bn(conv_bn(x, 8, strides=2), 16, strides=2)
    pooled = UpSampling2D((8, 8), interpolation="bilinear")(AveragePooling2D([8, 8])(y))
    parts = [Conv2D(8, 1, padding="same")(pooled), Conv2D(8, 1, padding="same")(y)]
    for rate in (2, 3):
        parts.append(Conv2D(8, 3, dilation_rate=rate, padding="same", use_bias=False)(y))
    y = UpSampling2D((4, 4), interpolation="bilinear")(conv_bn(Concatenate(axis=-1)(parts), 8, 1))
    return Model(x, Activation("softmax")(Conv2D(4, 1, padding="same")(y)))


@tutorial(PIXELS)
def fully_convolutional():
    x = Input((32, 32, 3))
    y = MaxPooling2D()(Conv2D(8, 3, padding="same", activation="relu")(x))
    z = MaxPooling2D()(Conv2D(16, 3, padding="same", activation="relu")(y))
    z = Conv2DTranspose(4, 2, strides=2)(Conv2D(4, 1)(z))
    return Model(x, Softmax()(Conv2DTranspose(4, 2, strides=2)(Add()([z, Conv2D(4, 1)(y)]))))


@tutorial(("MEAN_SQUARED_ERROR", "numbers of the output"))
def keypoints():
    x = Input((24, 24, 3))
    y = SeparableConv2D(8, 5, strides=1, activation="relu")(conv_bn(x, 8, strides=2))
    return Model(x, Conv2D(6, 8, activation="sigmoid")(y))


@tutorial(("MEAN_ABSOLUTE_ERROR", "numbers of the output"))
def age_regression():
    x = Input((24, 24, 3))
    y = GlobalMaxPooling2D()(Conv2D(8, 3, activation="relu")(x))
    return Model(x, Dense(1, "softplus")(y))


@tutorial(BINARY)
def ct_scans_3d():
    x = Input((16, 16, 8, 1))
    y = BatchNormalization()(MaxPooling3D(2)(Conv3D(8, 3, activation="relu")(x)))
    y = Dropout(0.3)(Dense(16, "relu")(GlobalAveragePooling3D()(y)))
    return Model(x, Dense(1, "sigmoid")(y))


@tutorial()
def video_2plus1d():
    x = Input((6, 16, 16, 3))
    y = Conv3D(8, (1, 3, 3), padding="same")(x)
    y = ReLU()(BatchNormalization()(Conv3D(8, (3, 1, 1), padding="same")(y)))
    return Model(x, Dense(5)(Flatten()(GlobalAveragePooling3D(keepdims=True)(y))))


MODELS["video_2plus1d"] = (MODELS["video_2plus1d"][0], "SPARSE_CATEGORICAL_CROSSENTROPY from_logits", "classes")


@tutorial(IMAGE)
def volume_autoencoder():
    x = Input((8, 8, 8, 1))
    y = AveragePooling3D(2)(Conv3D(4, 3, padding="same", activation="relu")(x))
    return Model(x, Conv3D(1, 3, padding="same")(UpSampling3D(2)(y)))


@tutorial(IMAGE)
def transposed_volume():
    x = Input((4, 4, 4, 2))
    return Model(x, Conv3DTranspose(1, 2, strides=2)(ZeroPadding3D(1)(Cropping3D(1)(x))))


@tutorial()
def video_of_frames():
    x = Input((4, 16, 16, 3))
    y = TimeDistributed(MaxPooling2D(2))(TimeDistributed(Conv2D(8, 3, activation="relu"))(x))
    return Model(x, Dense(5, "softmax")(LSTM(8)(TimeDistributed(Flatten())(y))))


@tutorial()
def video_by_a_classifier():
    x = Input((4, 16, 16, 3))
    layers = [Input((16, 16, 3)), Conv2D(8, 3, activation="relu"), BatchNormalization(), MaxPooling2D(2)]
    frames = Sequential([*layers, SpatialDropout2D(0.2), GlobalAveragePooling2D()])
    return Model(x, Dense(5, "softmax")(GRU(8)(TimeDistributed(frames)(x))))


@tutorial()
def video_by_a_residual_model():
    image = Input((8, 8, 2))
    y = Conv2D(4, 3, padding="same", activation="relu")(image)
    y = Add()([y, Conv2D(4, 3, padding="same")(y)])
    frames = Model(image, Flatten()(MaxPooling2D(2)(Concatenate()([y, image]))))
    x = Input((4, 8, 8, 2))
    return Model(x, Dense(3, "softmax")(LSTM(8)(Dropout(0.2)(TimeDistributed(frames)(x)))))


@tutorial()
def volumes_step_by_step():
    x = Input((3, 4, 6, 6, 1))
    y = TimeDistributed(MaxPooling3D(2))(TimeDistributed(Conv3D(4, 3, padding="same", activation="relu"))(x))
    return Model(x, Dense(3, "softmax")(LSTM(8)(TimeDistributed(Flatten())(y))))


@tutorial(MASK)
def next_frame_prediction():
    x = Input((4, 12, 12, 1))
    y = BatchNormalization()(ConvLSTM2D(4, 5, padding="same", return_sequences=True, activation="relu")(x))
    y = BatchNormalization()(ConvLSTM2D(4, 3, padding="same", return_sequences=True, activation="relu")(y))
    y = ConvLSTM2D(4, 1, padding="same", return_sequences=True, activation="relu")(y)
    return Model(x, Conv3D(1, 3, activation="sigmoid", padding="same")(y))


@tutorial()
def video_in_both_directions():
    x = Input((4, 8, 8, 2))
    y = Bidirectional(ConvLSTM2D(4, 3, strides=2, dropout=0.1, recurrent_dropout=0.1))(x)
    return Model(x, Dense(3, "softmax")(GlobalAveragePooling2D()(y)))


@tutorial()
def volumes_in_steps():
    x = Input((3, 4, 6, 6, 1))
    y = BatchNormalization()(ConvLSTM3D(3, 3, padding="same", return_sequences=True)(x))
    return Model(x, Dense(3, "softmax")(Flatten()(ConvLSTM3D(2, 2)(y))))


@tutorial(IMAGE)
def rows_of_sensors():
    x = Input((6, 10, 2))
    y = ConvLSTM1D(4, 3, padding="same", return_sequences=True)(x)
    return Model(x, TimeDistributed(Dense(2))(y))


@tutorial()
def siamese_of_one_input():
    x = Input((16, 16, 2))
    tower = Sequential([Input((16, 16, 1)), Conv2D(4, 3, activation="relu"), Flatten(), Dense(8)], name="tower")
    return Model(x, Dense(2, "softmax")(Concatenate()([tower(x[..., :1]), tower(x[..., 1:])])))


@tutorial()
def padded_and_cropped():
    x = Input((18, 18, 1))
    y = Conv2D(4, 3, activation="relu")(ZeroPadding2D(2)(x))
    return Model(x, Dense(3, "softmax")(Flatten()(Cropping2D(4)(y))))


@tutorial()
def attention_gate():
    x = Input((16, 16, 3))
    y = Conv2D(8, 3, padding="same")(x)
    gate = Activation("sigmoid")(Conv2D(1, 1)(Activation("relu")(Add()([Conv2D(4, 1)(y), Conv2D(4, 1)(y)]))))
    return Model(x, Dense(3, "softmax")(GlobalAveragePooling2D()(Multiply()([y, gate]))))


@tutorial()
def spatial_attention_cbam():
    x = Input((16, 16, 3))
    y = Conv2D(8, 3, padding="same", activation="relu")(x)
    mean = Operation("Mean", axis=-1, keepdims=True)(y)
    most = Operation("Max", axis=-1, keepdims=True)(y)
    gate = Conv2D(1, 7, padding="same", activation="sigmoid")(Concatenate()([mean, most]))
    return Model(x, Dense(3, "softmax")(GlobalAveragePooling2D()(y * gate)))


@tutorial()
def bilinear_pooling():
    x = Input((16, 16, 3))
    y = Reshape((196, 6))(Conv2D(6, 3, activation="relu")(x))
    return Model(x, Dense(3, "softmax")(UnitNormalization()(Flatten()(Dot(axes=1)([y, y])))))


@tutorial(("MEAN_SQUARED_ERROR", "numbers of the output"))
def captcha_like_columns():
    x = Input((20, 12, 1))
    y = MaxPooling2D()(Conv2D(8, 3, padding="same", activation="relu")(x))
    y = Dense(8, "relu")(Reshape((10, 48))(y))
    return Model(x, Dense(3)(Bidirectional(LSTM(4, return_sequences=True))(y)))
