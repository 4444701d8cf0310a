// OnnxWriter: an ONNX graph in the making: operators, constants, variables, and for each layer of Cairn's graph the
// value that holds its output.
//
// Pictures and sequences have their channels last in Cairn and first in ONNX's convolutions. Each output is kept in the
// order in which its operator gave it; the other one is made where it is asked for, by one Transpose, once.
//
// Used by one thread, for one graph. Invariants:
//   1. Operators stand after those whose outputs they take.
//   2. Names are unique: values have the layer's name, what is within a layer LAYER/WHAT; layers have no '/'.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/model/graph.h"
#include "onnx/onnx.pb.h"

namespace cairn {

// Where a picture's or sequence's channels stand behind the batch. One number an axis and less: kLast.
enum class Channels { kLast, kFirst };

// An initializer that holds a variable: its axes, those of the variable's shape in this order.
struct OnnxPlace {
  std::string initializer;
  int variable = 0;  // index into Graph::variables()
  std::vector<int> axes;
};

class OnnxWriter {
 public:
  // `space`: the parameter space; empty: variables become initializers without numbers.
  OnnxWriter(const Graph& graph, absl::Span<const float> space, onnx::GraphProto* out)
      : graph_(graph), space_(space), out_(out) {}

  // Every layer, its inputs and its output.
  void WriteGraph();
  const std::vector<OnnxPlace>& places() const { return places_; }

  // ---- for layers: LayerType::write_onnx ----
  using Names = std::vector<std::string>;
  const Graph& graph() const { return graph_; }
  // Adds an operator of the layer at hand; returns its output's name. Attributes follow on last().
  std::string Op(const char* type, const Names& inputs);
  onnx::AttributeProto* Attribute(const char* name, onnx::AttributeProto::AttributeType type);
  void Int(const char* name, int64_t value);
  void Ints(const char* name, const std::vector<int64_t>& values);
  void Float(const char* name, float value);
  void Text(const char* name, const char* value);
  std::string Numbers(const char* name, const Shape& dims, const std::vector<float>& values);
  std::string Scalar(const char* name, float value) { return Numbers(name, {}, {value}); }
  std::string Whole(const char* name, const std::vector<int64_t>& values);
  // The layer's variable `name` ("kernel") with its axes in the order `axes`, as `dims`; "" where it has none.
  std::string VariableOf(const Node& node, const std::string& name, const std::vector<int>& axes, const Shape& dims);
  std::string VariableOf(const Node& node, const std::string& name);  // as it is
  std::string Transpose(const std::string& value, const std::vector<int64_t>& axes);
  std::string Reshape(const std::string& value, const Shape& dims);  // without the batch, which stays

  // ---- inputs and outputs of layers ----
  // The input in that order of its axes.
  std::string In(const Node& node, size_t input, Channels channels);
  // The order that it is in already; where it is in both, channels first.
  Channels Has(const Node& node, size_t input) const;
  void SetOutput(const Node& node, std::string value, Channels channels);
  // Whether its output has been given with the channels last.
  bool HasLast(const Node& node) { return !outputs_[node.id].last.empty(); }
  const Shape& ShapeOf(const Node& node, size_t input) const {
    return graph_.nodes()[static_cast<size_t>(node.inputs[input])].output;
  }
  void WriteInput(const Node& node);

  // ---- what several layers are made of (onnx_writer_parts.cc) ----
  // The node's activation of a value, whose channels stand there.
  std::string Activate(const Node& node, const std::string& value, Channels channels);
  void Finish(const Node& node, const std::string& value, Channels channels);  // with its activation
  // All inputs in one order of their axes, as the operator `two` takes two of them and `more` any number.
  void Join(const Node& node, const char* two, const char* more);
  // gamma and beta, looked at as `dims`.
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
  std::string layer_;  // whose operators are being written
  std::map<std::string, int> names_;
  std::map<int, Output> outputs_;  // by node
  std::vector<OnnxPlace> places_;
};

// Numbers as ONNX stores them: little-endian, row by row.
void SetFloats(const Shape& dims, absl::Span<const float> values, onnx::TensorProto* tensor);

}  // namespace cairn
