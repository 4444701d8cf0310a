// The cases that the cuDNN backend does not compute, by what its refusal names. The list is exact: a test compiles
// every case (cudnn_program_test.cc).
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace cairn {

inline const std::vector<std::string>& CudnnLacks() {
  // CategoryEncoding, Hashing, HashedCrossing and IntegerLookup stand behind a Discretization in the cases.
  static const std::vector<std::string> lacks = {
      "CELU of activation",
      "CELU of conv2d",
      "CELU of dense",
      "EXPONENTIAL of activation",
      "EXPONENTIAL of conv2d",
      "EXPONENTIAL of dense",
      "HARD_SHRINK of activation",
      "HARD_SHRINK of conv2d",
      "HARD_SHRINK of dense",
      "HARD_SIGMOID of activation",
      "HARD_SIGMOID of conv2d",
      "HARD_SIGMOID of dense",
      "HARD_SIGMOID of gru",
      "HARD_SIGMOID of lstm",
      "HARD_SILU of activation",
      "HARD_SILU of conv2d",
      "HARD_SILU of dense",
      "HARD_TANH of activation",
      "HARD_TANH of conv2d",
      "HARD_TANH of dense",
      "LOG_SIGMOID of activation",
      "LOG_SIGMOID of conv2d",
      "LOG_SIGMOID of dense",
      "LOG_SOFTMAX of activation",
      "LOG_SOFTMAX of conv2d",
      "LOG_SOFTMAX of dense",
      "MISH of activation",
      "MISH of conv2d",
      "MISH of dense",
      "MISH of gru",
      "RELU6 of activation",
      "SELU of activation",
      "SELU of conv2d",
      "SELU of dense",
      "SELU of simple_rnn",
      "SOFTSIGN of activation",
      "SOFTSIGN of conv2d",
      "SOFTSIGN of dense",
      "SOFTSIGN of lstm",
      "SOFT_SHRINK of activation",
      "SOFT_SHRINK of conv2d",
      "SOFT_SHRINK of dense",
      "SPARSE_PLUS of activation",
      "SPARSE_PLUS of conv2d",
      "SPARSE_PLUS of dense",
      "SPARSE_SIGMOID of activation",
      "SPARSE_SIGMOID of conv2d",
      "SPARSE_SIGMOID of dense",
      "SQUAREPLUS of activation",
      "SQUAREPLUS of conv2d",
      "SQUAREPLUS of dense",
      "TANH_SHRINK of activation",
      "TANH_SHRINK of bidirectional",
      "TANH_SHRINK of conv2d",
      "TANH_SHRINK of dense",
      "THRESHOLD of activation",
      "activity_regularization",
      "activity_regularizer of conv1d",
      "activity_regularizer of conv2d",
      "activity_regularizer of dense",
      "activity_regularizer of lstm",
      "additive_attention",
      "alpha_dropout",
      "attention",
      "average_pooling2d of time_distributed",
      "axis of layer_normalization",
      "axis: it joins along another axis than the last",
      "discretization",
      "batch_normalization of time_distributed",
      "conv1d of time_distributed",
      "conv2d of time_distributed",
      "einsum_dense",
      "flatten of time_distributed",
      "gaussian_dropout",
      "gaussian_noise",
      "global_average_pooling2d of time_distributed",
      "it is a second input",
      "it shares another layer's variables",
      "its loss leaves masked steps out",
      "lstm of time_distributed",
      "max_pooling2d of time_distributed",
      "minimum",
      "noise_shape of dropout",
      "normalization",
      "operation",
      "reduce",
      "repeat_vector of time_distributed",
      "repeat_vector",
      "reshape of time_distributed",
      "rms_normalization",
      "scales of rescaling",
      "seed of dropout",
      "seed of multi_head_attention",
      "seed of spatial_dropout2d",
      "slice",
      "spatial_dropout1d",
      "subtract",
      "time_distributed of time_distributed",
      "unit_normalization",
      "zero_padding2d of time_distributed",
  };
  return lacks;
}

// What a refusal names: the text between `layer "x": ` and "not computed"; empty: it is no refusal of a layer.
inline std::string WhatCudnnLacks(const absl::Status& status) {
  const absl::string_view text = status.message();
  const size_t begin = text.find("\": ");
  if (!absl::IsUnimplemented(status) || !absl::StartsWith(text, "layer \"") || begin == text.npos) return "";
  const absl::string_view what = text.substr(begin + 3);
  for (const absl::string_view end : {", which is not computed", " is not computed"}) {
    if (const size_t at = what.find(end); at != what.npos) return std::string(what.substr(0, at));
  }
  return "";
}

inline bool IsCudnnLack(const absl::Status& status) {
  const std::vector<std::string>& lacks = CudnnLacks();
  return std::find(lacks.begin(), lacks.end(), WhatCudnnLacks(status)) != lacks.end();
}

}  // namespace cairn
