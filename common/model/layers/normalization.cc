// Normalization with given numbers, or with numbers adapted to the data before training: (x - mean) / sqrt(variance).
#include <algorithm>
#include <cmath>

#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/axes.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/limits.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

constexpr double kDeviationMin = 1e-7;  // Keras' backend.epsilon()

absl::Status CheckNumbers(const char* field, const google::protobuf::RepeatedField<float>& numbers, int64_t count) {
  if (numbers.size() != 1 && numbers.size() != count) {
    return Bad(field, " has ", numbers.size(), " numbers, but the axes have ", count, "; give one for all, or ", count);
  }
  for (const float number : numbers) {
    if (!std::isfinite(number)) return Bad(field, " ", number, " is not finite; use numbers");
  }
  return absl::OkStatus();
}

// If no numbers are given, they are variables, as in Keras: a file of weights contains them.
absl::Status InferNormalization(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  const Shape& input = inputs[0];
  v1::Normalization* norm = node->layer.mutable_normalization();
  if (norm->all() && !norm->axis().empty()) {
    return Bad("all: one mean for all numbers, but axis names axes too; leave one of the two out");
  }
  if (!norm->all()) CAIRN_RETURN_IF_ERROR(ResolveAxes("axis", input, norm->mutable_axis()));
  const Shape shape = SizesOf(input, norm->axis());
  const int64_t count = NumElements(shape);
  if (norm->mean().empty() != norm->variance().empty()) {
    return Bad(norm->mean().empty() ? "mean" : "variance", " is missing; give mean and variance, or neither");
  }
  if (!norm->mean().empty()) {
    CAIRN_RETURN_IF_ERROR(CheckNumbers("mean", norm->mean(), count));
    CAIRN_RETURN_IF_ERROR(CheckNumbers("variance", norm->variance(), count));
    for (const float variance : norm->variance()) {
      if (variance < 0) return Bad("variance ", variance, " is negative; use numbers from 0");
    }
    return absl::OkStatus();
  }
  CAIRN_RETURN_IF_ERROR(AddVariable(*node, "mean", shape, OfKind(v1::Initializer::ZEROS), variables));
  CAIRN_RETURN_IF_ERROR(AddVariable(*node, "variance", shape, OfKind(v1::Initializer::ONES), variables));
  CAIRN_RETURN_IF_ERROR(AddVariable(*node, "count", {}, OfKind(v1::Initializer::ZEROS), variables));
  for (size_t i = variables->size() - 3; i < variables->size(); ++i) (*variables)[i].kind = VariableKind::kFrozen;
  return absl::OkStatus();
}

// Reads a number, or nested lists of numbers.
void ReadNumbers(KerasConfig& c, const char* key, const Json& value, google::protobuf::RepeatedField<float>* out) {
  if (value.is_number()) {
    if (out->size() >= kNormalizationNumbersMax) return c.Refuse(absl::StrCat(key, ": too many numbers"));
    return out->Add(static_cast<float>(value.get<double>()));
  }
  if (!value.is_array()) return c.Refuse(absl::StrCat(key, ": ", ShownJson(value), " is neither a number nor a list"));
  for (const Json& item : value) ReadNumbers(c, key, item, out);
}

void ReadNormalization(KerasConfig& c, v1::Layer* layer) {
  v1::Normalization* norm = layer->mutable_normalization();
  bool invert = false;
  c.Bool("invert", &invert);
  norm->set_invert(invert);
  norm->set_all(c.Has("axis"));  // an empty list (keras_dialect.h)
  ReadAxes(c, norm->mutable_axis());
  if (!norm->axis().empty()) norm->set_all(false);
  if (const Json* mean = c.Take("mean")) ReadNumbers(c, "mean", *mean, norm->mutable_mean());
  if (const Json* variance = c.Take("variance")) ReadNumbers(c, "variance", *variance, norm->mutable_variance());
}

void WriteNormalization(const Node& node, KerasWriter& c) {
  const v1::Normalization& norm = node.layer.normalization();
  c.Ints("axis", norm.axis());
  c["invert"] = norm.invert();
  const auto numbers = [&](const char* key, const google::protobuf::RepeatedField<float>& values) {
    c[key] = nullptr;
    if (values.size() == 1) c[key] = KerasWriter::Rounded(values[0]);
    if (values.size() > 1) c[key] = OrderedJson::array();
    for (int i = 0; values.size() > 1 && i < values.size(); ++i) c[key].push_back(KerasWriter::Rounded(values[i]));
  };
  numbers("mean", norm.mean());
  numbers("variance", norm.variance());
}

// Writes the numbers in the order of the value's axes, or one number.
void WriteOnnx(const Node& node, OnnxWriter& w) {
  const v1::Normalization& norm = node.layer.normalization();
  const std::string x = w.In(node, 0, Channels::kLast);
  const Shape dims = KeptShape(node.output, norm.axis());
  std::string mean, deviation;
  if (norm.mean().empty()) {
    std::vector<int> axes(static_cast<size_t>(norm.axis_size()));
    for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int>(i);
    mean = w.VariableOf(node, "mean", axes, dims);
    deviation = w.Op("Max", {w.Op("Sqrt", {w.VariableOf(node, "variance", axes, dims)}),
                             w.Scalar("smallest", static_cast<float>(kDeviationMin))});
    w.VariableOf(node, "count");  // not used in the computation; the import reads it
  } else {
    std::vector<float> deviations;
    for (const float v : norm.variance())
      deviations.push_back(static_cast<float>(std::max(std::sqrt(static_cast<double>(v)), kDeviationMin)));
    const std::vector<float> means(norm.mean().begin(), norm.mean().end());
    mean = w.Numbers("mean", means.size() == 1 ? Shape{} : dims, means);
    deviation = w.Numbers("deviation", deviations.size() == 1 ? Shape{} : dims, deviations);
  }
  const std::string y = norm.invert() ? w.Op("Add", {w.Op("Mul", {x, deviation}), mean})
                                      : w.Op("Div", {w.Op("Sub", {x, mean}), deviation});
  w.SetOutput(node, y, Channels::kLast);
}

constexpr KerasClass kKeras[] = {{"Normalization", ReadNormalization}};

}  // namespace

constinit const LayerType kNormalizationLayer = {
    .kind = LayerKind::kNormalization,
    .field = v1::Layer::kNormalization,
    .name = "normalization",
    .infer = InferNormalization,
    .keras = kKeras,
    .write_keras = WriteNormalization,
    .write_onnx = WriteOnnx,
};

}  // namespace cairn::layers
