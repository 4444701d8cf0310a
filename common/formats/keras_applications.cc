// Layer classes that models of keras.applications define: InceptionResNetV2's CustomScaleLayer becomes two layers,
// ConvNeXt's LayerScale becomes one.
#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/formats/keras_converter.h"

namespace cairn {

// CustomScaleLayer(scale)([a, b]) is a + b * scale. scaled: the layer that computes b * scale.
absl::StatusOr<KerasConverter::Names> KerasConverter::AppendScaledSum(const Entry& entry, const KerasCall& call,
                                                                      v1::Layer scaled) {
  if (call.inputs.size() != 2) {
    return Bad("layer \"", ShownText(entry.name), "\" (", ShownText(entry.type), "): it takes ", call.inputs.size(),
               " inputs; give it two, of which the second is scaled");
  }
  v1::Layer sum;
  sum.set_name(made_.emplace(entry.json, entry.name).second ? entry.name : NameOfCall(entry.name));
  scaled.set_name(NameOfCall(absl::StrCat(entry.name, ".scale")));
  scaled.add_inputs(call.inputs[1]);
  sum.add_inputs(call.inputs[0]);
  sum.add_inputs(scaled.name());
  sum.mutable_add();
  head_used_ = head_used_ || call.inputs[0] == head_ || call.inputs[1] == head_;
  Names names = {sum.name()};
  PushAt(std::move(scaled), "");
  PushAt(std::move(sum), entry.path);
  return names;
}

// LayerScale(init_values, projection_dim) must have as many numbers as its input has channels.
absl::Status KerasConverter::CheckLayerScale(const Entry& entry, const KerasCall& call) const {
  const auto input = shapes_.find(call.inputs[0]);
  const Json& config = *entry.config;
  if (input == shapes_.end() || input->second.empty() || !config.contains("projection_dim")) return absl::OkStatus();
  const Json& given = config["projection_dim"];
  if (given == input->second.back()) return absl::OkStatus();
  return Bad("layer \"", ShownText(entry.name), "\" (", ShownText(entry.type), "): projection_dim: ", ShownJson(given),
             ", but its input has ", input->second.back(), " channels; make them equal");
}

}  // namespace cairn
