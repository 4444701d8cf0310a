// What several layers are made of.
#include <cmath>

#include "common/model/onnx/onnx_writer.h"

namespace cairn {

std::string OnnxWriter::Activate(const Node& node, const std::string& value, Channels channels) {
  switch (node.activation) {
    case v1::RELU: return Op("Relu", {value});
    case v1::RELU6: return Op("Clip", {value, Scalar("zero", 0), Scalar("six", 6)});
    case v1::LEAKY_RELU: {
      const std::string y = Op("LeakyRelu", {value});
      Float("alpha", node.negative_slope);
      return y;
    }
    case v1::ELU: {
      const std::string y = Op("Elu", {value});
      Float("alpha", node.alpha);
      return y;
    }
    case v1::SIGMOID: return Op("Sigmoid", {value});
    case v1::TANH: return Op("Tanh", {value});
    case v1::SOFTPLUS: return Op("Softplus", {value});
    case v1::SILU: return Op("Mul", {value, Op("Sigmoid", {value})});
    case v1::SOFTMAX: {
      const std::string y = Op("Softmax", {value});
      Int("axis", channels == Channels::kFirst && node.output.size() > 1 ? 1 : -1);
      return y;
    }
    case v1::GELU: {
      const std::string erf = Op("Erf", {Op("Div", {value, Scalar("sqrt_2", static_cast<float>(std::sqrt(2.0)))})});
      return Op("Mul", {Op("Mul", {value, Op("Add", {erf, Scalar("one", 1)})}), Scalar("half", 0.5f)});
    }
    case v1::GELU_TANH: {
      const std::string cube = Op("Mul", {Op("Pow", {value, Scalar("three", 3)}), Scalar("gelu_cubic", 0.044715f)});
      const std::string inner =
          Op("Mul", {Op("Add", {value, cube}), Scalar("sqrt_2_pi", static_cast<float>(std::sqrt(2 / M_PI)))});
      return Op("Mul", {Op("Mul", {value, Op("Add", {Op("Tanh", {inner}), Scalar("one", 1)})}), Scalar("half", 0.5f)});
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
  if (const std::string gamma = VariableOf(node, "gamma", {0}, dims); !gamma.empty()) value = Op("Mul", {value, gamma});
  if (const std::string beta = VariableOf(node, "beta", {0}, dims); !beta.empty()) value = Op("Add", {value, beta});
  return value;
}

}  // namespace cairn
