// A small model for gradient checks and for comparing backends, and the frame that most cases share.
#pragma once

#include <ostream>
#include <string>

namespace cairn {

struct LayerCase {
  std::string name;
  std::string model;  // text protobuf
  std::string loss = "kind: SPARSE_CATEGORICAL_CROSSENTROPY";
};
inline std::ostream& operator<<(std::ostream& out, const LayerCase& c) { return out << c.name; }

// Layers between a convolution and a dense layer with softmax.
inline std::string Between(const std::string& layers, const std::string& shape = "[5, 6, 2]") {
  return "layers { input { shape: " + shape + " } } layers { name: 'first' conv2d { filters: 3 kernel_size: 1 } } " +
         layers + " layers { flatten {} } layers { name: 'last' dense { units: 4 activation: SOFTMAX } }";
}

}  // namespace cairn
