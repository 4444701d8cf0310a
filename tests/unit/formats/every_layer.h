// A model with one of every kind of layer that Cairn had when Keras 3.3 and 3.9 wrote it
// (keras_3_3_every_layer.json, keras_3_9_every_layer.json); later ones are in NewerLayers.
#pragma once

#include <string>

namespace cairn {

inline std::string EveryLayer() {
  return R"(
    name: "every"
    layers { name: "image" input { shape: [8, 8, 3] } }
    layers { name: "scale" rescaling { scale: 0.0039215689 offset: -0.5 } }
    layers { name: "conv" conv2d { filters: 4 kernel_size: [3, 1] strides: [1, 1] padding: SAME activation: LEAKY_RELU
             kernel_initializer { kind: HE_NORMAL } bias_initializer { kind: CONSTANT value: 0.1 } } }
    layers { name: "bn" batch_normalization { momentum: 0.9 epsilon: 1.001e-5 scale: false } }
    layers { name: "depthwise" depthwise_conv2d { kernel_size: 3 padding: SAME depth_multiplier: 2 use_bias: false } }
    layers { name: "separable" separable_conv2d { filters: 4 kernel_size: 3 padding: SAME activation: ELU } }
    layers { name: "gn" group_normalization { groups: 2 epsilon: 0.01 } }
    layers { name: "leaky" activation { activation: LEAKY_RELU negative_slope: 0.125 } }
    layers { name: "elu" activation { activation: ELU alpha: 0.5 } }
    layers { name: "relu6" activation { activation: RELU6 } }
    layers { name: "silu" activation { activation: SILU } }
    layers { name: "pool" max_pooling2d { pool_size: 3 strides: 2 padding: SAME } }
    layers { name: "pad" zero_padding2d { padding: [1, 2, 0, 1] } }
    layers { name: "average" average_pooling2d { } }
    layers { name: "up" up_sampling2d { size: [2, 4] interpolation: BILINEAR } }
    layers { name: "transposed" conv2d_transpose { filters: 4 kernel_size: 2 strides: 2 } }
    layers { name: "drop2d" spatial_dropout2d { rate: 0.25 } }
    layers { name: "reshape" reshape { target_shape: [-1, 4] } }
    layers { name: "conv1d" conv1d { filters: 6 kernel_size: 3 strides: 2 padding: SAME dilation_rate: 1 } }
    layers { name: "max1d" max_pooling1d { } }
    layers { name: "average1d" average_pooling1d { pool_size: 2 strides: 1 } }
    layers { name: "ln" layer_normalization { center: false } }
    layers { name: "attention" inputs: ["ln", "ln"] multi_head_attention { num_heads: 2 key_dim: 3 value_dim: 5 dropout: 0.1
             use_causal_mask: true } }
    layers { name: "sum" inputs: ["attention", "ln"] add {} }
    layers { name: "product" inputs: ["sum", "ln"] multiply {} }
    layers { name: "mean" inputs: ["product", "ln"] average {} }
    layers { name: "most" inputs: ["mean", "sum"] maximum {} }
    layers { name: "joined" inputs: ["most", "ln", "attention"] concatenate {} }
    layers { name: "permuted" permute { dims: [2, 1] } }
    layers { name: "global" global_average_pooling1d {} }
    layers { name: "flat" flatten {} }
    layers { name: "drop" dropout { rate: 0.2 } }
    layers { name: "out" dense { units: 3 activation: SOFTMAX kernel_initializer { kind: RANDOM_NORMAL } } })";
}

inline std::string NewerLayers() {
  return R"(
    name: "newer"
    layers { name: "image" input { shape: [8, 8, 3] } }
    layers { name: "crop" cropping2d { cropping: [0, 1, 2, 1] } }
    layers { name: "prelu" prelu { shared_axes: [1, 2] alpha_initializer { kind: CONSTANT value: 0.25 } } }
    layers { name: "rows" reshape { target_shape: [5, 21] } }
    layers { name: "other" inputs: "rows" dense { units: 21 } }
    layers { name: "dot" inputs: ["rows", "other"] dot { axes: [2, 2] normalize: true } }
    layers { name: "flat" flatten {} }
    layers { name: "out" dense { units: 3 activation: SOFTMAX } })";
}

}  // namespace cairn
