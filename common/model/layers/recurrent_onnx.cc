// Recurrent layers as ONNX's operators RNN, LSTM and GRU. There the step axis precedes the batch axis, and an LSTM's
// gates are in the order input, output, forget, cell.
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/lacks.h"
#include "common/model/layers/recurrent.h"
#include "common/model/onnx/onnx_importer.h"
#include "common/model/onnx/onnx_writer.h"
#include "common/model/recurrent.h"

namespace cairn::layers {
namespace {

// ---- export ----

// ONNX's name; null if it has none.
const char* OnnxActivation(v1::Activation activation) {
  switch (activation) {
    case v1::LINEAR: return "Affine";
    case v1::RELU: return "Relu";
    case v1::LEAKY_RELU: return "LeakyRelu";
    case v1::SIGMOID: return "Sigmoid";
    case v1::TANH: return "Tanh";
    case v1::ELU: return "Elu";
    case v1::SOFTPLUS: return "Softplus";
    case v1::SOFTSIGN: return "Softsign";
    case v1::HARD_SIGMOID:
    case v1::HARD_SIGMOID_KERAS2: return "HardSigmoid";
    default: return nullptr;
  }
}

// Writes one recurrence on x, [steps, batch, features]. Its output is [steps, directions, batch, units].
class Operator {
 public:
  Operator(const Node& node, const Recurrence& r, OnnxWriter& w) : node_(node), r_(r), w_(w) {
    const Shape& input = w.ShapeOf(node, 0);
    features_ = input[1];
  }

  std::string Write(const std::string& x) {
    const int64_t width = r_.gates() * r_.units;
    OnnxWriter::Names inputs = {x, Kernel(r_.kernel, features_), Kernel(r_.recurrent_kernel, r_.units), Bias(width),
                                ""};
    for (int64_t i = 0; i < r_.states() && r_.state_input >= 0; ++i) {
      inputs.push_back(w_.Op("Unsqueeze", {w_.In(node_, static_cast<size_t>(r_.state_input + i), Channels::kLast),
                                           w_.Whole("axes", {0})}));
    }
    while (inputs.back().empty()) inputs.pop_back();
    constexpr const char* kTypes[] = {"RNN", "LSTM", "GRU"};
    const std::string y = w_.Op(kTypes[static_cast<int>(r_.cell)], inputs);
    w_.Int("hidden_size", r_.units);
    w_.Text("direction", r_.go_backwards ? "reverse" : "forward");
    if (r_.cell == RecurrentCell::kGru) w_.Int("linear_before_reset", r_.reset_after ? 1 : 0);
    WriteActivations();
    return y;
  }

 private:
  std::string Name(int variable) const {
    const Variable& v = w_.graph().variables()[static_cast<size_t>(variable)];
    // If shared, the name begins with that of another layer.
    return v.name.substr(w_.graph().nodes()[static_cast<size_t>(v.node)].name.size() + 1);
  }

  // Reorders [1, gates, ...] of an LSTM to ONNX's order.
  std::string InOrder(const std::string& value) const {
    if (r_.cell != RecurrentCell::kLstm) return value;
    std::vector<int64_t> order;
    for (const int64_t part : {0, 3, 1, 2}) {
      for (int64_t u = 0; u < r_.units; ++u) order.push_back(part * r_.units + u);
    }
    const std::string ordered = w_.Op("Gather", {value, w_.Whole("gates", order)});
    w_.Int("axis", 1);
    return ordered;
  }

  std::string Kernel(int variable, int64_t in) const {
    return InOrder(w_.VariableOf(node_, Name(variable), {1, 0}, {1, r_.gates() * r_.units, in}));
  }

  // The biases of the products with x and with h, concatenated.
  std::string Bias(int64_t width) const {
    if (r_.bias < 0) return "";
    if (r_.cell == RecurrentCell::kGru && r_.reset_after) {
      return w_.VariableOf(node_, Name(r_.bias), {0, 1}, {1, 2 * width});
    }
    const std::string bias = InOrder(w_.VariableOf(node_, Name(r_.bias), {0}, {1, width}));
    const std::string both =
        w_.Op("Concat", {bias, w_.Numbers("no_bias", {1, width}, std::vector<float>(width, 0.0f))});
    w_.Int("axis", 1);
    return both;
  }

