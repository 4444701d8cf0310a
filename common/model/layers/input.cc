// The input layer: the data's examples.
#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_fields.h"
#include "common/model/keras/keras_shape.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/limits.h"
#include "common/model/onnx/onnx_writer.h"
#include "common/model/text_inputs.h"

namespace cairn::layers {
namespace {

absl::Status InferInput(absl::Span<const Shape>, Node* node, std::vector<Variable>*) {
  const Numbers& shape = node->layer.input().shape();
  const bool text = node->layer.input().text();
  if (text && shape.size() > 1) {
    return Bad("shape has ", shape.size(),
               " dimensions, and an input of texts has [] or [columns]; use several inputs");
  }
  if (shape.empty() && !text)
    return Bad("shape is missing; give it without the batch dimension, such as [28,28,1] or [64]");
  if (shape.size() > static_cast<int>(kSequenceDimensionsMax)) {
    return Bad("shape has ", shape.size(), " dimensions; give it without the batch dimension: [features], ",
               "[steps, features], [height, width, channels], [depth, height, width, channels] or ",
               "[steps, depth, height, width, channels]");
  }
  node->output.assign(shape.begin(), shape.end());
  if (node->output.empty()) node->output = {1};  // one text without an axis
  for (int64_t dim : node->output) {
    if (dim == -1) {
      return Bad("shape ", ToString(node->output), " is open, and nothing closes it; say data.image_height and ",
                 "data.image_width, or data.tfrecord.shape, or submit the job where its data is");
    }
    if (dim <= 0) return Bad("shape ", ToString(node->output), " has a dimension that is not positive");
  }
  return absl::OkStatus();
}

void ReadInput(KerasConfig& c, v1::Layer* layer) {
  c.Only("sparse", false, keras::kLeaveAway);
  c.Only("ragged", false, keras::kLeaveAway);
  c.Only("optional", false, keras::kLeaveAway);
  const Json* dtype = c.Take("dtype");
  const bool text = dtype != nullptr && *dtype == "string";
  if (dtype != nullptr && !text &&
      !(*dtype == "float32" || *dtype == "float64" || *dtype == "uint8" || *dtype == "int32" || *dtype == "int64")) {
    c.Refuse(absl::StrCat("dtype: ", ShownJson(*dtype), " is not supported; use float32, or string for texts"));
  }
  const Json* shape = c.Take(c.Has("batch_shape") ? "batch_shape" : "batch_input_shape");  // in Keras 3; in Keras 2
  if (!c.ok()) return;
  if (shape == nullptr) return c.Refuse("batch_shape is missing; give the model's input a shape");
  const absl::StatusOr<v1::InputLayer> input = ReadBatchShape(*shape);
  if (!input.ok()) return c.Refuse(input.status().message());
  *layer->mutable_input() = *input;
  if (text) layer->mutable_input()->set_text(true);
}

void WriteInput(const Node& node, KerasWriter& config) {
  config.Clear();
  config["batch_shape"] = OrderedJson::array({nullptr});
  for (const int32_t dim : node.layer.input().shape()) config["batch_shape"].push_back(dim);
  config["dtype"] = OfTexts(node) ? "string" : "float32";
  config["sparse"] = false;
  config["name"] = node.name;
}

constexpr KerasClass kKeras[] = {{"InputLayer", ReadInput}};

}  // namespace

constinit const LayerType kInputLayer = {
    .kind = LayerKind::kInput,
    .field = v1::Layer::kInput,
    .name = "input_layer",
    .inputs_min = 0,
    .inputs_max = 0,
    .infer = InferInput,
    .keras = kKeras,
    .write_keras = WriteInput,
    .write_onnx = [](const Node& node, OnnxWriter& w) { w.WriteInput(node); },
};

}  // namespace cairn::layers
