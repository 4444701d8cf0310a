// OnnxWriter: builds an ONNX graph: operators, constants, variables, and for each layer of Cairn's graph the value that
// holds its output.
//
// Images and sequences have their channels last in Cairn and first in ONNX's convolutions. Each output is kept in the
// order that its operator produces. The other order is created on demand by a single Transpose.
//
// Used by one thread, for one graph. Invariants:
//   1. Each operator follows those whose outputs it uses.
//   2. Names are unique. Values have the layer's name, values inside a layer are LAYER/WHAT; names of layers contain no
//      '/'.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/model/graph.h"
#include "onnx/onnx.pb.h"

namespace cairn {

// Where the channels of an image or sequence are. Values with at most one axis count as kLast.
enum class Channels { kLast, kFirst };

// An initializer that holds a variable. axes: the variable's axes in the initializer's order.
struct OnnxPlace {
  std::string initializer;
  int variable = 0;  // index into Graph::variables()
  std::vector<int> axes;
};

class OnnxWriter {
 public:
  // `space`: the parameter space. If it is empty, variables become initializers without data.
  OnnxWriter(const Graph& graph, absl::Span<const float> space, onnx::GraphProto* out)
      : graph_(graph), space_(space), out_(out), variables_(&graph) {}

  // Writes every layer, its inputs and its output.
  void WriteGraph();
  const std::vector<OnnxPlace>& places() const { return places_; }

  // ---- for layers: LayerType::write_onnx ----
  using Names = std::vector<std::string>;
  const Graph& graph() const { return graph_; }
  // Adds an operator of the current layer and returns the name of its output. Attributes are then added to it.
  std::string Op(const char* type, const Names& inputs);
  std::string SecondOutput();  // of the operator that was added last
  onnx::AttributeProto* Attribute(const char* name, onnx::AttributeProto::AttributeType type);
  void Int(const char* name, int64_t value);
  void Ints(const char* name, const std::vector<int64_t>& values);
  void Float(const char* name, float value);
  void Text(const char* name, const char* value);
  std::string Numbers(const char* name, const Shape& dims, const std::vector<float>& values);
  std::string Scalar(const char* name, float value) { return Numbers(name, {}, {value}); }
  std::string Whole(const char* name, const std::vector<int64_t>& values);
  // The layer's variable `name` ("kernel") with its axes permuted to `axes`, reshaped to `dims`; "" if the layer has
  // none.
  std::string VariableOf(const Node& node, const std::string& name, const std::vector<int>& axes, const Shape& dims);
  std::string VariableOf(const Node& node, const std::string& name);  // unchanged
  std::string Transpose(const std::string& value, const std::vector<int64_t>& axes);
  std::string Reshape(const std::string& value, const Shape& dims);  // dims: without the batch axis, which is kept

  // ---- inputs and outputs of layers ----
  // The input with its channels in that position.
  std::string In(const Node& node, size_t input, Channels channels);
  // The order in which the input already exists; kFirst if it exists in both.
  Channels Has(const Node& node, size_t input) const;
  void SetOutput(const Node& node, std::string value, Channels channels);
  // Whether the node's output has been set with the channels last.
  bool HasLast(const Node& node) { return !outputs_[node.id].last.empty(); }
  const Shape& ShapeOf(const Node& node, size_t input) const {
    return graph_.nodes()[static_cast<size_t>(node.inputs[input])].output;
  }
  void WriteInput(const Node& node);

  // ---- shared by several layers (onnx_writer_parts.cc) ----
  // Applies the node's activation to a value with its channels in that position.
  std::string Activate(const Node& node, const std::string& value, Channels channels);
  // Sets the output after applying the activation.
  void Finish(const Node& node, const std::string& value, Channels channels);
  // Combines all inputs with their axes in one order. `two`: the operator for two inputs; `more`: the one for any
  // number.
  void Join(const Node& node, const char* two, const char* more);
  // A time_distributed whose steps are folded into the batch (inner_node.h): the layer inside it, between a Reshape to
  // [batch * steps, ...] and one back.
  void WriteOnSteps(const Node& node);
  // Applies gamma and beta, reshaped to `dims`.
  std::string ScaleAndCenter(const Node& node, std::string value, const Shape& dims);

 private:
  struct Output {
    std::string last, first;  // the value with channels last, first; empty: not made yet
  };

  std::string Unique(std::string name);
  void WriteModelOutput(const Node& node);

  const Graph& graph_;
  const absl::Span<const float> space_;
  onnx::GraphProto* const out_;
  std::string layer_;  // the layer whose operators are being written
  std::map<std::string, int> names_;
  std::map<int, Output> outputs_;  // by node
  std::vector<OnnxPlace> places_;
  // Of a StepGraph: the graph that has the parameters, and by variable its index there. Otherwise empty.
  const Graph* variables_;
  std::vector<int> variable_ids_;
};

// Stores numbers as ONNX does: little-endian, row by row.
void SetFloats(const Shape& dims, absl::Span<const float> values, onnx::TensorProto* tensor);

}  // namespace cairn
