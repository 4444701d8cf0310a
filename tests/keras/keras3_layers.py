"""Keras 3's classes with their positional arguments and the defaults of their get_config()."""


def obj(class_name, config, module):
    return {"module": module, "class_name": class_name, "config": config, "registered_name": None}


def initializer(value):
    if isinstance(value, dict) or value is None:
        return value
    names = {
        "glorot_uniform": ("GlorotUniform", {"seed": None}),
        "he_normal": ("HeNormal", {"seed": None}),
        "zeros": ("Zeros", {}),
        "ones": ("Ones", {}),
        "uniform": ("RandomUniform", {"seed": None, "minval": -0.05, "maxval": 0.05}),
        "orthogonal": ("Orthogonal", {"seed": None, "gain": 1.0}),
        "random_normal": ("RandomNormal", {"seed": None, "mean": 0.0, "stddev": 0.05}),
    }
    class_name, config = names[value]
    return obj(class_name, config, "keras.initializers")


def l2(value):
    return obj("L2", {"l2": value}, "keras.regularizers")


def max_norm(value):
    return obj("MaxNorm", {"max_value": value, "axis": 0}, "keras.constraints")


def orthogonal_regularizer(factor=0.01, mode="rows"):
    return obj("OrthogonalRegularizer", {"factor": factor, "mode": mode}, "keras.regularizers")


def l1(value):
    return obj("L1", {"l1": value}, "keras.regularizers")


def constraint(class_name, **config):
    return obj(class_name, config, "keras.constraints")


KERNEL = {
    "use_bias": True,
    "kernel_initializer": "glorot_uniform",
    "bias_initializer": "zeros",
    "kernel_regularizer": None,
    "bias_regularizer": None,
    "activity_regularizer": None,
    "kernel_constraint": None,
    "bias_constraint": None,
}
RECURRENT = {
    **KERNEL,
    "recurrent_initializer": "orthogonal",
    "recurrent_regularizer": None,
    "recurrent_constraint": None,
    "dropout": 0.0,
    "recurrent_dropout": 0.0,
    "return_sequences": False,
    "return_state": False,
    "go_backwards": False,
    "stateful": False,
    "unroll": False,
    "zero_output_for_mask": False,
    "seed": None,
}


def conv(rank):
    one = [1] * rank
    return (
        ("filters", "kernel_size", "strides", "padding"),
        {
            "strides": one,
            "padding": "valid",
            "data_format": "channels_last",
            "dilation_rate": one,
            "groups": 1,
            "activation": "linear",
            **KERNEL,
        },
    )


def conv_lstm(rank):
    arguments, config = conv(rank)
    del config["groups"]
    more = {"activation": "tanh", "recurrent_activation": "sigmoid", "unit_forget_bias": True, **RECURRENT}
    return arguments, {**config, **more}


def depthwise(rank):
    arguments, config = conv(rank)
    config = {k: v for k, v in config.items() if not k.startswith("kernel_")}
    more = {"depth_multiplier": 1, "depthwise_initializer": "glorot_uniform"}
    more.update({"depthwise_regularizer": None, "depthwise_constraint": None})
    return arguments[1:], {**config, **more}


def separable(rank):
    _, config = depthwise(rank)
    more = {"pointwise_initializer": "glorot_uniform", "pointwise_regularizer": None, "pointwise_constraint": None}
    return ("filters", "kernel_size", "strides", "padding"), {**config, **more}


def transposed(rank):
    arguments, config = conv(rank)
    return arguments, {**{k: v for k, v in config.items() if k != "groups"}, "output_padding": None}


def pool(rank):
    two = [2] * rank
    return (
        ("pool_size", "strides", "padding"),
        {"pool_size": two, "padding": "valid", "strides": None, "data_format": "channels_last"},
    )


