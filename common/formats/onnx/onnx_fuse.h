// Puts together again what exporters take apart: operators that ONNX lacks, or lacked at the time.
//
//   becomes               of
//   Swish                 x * Sigmoid(x)
//   Gelu                  x * 0.5 * (1 + Erf(x / sqrt(2))), in any order of the factors; with Tanh: approximate =
//                         "tanh"
//   LayerNormalization    (x - mean) / Sqrt(ReduceMean((x - mean)^2) + epsilon) * scale + bias, the last two where they
//                         are
//   GroupNormalization    Reshape, InstanceNormalization, Reshape back, * scale + bias; "restored": the second
//                         Reshape's shape
//
// A missing scale or bias is an input "". A value that somebody else uses too keeps its operators.
#pragma once

#include "common/model/onnx/onnx_graph.h"

namespace cairn {

void FuseOnnx(OnnxGraph* graph);

}  // namespace cairn
