// Discretization: the index of the bucket that contains a number.
#include <cmath>

#include "common/model/layers/categories.h"
#include "common/model/layers/table.h"
#include "common/model/limits.h"

namespace cairn::layers {
namespace {

constexpr float kEpsilonOfKeras = 0.01f;  // used by adapt() only

absl::Status InferDiscretization(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  v1::Discretization* layer = node->layer.mutable_discretization();
  if (layer->bin_boundaries().empty()) {
    return Bad(
        "bin_boundaries are missing; give them, such as [0, 1.5, 3]: those that Keras' adapt() found are in "
        "layer.bin_boundaries");
  }
  for (int i = 0; i < layer->bin_boundaries_size(); ++i) {
    const float boundary = layer->bin_boundaries(i);
    if (!std::isfinite(boundary)) return Bad("bin_boundaries ", boundary, " is not finite; use numbers");
    if (i > 0 && boundary < layer->bin_boundaries(i - 1)) {
      return Bad("bin_boundaries: ", boundary, " follows ", layer->bin_boundaries(i - 1), "; give them rising");
    }
  }
  if (layer->has_num_bins() && layer->num_bins() != layer->bin_boundaries_size() + 1) {
    return Bad("num_bins ", layer->num_bins(), " with ", layer->bin_boundaries_size(), " bin_boundaries: these make ",
               layer->bin_boundaries_size() + 1, " bins; leave num_bins out");
  }
  if (!(layer->epsilon() >= 0 && std::isfinite(layer->epsilon()))) {
    return Bad("epsilon ", layer->epsilon(), " is not a number from 0; leave it out");
  }
  CAIRN_RETURN_IF_ERROR(ResolveMode({v1::INT, v1::ONE_HOT, v1::MULTI_HOT, v1::COUNT}, layer));
  CAIRN_ASSIGN_OR_RETURN(node->output, CategoryCodeOf(node->layer).Of(inputs[0]));
  return absl::OkStatus();
}

void ReadDiscretization(KerasConfig& c, v1::Layer* layer) {
  v1::Discretization* to = layer->mutable_discretization();
  if (const Json* boundaries = c.Take("bin_boundaries")) {
    if (!boundaries->is_array() || boundaries->size() > static_cast<size_t>(kNormalizationNumbersMax)) {
      return c.Refuse(absl::StrCat("bin_boundaries: ", ShownJson(*boundaries), " is not a list of numbers"));
    }
    for (const Json& number : *boundaries) {
      if (!number.is_number()) return c.Refuse(absl::StrCat("bin_boundaries: ", ShownJson(number), " is not a number"));
      to->add_bin_boundaries(static_cast<float>(number.get<double>()));
    }
  }
  if (c.Has("num_bins")) {
    int32_t bins = 0;
    c.Int("num_bins", &bins);
    to->set_num_bins(bins);
  }
  float epsilon = 0;
  c.Float("epsilon", &epsilon);
  if (epsilon != kEpsilonOfKeras) to->set_epsilon(epsilon);
  to->set_output_mode(ReadMode(c));
}

void WriteDiscretization(const Node& node, KerasWriter& c) {
  const v1::Discretization& layer = node.layer.discretization();
  c["bin_boundaries"] = OrderedJson::array();
  for (const float boundary : layer.bin_boundaries()) c["bin_boundaries"].push_back(KerasWriter::Rounded(boundary));
  c["num_bins"] = nullptr;
  if (layer.has_num_bins()) c["num_bins"] = layer.num_bins();
  c["epsilon"] = KerasWriter::Rounded(layer.epsilon() == 0 ? kEpsilonOfKeras : layer.epsilon());
  WriteMode(layer.output_mode(), c);
}

// The number of boundaries that are not above x, computed as all minus those above, so that NaN counts as beyond all.
void WriteOnnx(const Node& node, OnnxWriter& w) {
  const v1::Discretization& layer = node.layer.discretization();
  Shape dims = w.ShapeOf(node, 0);
  dims.push_back(1);
  const std::string x = w.Reshape(w.In(node, 0, Channels::kLast), dims);
  const std::vector<float> boundaries(layer.bin_boundaries().begin(), layer.bin_boundaries().end());
  const auto count = static_cast<int64_t>(boundaries.size());
  const std::string above = w.Op("Cast", {w.Op("Less", {x, w.Numbers("bin_boundaries", {count}, boundaries)})});
  w.Int("to", onnx::TensorProto::INT64);
  const std::string sum = w.Op("ReduceSum", {above, w.Whole("last", {-1})});
  w.Int("keepdims", 0);
  WriteOnnxCode(node, w.Op("Sub", {w.Whole("count", {count}), sum}), w);
}

constexpr KerasClass kKeras[] = {{"Discretization", ReadDiscretization}};

}  // namespace

constinit const LayerType kDiscretizationLayer = {
    .kind = LayerKind::kDiscretization,
    .field = v1::Layer::kDiscretization,
    .name = "discretization",
    .infer = InferDiscretization,
    .keras = kKeras,
    .write_keras = WriteDiscretization,
    .write_onnx = WriteOnnx,
};

}  // namespace cairn::layers