GLOBAL = ((), {"data_format": "channels_last", "keepdims": False})
NORM = {"center": True, "scale": True, "beta_initializer": "zeros", "gamma_initializer": "ones"}
NORM.update({f"{v}_{k}": None for v in ("beta", "gamma") for k in ("regularizer", "constraint")})
CLASSES = {
    "Dense": (("units", "activation"), {"activation": "linear", **KERNEL}),
    "EinsumDense": (("equation", "output_shape", "bias_axes"), {"activation": "linear", **KERNEL}),
    "Conv1D": conv(1),
    "Conv2D": conv(2),
    "Conv3D": conv(3),
    "DepthwiseConv1D": depthwise(1),
    "DepthwiseConv2D": depthwise(2),
    "SeparableConv1D": separable(1),
    "SeparableConv2D": separable(2),
    "Conv1DTranspose": transposed(1),
    "Conv2DTranspose": transposed(2),
    "Conv3DTranspose": transposed(3),
    "MaxPooling1D": pool(1),
    "MaxPooling2D": pool(2),
    "MaxPooling3D": pool(3),
    "AveragePooling1D": pool(1),
    "AveragePooling2D": pool(2),
    "AveragePooling3D": pool(3),
    **{f"Global{kind}Pooling{rank}D": GLOBAL for kind in ("Max", "Average") for rank in (1, 2, 3)},
    "ZeroPadding1D": (("padding",), {"padding": 1}),
    "ZeroPadding2D": (("padding",), {"padding": [[1, 1], [1, 1]], "data_format": "channels_last"}),
    "ZeroPadding3D": (("padding",), {"padding": [[1, 1]] * 3, "data_format": "channels_last"}),
    "Cropping1D": (("cropping",), {"cropping": [1, 1]}),
    "Cropping2D": (("cropping",), {"cropping": [[0, 0], [0, 0]], "data_format": "channels_last"}),
    "Cropping3D": (("cropping",), {"cropping": [[1, 1]] * 3, "data_format": "channels_last"}),
    "UpSampling1D": (("size",), {"size": 2}),
    "UpSampling2D": (("size",), {"size": [2, 2], "data_format": "channels_last", "interpolation": "nearest"}),
    "UpSampling3D": (("size",), {"size": [2, 2, 2], "data_format": "channels_last"}),
    "Flatten": ((), {"data_format": "channels_last"}),
    "Reshape": (("target_shape",), {}),
    "Permute": (("dims",), {}),
    "RepeatVector": (("n",), {}),
    "Dropout": (("rate",), {"seed": None, "noise_shape": None}),
    "SpatialDropout1D": (("rate",), {"seed": None}),
    "SpatialDropout2D": (("rate",), {"seed": None, "data_format": "channels_last"}),
    "GaussianNoise": (("stddev",), {"seed": None}),
    "GaussianDropout": (("rate",), {"seed": None}),
    "AlphaDropout": (("rate",), {"seed": None, "noise_shape": None}),
    "ActivityRegularization": ((), {"l1": 0.0, "l2": 0.0}),
    "Activation": (("activation",), {}),
    "ReLU": (("max_value",), {"max_value": None, "negative_slope": 0.0, "threshold": 0.0}),
    "LeakyReLU": (("negative_slope",), {"negative_slope": 0.3}),
    "ELU": (("alpha",), {"alpha": 1.0}),
    "Softmax": (("axis",), {"axis": -1}),
    "PReLU": (
        (),
        {"alpha_initializer": "zeros", "alpha_regularizer": None, "alpha_constraint": None, "shared_axes": None},
    ),
    "BatchNormalization": (
        (),
        {
            "axis": -1,
            "momentum": 0.99,
            "epsilon": 0.001,
            **NORM,
            "moving_mean_initializer": "zeros",
            "moving_variance_initializer": "ones",
            "synchronized": False,
        },
    ),
    "LayerNormalization": ((), {"axis": -1, "epsilon": 0.001, **NORM}),
    "GroupNormalization": (("groups",), {"groups": 32, "axis": -1, "epsilon": 0.001, **NORM}),
    "RMSNormalization": ((), {"axis": -1, "epsilon": 1e-06}),
    "UnitNormalization": ((), {"axis": -1}),
    "Normalization": ((), {"axis": [-1], "invert": False, "mean": None, "variance": None}),
    "Rescaling": (("scale", "offset"), {"offset": 0.0}),
    "Resizing": (
        ("height", "width"),
        {
            "interpolation": "bilinear",
            "crop_to_aspect_ratio": False,
            "pad_to_aspect_ratio": False,
            "fill_mode": "constant",
            "fill_value": 0.0,
            "antialias": False,
            "data_format": "channels_last",
        },
    ),
    "CenterCrop": (("height", "width"), {"data_format": "channels_last"}),
    "Embedding": (
        ("input_dim", "output_dim"),
        {
            "embeddings_initializer": "uniform",
            "embeddings_regularizer": None,
            "activity_regularizer": None,
            "embeddings_constraint": None,
            "mask_zero": False,
        },
    ),
    "Masking": (("mask_value",), {"mask_value": 0.0}),
    "Discretization": (
        ("bin_boundaries",),
        {"bin_boundaries": None, "num_bins": None, "epsilon": 0.01, "output_mode": "int", "sparse": False},
    ),
    "CategoryEncoding": (("num_tokens", "output_mode"), {"output_mode": "multi_hot", "sparse": False}),
    "Hashing": (("num_bins",), {"salt": None, "mask_value": None, "output_mode": "int", "sparse": False}),
    "HashedCrossing": (("num_bins",), {"output_mode": "int", "sparse": False}),
    "IntegerLookup": (
        (),
        {
            "invert": False,
            "max_tokens": None,
            "num_oov_indices": 1,
            "oov_token": -1,
            "mask_token": None,
            "output_mode": "int",
            "sparse": False,
            "pad_to_max_tokens": False,
            "vocabulary_dtype": "int64",
            "idf_weights": None,
            "vocabulary": None,
            "vocabulary_size": None,
        },
    ),
    "SimpleRNN": (("units",), {"activation": "tanh", **RECURRENT}),
    "LSTM": (
        ("units",),
        {"activation": "tanh", "recurrent_activation": "sigmoid", "unit_forget_bias": True, **RECURRENT},
    ),
    "GRU": (("units",), {"activation": "tanh", "recurrent_activation": "sigmoid", "reset_after": True, **RECURRENT}),
    **{f"ConvLSTM{rank}D": conv_lstm(rank) for rank in (1, 2, 3)},
    "MultiHeadAttention": (
        ("num_heads", "key_dim"),
        {
            "value_dim": None,
            "dropout": 0.0,
            **KERNEL,
            "output_shape": None,
            "attention_axes": None,
            "flash_attention": None,
            "seed": None,
        },
    ),
    "Attention": ((), {"use_scale": False, "score_mode": "dot", "dropout": 0.0, "seed": None}),
    "AdditiveAttention": ((), {"use_scale": True, "dropout": 0.0}),
    **{name: ((), {}) for name in ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum")},
    "Concatenate": (("axis",), {"axis": -1}),
    "Dot": (("axes",), {"normalize": False}),
    "RandomFlip": (("mode",), {"mode": "horizontal_and_vertical", "seed": None, "data_format": "channels_last"}),
    "RandomRotation": (
        ("factor",),
        {
            "fill_mode": "reflect",
            "interpolation": "bilinear",
            "seed": None,
            "fill_value": 0.0,
            "data_format": "channels_last",
        },
    ),
    "RandomZoom": (
        ("height_factor", "width_factor"),
        {
            "width_factor": None,
            "fill_mode": "reflect",
            "interpolation": "bilinear",
            "seed": None,
            "fill_value": 0.0,
            "data_format": "channels_last",
        },
    ),
}
