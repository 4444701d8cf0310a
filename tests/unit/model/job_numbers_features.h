// Layers of features in job_numbers_test.cc: a job with each of them, and the numbers that they accept.
#pragma once

#include <set>
#include <string>

namespace cairn {

inline constexpr char kFeatureJob[] = R"(
  model {
    layers { input { shape: [6, 4] } }
    layers { normalization { axis: 2 mean: [1, 2, 3, 4] variance: [1, 2, 3, 4] } }
    layers { rescaling { scales: [1, 2, 3, 4] offsets: [1, 2, 3, 4] } }
    layers { dropout { rate: 0.1 noise_shape: [1, 1] seed: 1 } } layers { spatial_dropout1d { rate: 0.1 seed: 1 } }
    layers { gaussian_noise { stddev: 0.1 seed: 1 } } layers { gaussian_dropout { rate: 0.1 seed: 1 } }
    layers { alpha_dropout { rate: 0.1 noise_shape: [1, 1] seed: 1 } }
    layers { activation { activation: THRESHOLD threshold: 1 value: 0 } }
    layers { activation { activation: RELU max_value: 2 } } layers { activation { activation: SOFTMAX axis: 2 } }
    layers { rms_normalization { epsilon: 0.1 axis: 2 } } layers { unit_normalization { axis: 2 } }
    layers { name: "x" einsum_dense { equation: "abc,cd->abd" output_shape: [6, 4] bias_axes: "d" } }
    layers { name: "y" attention { dropout: 0.1 seed: 1 } inputs: ["x", "x"] }
    layers { name: "z" additive_attention { dropout: 0.1 seed: 1 } inputs: ["y", "x"] }
    layers { name: "w" multi_head_attention { num_heads: 2 key_dim: 2 output_shape: 4 seed: 1 attention_axes: 1 } inputs: ["z", "x"] }
    layers { group_query_attention { head_dim: 2 num_query_heads: 4 num_key_value_heads: 2 dropout: 0.1 seed: 1
                                     sliding_window: 2 } inputs: ["w", "x"] }
    layers { activity_regularization { l1: 0.1 l2: 0.1 } }
    layers { flatten {} } layers { repeat_vector { n: 3 } } layers { flatten {} }
    layers { dense { units: 8 kernel_constraint { kind: MIN_MAX_NORM min_value: 1 max_value: 1 rate: 1 axis: 1 }
                     kernel_regularizer { orthogonal_factor: 0.1 } } }
    layers { dense { units: 4 activation: SOFTMAX } }
  }
  data { path: "/data" }
  loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
  optimizer { sgd {} }
  batch_size: 8 )";

// 0 is a number like any other, or the default.
inline const std::set<std::string> kFeatureZeros = {"ActivityRegularization.l1",
                                                    "ActivityRegularization.l2",
                                                    "Constraint.min_value",
                                                    "Constraint.rate",
                                                    "Constraint.axis",
                                                    "Normalization.mean",
                                                    "Normalization.variance",
                                                    "Rescaling.scale",
                                                    "Rescaling.offsets",
                                                    "Dropout.seed",
                                                    "SpatialDropout1D.rate",
                                                    "SpatialDropout1D.seed",
                                                    "SpatialDropout2D.seed",
                                                    "GaussianNoise.stddev",
                                                    "GaussianNoise.seed",
                                                    "GaussianDropout.rate",
                                                    "GaussianDropout.seed",
                                                    "AlphaDropout.rate",
                                                    "AlphaDropout.seed",
                                                    "ActivationLayer.threshold",
                                                    "ActivationLayer.value",
                                                    "Attention.dropout",
                                                    "Attention.seed",
                                                    "AdditiveAttention.dropout",
                                                    "AdditiveAttention.seed",
                                                    "MultiHeadAttention.seed",
                                                    "GroupQueryAttention.dropout",
                                                    "GroupQueryAttention.seed",
                                                    "GroupQueryAttention.sliding_window",
                                                    "SpatialDropout3D.rate",
                                                    "SpatialDropout3D.seed"};

// -1 too; an axis counts from the end.
inline const std::set<std::string> kFeatureNegatives = {
    "Constraint.axis",           "Normalization.mean",      "Rescaling.scales",        "Rescaling.offsets",
    "ActivationLayer.threshold", "BatchNormalization.axis", "GroupNormalization.axis", "RMSNormalization.axis",
    "EinsumDense.output_shape",  "LayerNormalization.axis", "Normalization.axis",      "UnitNormalization.axis",
    "ActivationLayer.axis",      "Dropout.noise_shape",     "AlphaDropout.noise_shape"};

inline const std::set<std::string> kFeatureNegativesStandForAnother = {
    "Constraint.axis",      "LayerNormalization.axis", "Normalization.axis",      "UnitNormalization.axis",
    "ActivationLayer.axis", "Dropout.noise_shape",     "AlphaDropout.noise_shape"};

}  // namespace cairn
