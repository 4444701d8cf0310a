// The parts of OnnxWriter that several layers share.
#include <cmath>
#include <utility>

#include "common/model/activation_numbers.h"
#include "common/model/inner_node.h"
#include "common/model/layer_type.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn {

namespace {

// An operator of one input with an attribute alpha.
std::string WithAlpha(OnnxWriter& w, const char* op, const std::string& value, float alpha) {
  const std::string y = w.Op(op, {value});
  w.Float("alpha", alpha);
  return y;
}

std::string Gelu(OnnxWriter& w, const std::string& value) {
  const std::string erf = w.Op("Erf", {w.Op("Div", {value, w.Scalar("sqrt_2", static_cast<float>(std::sqrt(2.0)))})});
  return w.Op("Mul", {w.Op("Mul", {value, w.Op("Add", {erf, w.Scalar("one", 1)})}), w.Scalar("half", 0.5f)});
}

std::string GeluTanh(OnnxWriter& w, const std::string& value) {
  const std::string cube = w.Op("Mul", {w.Op("Pow", {value, w.Scalar("three", 3)}), w.Scalar("gelu_cubic", 0.044715f)});
  const std::string inner =
      w.Op("Mul", {w.Op("Add", {value, cube}), w.Scalar("sqrt_2_pi", static_cast<float>(std::sqrt(2 / M_PI)))});
  return w.Op("Mul",
              {w.Op("Mul", {value, w.Op("Add", {w.Op("Tanh", {inner}), w.Scalar("one", 1)})}), w.Scalar("half", 0.5f)});
}

std::string Shrink(OnnxWriter& w, const std::string& value, float lambda, float bias) {
  const std::string y = w.Op("Shrink", {value});
  w.Float("lambd", lambda);
  w.Float("bias", bias);
  return y;
}

std::string Threshold(OnnxWriter& w, const std::string& value, float threshold) {
  if (threshold >= 0) return WithAlpha(w, "ThresholdedRelu", value, threshold);
  const std::string above = w.Op("Greater", {value, w.Scalar("threshold", threshold)});
  return w.Op("Where", {above, value, w.Scalar("zero", 0)});
}

// (clip(x + 1, 0, 2) / 2)^2 + max(x - 1, 0)
std::string SparsePlus(OnnxWriter& w, const std::string& value) {
  const std::string shifted = w.Op("Add", {value, w.Scalar("one", 1)});
  const std::string clipped = w.Op("Clip", {shifted, w.Scalar("zero", 0), w.Scalar("two", 2)});
  const std::string half = w.Op("Mul", {clipped, w.Scalar("half", 0.5f)});
  return w.Op("Add", {w.Op("Mul", {half, half}), w.Op("Relu", {w.Op("Add", {value, w.Scalar("minus", -1)})})});
}

}  // namespace

