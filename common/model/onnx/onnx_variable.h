// The result of reading an ONNX file: a model, and the values of its variables.
#pragma once

#include <string>
#include <vector>

#include "cairn/v1/model.pb.h"
#include "common/tensor/buffer.h"

namespace cairn {

struct OnnxVariable {
  std::string name;  // "conv2d/kernel"
  Shape shape;       // in Keras' layout
  std::vector<float> values;
};

struct ImportedOnnx {
  v1::Model model;
  std::vector<OnnxVariable> variables;  // all that the model's graph has
};

}  // namespace cairn