  void WriteActivations() const {
    std::vector<v1::Activation> list;
    if (r_.cell != RecurrentCell::kSimple) list.push_back(r_.recurrent_activation);
    list.push_back(r_.activation);
    if (r_.cell == RecurrentCell::kLstm) list.push_back(r_.activation);
    std::vector<float> alphas, betas;
    onnx::AttributeProto* const names = w_.Attribute("activations", onnx::AttributeProto::STRINGS);
    for (const v1::Activation activation : list) {
      names->add_strings(OnnxActivation(activation));
      if (activation == v1::LINEAR) {
        alphas.push_back(1);
        betas.push_back(0);
        continue;
      }
      const bool hard = activation == v1::HARD_SIGMOID || activation == v1::HARD_SIGMOID_KERAS2;
      if (hard || activation == v1::LEAKY_RELU || activation == v1::ELU) alphas.push_back(RecurrentAlpha(activation));
      if (hard) betas.push_back(0.5f);
    }
    const auto write = [&](const char* name, const std::vector<float>& values) {
      if (values.empty()) return;
      onnx::AttributeProto* const attribute = w_.Attribute(name, onnx::AttributeProto::FLOATS);
      for (const float value : values) attribute->add_floats(value);
    };
    write("activation_alpha", alphas);
    write("activation_beta", betas);
  }

  const Node& node_;
  const Recurrence& r_;
  OnnxWriter& w_;
  int64_t features_ = 0;
};

// Converts [steps, 1, batch, units] to Keras' output: [batch, steps, units] in Keras' order, or [batch, units].
std::string TakeOutput(const Recurrence& r, const std::string& y, int64_t steps, OnnxWriter& w) {
  const std::string rows = w.Op("Squeeze", {y, w.Whole("axes", {1})});
  if (!r.return_sequences) {
    const std::string last = w.Op("Gather", {rows, w.Whole("last", {r.go_backwards ? 0 : steps - 1})});
    w.Int("axis", 0);
    return w.Op("Squeeze", {last, w.Whole("axes", {0})});
  }
  if (r.go_backwards == r.turned) return w.Transpose(rows, {1, 0, 2});  // ONNX keeps the order of the input
  std::vector<int64_t> order;
  for (int64_t step = steps; step-- > 0;) order.push_back(step);
  const std::string turned = w.Op("Gather", {rows, w.Whole("backwards", order)});
  w.Int("axis", 0);
  return w.Transpose(turned, {1, 0, 2});
}

}  // namespace

absl::Status CheckRecurrentOnnx(const Node& node) {
  for (const Recurrence& r : RecurrencesOf(node.layer)) {
    if (r.windows.axes > 0) return Lacks("ONNX has no operator for a ConvLSTM; write safetensors or Keras' format");
    if (r.return_cell) return Lacks("return_cell is not written as ONNX; write safetensors or Keras' format");
    for (const v1::Activation activation : {r.activation, r.recurrent_activation}) {
      if (OnnxActivation(activation) != nullptr) continue;
      return Lacks("ONNX's recurrent operators have no activation ", v1::Activation_Name(activation),
                   "; write safetensors or Keras' format");
    }
  }
  return absl::OkStatus();
}

void WriteRecurrentOnnx(const Node& node, OnnxWriter& w) {
  const RecurrentLayer layer = RecurrentLayerOf(w.graph(), node);
  const int64_t steps = w.ShapeOf(node, 0)[0];
  const std::string x = w.Transpose(w.In(node, 0, Channels::kLast), {1, 0, 2});
  OnnxWriter::Names outputs;
  for (const Recurrence& r : layer.recurrences)
    outputs.push_back(TakeOutput(r, Operator(node, r, w).Write(x), steps, w));
  std::string y = outputs[0];
  switch (layer.merge) {
    case RecurrentMerge::kOne: break;
    case RecurrentMerge::kConcat:
      y = w.Op("Concat", outputs);
      w.Int("axis", -1);
      break;
    case RecurrentMerge::kSum: y = w.Op("Add", outputs); break;
    case RecurrentMerge::kMultiply: y = w.Op("Mul", outputs); break;
    case RecurrentMerge::kAverage: y = w.Op("Mul", {w.Op("Add", outputs), w.Scalar("half", 0.5f)}); break;
  }
  w.SetOutput(node, y, Channels::kLast);
}

}  // namespace cairn::layers
