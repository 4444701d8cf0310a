// Fuses operators that exporters decompose, because ONNX lacks them or lacked them at the time.
//
//   result                made from
//   Swish                 x * Sigmoid(x)
//   Gelu                  x * 0.5 * (1 + Erf(x / sqrt(2))), in any order of the factors; with Tanh: approximate =
//                         "tanh"
//   LayerNormalization    (x - mean) / Sqrt(ReduceMean((x - mean)^2) + epsilon) * scale + bias, the last two if
//                         present
//   GroupNormalization    Reshape, InstanceNormalization, Reshape back, * scale + bias; "restored": the second
//                         Reshape's shape
//
// A missing scale or bias is an input "". If another operator uses an intermediate value, nothing is fused.
#pragma once

#include "common/model/onnx/onnx_graph.h"

namespace cairn {

void FuseOnnx(OnnxGraph* graph);

}  // namespace cairn