std::string OnnxWriter::Activate(const Node& node, const std::string& value, Channels channels) {
  switch (node.activation) {
    case v1::RELU: return Op("Relu", {value});
    case v1::RELU6: return Op("Clip", {value, Scalar("zero", 0), Scalar("most", ActivationAlpha(node))});
    case v1::LEAKY_RELU: return WithAlpha(*this, "LeakyRelu", value, node.negative_slope);
    case v1::ELU: return WithAlpha(*this, "Elu", value, ActivationAlpha(node));
    case v1::SIGMOID: return Op("Sigmoid", {value});
    case v1::TANH: return Op("Tanh", {value});
    case v1::SOFTPLUS: return Op("Softplus", {value});
    case v1::SILU: return Op("Mul", {value, Op("Sigmoid", {value})});
    case v1::SOFTMAX:
    case v1::LOG_SOFTMAX: {
      const std::string y = Op(node.activation == v1::SOFTMAX ? "Softmax" : "LogSoftmax", {value});
      Int("axis", channels == Channels::kFirst && node.output.size() > 1 ? 1 : -1);
      return y;
    }
    case v1::GELU: return Gelu(*this, value);
    case v1::GELU_TANH: return GeluTanh(*this, value);
    case v1::SELU: return Op("Selu", {value});
    case v1::HARD_SIGMOID:
    case v1::HARD_SIGMOID_KERAS2: return WithAlpha(*this, "HardSigmoid", value, ActivationAlpha(node));
    case v1::HARD_SILU:  // HardSwish exists since opset 14
      return Op("Mul", {value, WithAlpha(*this, "HardSigmoid", value, 1.0f / 6)});
    case v1::EXPONENTIAL: return Op("Exp", {value});
    case v1::SOFTSIGN: return Op("Softsign", {value});
    case v1::MISH: return Op("Mul", {value, Op("Tanh", {Op("Softplus", {value})})});
    case v1::LOG_SIGMOID:
      return Op("Mul", {Op("Softplus", {Op("Mul", {value, Scalar("minus", -1)})}), Scalar("minus", -1)});
    case v1::CELU: return WithAlpha(*this, "Celu", value, ActivationAlpha(node));
    case v1::HARD_TANH: return Op("Clip", {value, Scalar("least", -1), Scalar("most", 1)});
    case v1::TANH_SHRINK: return Op("Add", {value, Op("Mul", {Op("Tanh", {value}), Scalar("minus", -1)})});
    case v1::SOFT_SHRINK: return Shrink(*this, value, ActivationAlpha(node), ActivationAlpha(node));
    case v1::HARD_SHRINK: return Shrink(*this, value, ActivationAlpha(node), 0);
    case v1::THRESHOLD: return Threshold(*this, value, node.alpha);
    case v1::SQUAREPLUS: {
      const std::string square = Op("Add", {Op("Mul", {value, value}), Scalar("four", 4)});
      return Op("Mul", {Op("Add", {value, Op("Sqrt", {square})}), Scalar("half", 0.5f)});
    }
    case v1::SPARSE_PLUS: return SparsePlus(*this, value);
    case v1::SPARSE_SIGMOID: {
      const std::string half = Op("Mul", {Op("Add", {value, Scalar("one", 1)}), Scalar("half", 0.5f)});
      return Op("Clip", {half, Scalar("zero", 0), Scalar("one", 1)});
    }
    default: return value;
  }
}

void OnnxWriter::Finish(const Node& node, const std::string& value, Channels channels) {
  SetOutput(node, Activate(node, value, channels), channels);
}

void OnnxWriter::Join(const Node& node, const char* two, const char* more) {
  Channels channels = Channels::kLast;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (Has(node, i) == Channels::kFirst) channels = Channels::kFirst;
  }
  Names inputs;
  for (size_t i = 0; i < node.inputs.size(); ++i) inputs.push_back(In(node, i, channels));
  SetOutput(node, Op(inputs.size() == 2 ? two : more, inputs), channels);
}

std::string OnnxWriter::ScaleAndCenter(const Node& node, std::string value, const Shape& dims) {
  if (const std::string gamma = VariableOf(node, "gamma", {}, dims); !gamma.empty()) value = Op("Mul", {value, gamma});
  if (const std::string beta = VariableOf(node, "beta", {}, dims); !beta.empty()) value = Op("Add", {value, beta});
  return value;
}

void OnnxWriter::WriteOnSteps(const Node& node) {
  const Graph steps = StepGraph(graph_, node);
  Node step = steps.output();
  step.shares = node.shares;
  std::vector<int64_t> folded = {-1}, unfolded = {-1, node.output[0]};
  folded.insert(folded.end(), steps.input_shape().begin(), steps.input_shape().end());
  unfolded.insert(unfolded.end(), step.output.begin(), step.output.end());
  const std::string value = Op("Reshape", {In(node, 0, Channels::kLast), Whole("folded", folded)});
  OnnxWriter inner(steps, space_, out_);
  inner.layer_ = layer_;
  inner.names_ = std::move(names_);
  inner.places_ = std::move(places_);
  inner.variables_ = variables_;
  for (const int id : node.variables) {
    inner.variable_ids_.push_back(variable_ids_.empty() ? id : variable_ids_[static_cast<size_t>(id)]);
  }
  inner.outputs_[0].last = value;
  TypeOf(step.kind).write_onnx(step, inner);
  Node next;
  next.inputs = {step.id};
  const std::string output = inner.In(next, 0, Channels::kLast);
  names_ = std::move(inner.names_);
  places_ = std::move(inner.places_);
  SetOutput(node, Op("Reshape", {output, Whole("unfolded", unfolded)}), Channels::kLast);
}

}  // namespace cairn
