// LayerType: everything that Cairn knows about a kind of layer except how it is computed. Each is one row of a table,
// in a file of its own in common/model/layers/. The computation is a row in each backend (worker/backend).
//
// Rows are constants; any thread. Invariants:
//   1. There is a row for each LayerKind and for each v1::Layer::KindCase.
//   2. A Keras class is read by exactly one row, an ONNX operator by at most one.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

class KerasConfig;
class KerasWriter;
class OnnxImporter;
class OnnxWriter;

// A Keras class that becomes the layer.
struct KerasClass {
  const char* name;
  // Reads the class's options. KerasConfig::Finish rejects options that were not read.
  void (*read)(KerasConfig& config, v1::Layer* layer);
  const char* call = "inputs";  // the positional arguments of its call(), in order
};

// A layer inside a Keras layer: its name, and the attribute that holds it.
struct KerasSublayer {
  const char *name, *attribute;
};

// An ONNX operator that becomes the layer. Errors: INVALID_ARGUMENT says what is wrong, UNIMPLEMENTED what Cairn lacks;
// the caller adds the operator's name.
struct OnnxOperator {
  const char* name;
  absl::Status (*read)(OnnxImporter& importer);
};

// How a variable is laid out in PyTorch. The tensor is Keras' tensor viewed as `grid`, with its axes permuted to the
// order `axes`, then reshaped to `shape`.
struct TorchPlace {
  std::string name;
  Shape grid;
  std::vector<int> axes;
  Shape shape;
};

struct LayerType {
  // ---- the layer ----
  LayerKind kind;
  v1::Layer::KindCase field;
  const char* name;  // Keras' snake case: "conv2d", the default name of a layer
  int inputs_min = 1, inputs_max = 1;
  // The layer's part of Graph::Build. inputs: the shapes of its inputs, empty for the input layer. node: `kind`, `name`
  // and `layer` are set, and `output` is that of the first input. Fills in the defaults of `layer`, and sets `output`,
  // `activation`, `negative_slope`, `alpha` and `window`. Appends the layer's variables without their offset and node.
  // Errors: INVALID_ARGUMENT says what is wrong with which field and what to do; the caller adds the layer's name.
  absl::Status (*infer)(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables);

  // ---- Keras ----
  absl::Span<const KerasClass> keras;  // the first one is written if keras_class is null
  const char* (*keras_class)(const Node& node) = nullptr;
  // Writes the options after name, trainable and dtype; null: there are none.
  void (*write_keras)(const Node& node, KerasWriter& config) = nullptr;
  bool merges = false;                        // its call() takes a list of tensors
  absl::Span<const KerasSublayer> sublayers;  // variables "name/..." belong to a layer inside this one

  // ---- ONNX ----
  void (*write_onnx)(const Node& node, OnnxWriter& writer);
  absl::Span<const OnnxOperator> onnx;

  // ---- PyTorch ----
  // For variables whose layout or name differs from Keras'. `name`: the variable's name within the layer. nullopt: the
  // usual rule applies (bias is "bias", gamma is "weight"). Null: the usual rule applies to all variables.
  std::optional<TorchPlace> (*torch)(const Graph& graph, const Variable& variable, absl::string_view name) = nullptr;
};

const LayerType& TypeOf(LayerKind kind);
absl::Span<const LayerType* const> LayerTypes();  // in the order of LayerKind

// Returns null if there is none.
const LayerType* FindLayerType(v1::Layer::KindCase field);
struct FoundKerasClass {
  const LayerType* type = nullptr;
  const KerasClass* keras = nullptr;
};
FoundKerasClass FindKerasClass(absl::string_view name);
const OnnxOperator* FindOnnxOperator(absl::string_view name);

// Calls LayerType::infer of the node's kind. Errors: also an output that is too large.
absl::Status InferLayer(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables);

// a * b for a, b >= 0, or the largest int64_t where that overflows.
int64_t SaturatingMultiply(int64_t a, int64_t b);

}  // namespace cairn
