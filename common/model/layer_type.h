// LayerType: all that Cairn knows of a kind of layers, but how it is computed: one row of the table, in a file of its
// own in common/model/layers/. How it is computed is in a row of each backend (worker/backend).
//
// Rows are constants; any thread. Invariants:
//   1. There is a row for each LayerKind and for each v1::Layer::KindCase.
//   2. A class of Keras is read by one row, an operator of ONNX by one row at most.
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

// A class of Keras that becomes the layer.
struct KerasClass {
  const char* name;
  // Reads the class's options; what it does not read is refused by KerasConfig::Finish.
  void (*read)(KerasConfig& config, v1::Layer* layer);
  const char* call = "inputs";  // the arguments of its call() that may be given by place, in their order
};

// A layer within a layer of Keras: its name, and the attribute that holds it.
struct KerasSublayer {
  const char *name, *attribute;
};

// An operator of ONNX that becomes the layer. Errors: INVALID_ARGUMENT what is wrong, UNIMPLEMENTED what Cairn lacks;
// the caller adds the operator's name.
struct OnnxOperator {
  const char* name;
  absl::Status (*read)(OnnxImporter& importer);
};

// Where an element stands in PyTorch's layout: its tensor is Keras', looked at as `grid`, with its axes in the order
// `axes`, and then of `shape`.
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
  // The layer's share of Graph::Build. inputs: the shapes of its inputs, none for the input layer. node: `kind`, `name`
  // and `layer` are set, and `output` to that of the first input; fills in the defaults of `layer`, and `output`,
  // `activation`, `negative_slope`, `alpha` and `window`. Appends the layer's variables without their offset and node.
  // Errors: INVALID_ARGUMENT, what is wrong with which field and what to do; the caller adds the layer's name.
  absl::Status (*infer)(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables);

  // ---- Keras ----
  absl::Span<const KerasClass> keras;  // the first is the one that it is written as, if keras_class is null
  const char* (*keras_class)(const Node& node) = nullptr;
  // The options behind name, trainable and dtype; null: none.
  void (*write_keras)(const Node& node, KerasWriter& config) = nullptr;
  bool merges = false;                        // its call() takes a list of tensors
  absl::Span<const KerasSublayer> sublayers;  // variables "name/..." are those of a layer within this one

  // ---- ONNX ----
  void (*write_onnx)(const Node& node, OnnxWriter& writer);
  absl::Span<const OnnxOperator> onnx;

  // ---- PyTorch ----
  // Of variables that are not laid out or called as in Keras; `name`: within the layer. nullopt: as everywhere, bias is
  // "bias", gamma "weight". Null: none has another place.
  std::optional<TorchPlace> (*torch)(const Graph& graph, const Variable& variable, absl::string_view name) = nullptr;
};

const LayerType& TypeOf(LayerKind kind);
absl::Span<const LayerType* const> LayerTypes();  // in the order of LayerKind

// Null: none such.
const LayerType* FindLayerType(v1::Layer::KindCase field);
struct FoundKerasClass {
  const LayerType* type = nullptr;
  const KerasClass* keras = nullptr;
};
FoundKerasClass FindKerasClass(absl::string_view name);
const OnnxOperator* FindOnnxOperator(absl::string_view name);

// As LayerType::infer of the node's kind. Errors: also an output that is too large.
absl::Status InferLayer(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables);

// a * b for a, b >= 0, or the largest int64_t where that overflows.
int64_t SaturatingMultiply(int64_t a, int64_t b);

}  // namespace cairn
