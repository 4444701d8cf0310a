#include "common/model/target_check.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/base/limits.h"
#include "common/model/limits.h"
#include "common/model/model_inputs.h"

namespace cairn {
namespace {

bool TakesClassNumbers(v1::Loss::Kind kind) {
  return kind == v1::Loss::SPARSE_CATEGORICAL_CROSSENTROPY || kind == v1::Loss::CIRCLE;
}

// Whether the step moves no pixels, and so may be combined with a target per pixel.
bool KeepsPlaces(const v1::Augmentation& step) {
  switch (step.kind_case()) {
    case v1::Augmentation::kRandomBrightness:
    case v1::Augmentation::kRandomContrast:
    case v1::Augmentation::kRandomSaturation:
    case v1::Augmentation::kRandomHue:
    case v1::Augmentation::kRandomGrayscale:
    case v1::Augmentation::kRandomColorJitter:
    case v1::Augmentation::kRandomColorDegeneration:
    case v1::Augmentation::kRandomInvert:
    case v1::Augmentation::kRandomPosterization:
    case v1::Augmentation::kRandomSharpness:
    case v1::Augmentation::kRandomGaussianBlur:
    case v1::Augmentation::kAutoContrast:
    case v1::Augmentation::kEqualization:
    case v1::Augmentation::kSolarization:
    case v1::Augmentation::kCutout:
    case v1::Augmentation::kRandomErasing: return true;
    default: return false;
  }
}

absl::Status CheckAugmentations(const v1::Data& data, const v1::TargetSource& target) {
  if (target.pictures().empty()) return absl::OkStatus();
  for (int i = 0; i < data.augmentation_size(); ++i) {
    if (KeepsPlaces(data.augmentation(i))) continue;
    return Bad("data.augmentation[", i, "]: moves pixels of the example, but not of its target in data.targets; leave ",
               "it out, or use only steps that change colours");
  }
  return absl::OkStatus();
}

absl::Status CheckSource(const std::string& where, const v1::Data& data, const v1::TargetSource& target) {
  const int named = (target.columns_size() > 0 ? 1 : 0) + (target.feature().empty() ? 0 : 1) +
                    (target.input_itself() ? 1 : 0) + (target.pictures().empty() ? 0 : 1);
  if (named != 1) {
    return Bad(where, ": ", named == 0 ? "names no source" : "names several sources",
               "; name one of columns, feature, input_itself, pictures");
  }
  if (target.feature().size() > kFeatureNameBytesMax) {
    return Bad(where, ".feature: a name of more than ", kFeatureNameBytesMax, " bytes; use a shorter one");
  }
  if (!target.feature().empty() && target.feature() == data.tfrecord().input()) {
    return Bad(where, ".feature: \"", target.feature(), "\" is the input too; use input_itself: true");
  }
  if (target.pictures().size() > kPathBytesMax) {
    return Bad(where, ".pictures: longer than ", kPathBytesMax, " bytes; use a shorter path");
  }
  return absl::OkStatus();
}

// For data whose label is not a target.
absl::Status CheckNoLabel(const v1::Data& data) {
  if (TakesLabel(data)) return absl::OkStatus();
  if (!data.label_column().empty()) {
    return Bad("data.label_column: \"", data.label_column(), "\", but data.targets names the targets; ",
               "leave one of them out");
  }
  if (!data.tfrecord().label().empty()) {
    return Bad("data.tfrecord.label: \"", data.tfrecord().label(), "\", but data.targets names the targets; ",
               "leave one of them out");
  }
  return absl::OkStatus();
}

absl::Status CheckShape(const std::string& where, const v1::TargetSource& target, const Shape& wanted,
                        const Graph& graph, const Node& node) {
  const Shape named(target.shape().begin(), target.shape().end());
  const std::string output =
      absl::StrCat("layer \"", node.name, "\" gives ", ToString(node.output), " and the loss takes ", ToString(wanted));
  int64_t numbers = 1;
  for (int64_t d : named) {
    if (d < 1 || d > kLayerOutputMax / numbers) return Bad(where, ".shape: ", ToString(named), "; ", output);
    numbers *= d;
  }
  if (!named.empty() && numbers != NumElements(wanted)) {
    return Bad(where, ".shape: ", ToString(named), " has ", numbers, " numbers, but ", output, "; make them equal");
  }
  const Shape input = ModelInputShape(graph);
  if (target.input_itself() && NumElements(wanted) != NumElements(input)) {
    return Bad(where, ".input_itself: an example has the shape ", ToString(input), ", but ", output,
               "; end the model in the input's shape");
  }
  if (!target.pictures().empty()) {
    const Shape& shape = named.empty() ? wanted : named;
    if (shape.size() < 2 || shape.size() > 3 || (shape.size() == 3 && shape[2] != 1 && shape[2] != 3)) {
      return Bad(where, ".pictures: give [height, width], or 1 or 3 numbers a pixel, but ", output,
                 "; end the model in a picture");
    }
  }
  if (target.columns_size() > 0 && target.columns_size() != NumElements(wanted)) {
    return Bad(where, ".columns: ", target.columns_size(), " of them, but ", output, "; name ", NumElements(wanted));
  }
  return absl::OkStatus();
}

}  // namespace

Shape TargetShape(const v1::Loss& loss, const Shape& output) {
  if (loss.kind() == v1::Loss::CTC) return {output.front()};
  if (!TakesClassNumbers(loss.kind())) return output;
  return output.size() == 1 ? Shape{1} : Shape(output.begin(), output.end() - 1);
}

Shape WantedTarget(const v1::Loss& loss, const Shape& output, const v1::TargetSource& target) {
  const int64_t labels = target.shape_size() == 1 ? target.shape(0) : target.columns_size();
  const bool sequence = loss.kind() == v1::Loss::CTC && labels > 0 && labels <= output.front();
  return sequence ? Shape{labels} : TargetShape(loss, output);
}

InputScale ScaleOfInput(const Graph& graph) {
  if (graph.inputs().size() > 1) return {};
  const Node* only = nullptr;
  for (const Node& node : graph.nodes()) {
    if (std::find(node.inputs.begin(), node.inputs.end(), 0) == node.inputs.end()) continue;
    if (only != nullptr) return {};
    only = &node;
  }
  if (only == nullptr || only->kind != LayerKind::kRescaling) return {};
  return {only->layer.rescaling().scale(), only->layer.rescaling().offset()};
}

bool TakesLabel(const v1::Data& data) {
  if (data.targets().empty()) return true;
  return std::any_of(data.targets().begin(), data.targets().end(), IsLabel);
}

int InputTargetOf(const v1::Data& data) {
  const auto found = std::find_if(data.targets().begin(), data.targets().end(),
                                  [](const v1::TargetSource& target) { return target.input_itself(); });
  return found == data.targets().end() ? -1 : static_cast<int>(found - data.targets().begin());
}

int PictureTargetOf(const v1::Data& data) {
  const auto found = std::find_if(data.targets().begin(), data.targets().end(),
                                  [](const v1::TargetSource& target) { return !target.pictures().empty(); });
  return found == data.targets().end() ? -1 : static_cast<int>(found - data.targets().begin());
}

int64_t TargetPlace(const v1::Data& data, int target) {
  int64_t place = 0;
  for (int i = 0; i < target; ++i) {
    place += NumElements(Shape(data.targets(i).shape().begin(), data.targets(i).shape().end()));
  }
  return place;
}

bool TargetIsInput(const v1::Data& data) { return data.targets_size() == 1 && data.targets(0).input_itself(); }

bool TargetIsScaled(const v1::Data& data, const v1::Loss& loss) {
  return data.targets_size() == 1 && !data.targets(0).pictures().empty() && !TakesClassNumbers(loss.kind());
}

absl::Status CheckWeightColumn(const v1::Data& data) {
  if (data.weight_column().size() > kFeatureNameBytesMax) {
    return Bad("data.weight_column: a name of more than ", kFeatureNameBytesMax, " bytes; use a shorter one");
  }
  if (!data.weight_column().empty()) {
    const v1::Data::Format format = data.format();
    if (format != v1::Data::CSV && format != v1::Data::TFRECORD && format != v1::Data::AUTO) {
      return Bad("data.weight_column: only for formats CSV and TFRECORD, not ", v1::Data::Format_Name(format),
                 "; leave it out");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckTargetOf(const std::string& where, const v1::Data& data, const Shape& wanted, const Graph& graph,
                           const Node& output, v1::TargetSource* target) {
  CAIRN_RETURN_IF_ERROR(CheckSource(where, data, *target));
  CAIRN_RETURN_IF_ERROR(CheckNoLabel(data));
  CAIRN_RETURN_IF_ERROR(CheckTargetsAgainstData(data, data.format()));
  CAIRN_RETURN_IF_ERROR(CheckShape(where, *target, wanted, graph, output));
  CAIRN_RETURN_IF_ERROR(CheckAugmentations(data, *target));
  if (target->shape_size() > 0) return absl::OkStatus();
  for (int64_t d : wanted) target->add_shape(static_cast<int32_t>(d));
  return absl::OkStatus();
}

absl::Status CheckTargets(v1::JobSpec* spec, const Graph& graph) {
  v1::Data& data = *spec->mutable_data();
  const Node& output = graph.output();
  CAIRN_RETURN_IF_ERROR(CheckWeightColumn(data));
  if (data.targets().empty()) {
    if (output.output.size() == 1) return absl::OkStatus();
    return Bad("layer \"", output.name, "\": the model's output is ", ToString(output.output),
               ", but an example has one label; say in data.targets what the model is to give, as ",
               "targets { input_itself: true }, or put a flatten or global_average_pooling2d before the output");
  }
  if (data.targets_size() > 1) {
    return Bad("data.targets: ", data.targets_size(), " of them, but the model has one output; leave one");
  }
  v1::TargetSource& target = *data.mutable_targets(0);
  if (!target.output().empty() && target.output() != output.name) {
    return Bad("data.targets[0].output: \"", target.output(), "\", but the model's output is \"", output.name,
               "\"; leave it out");
  }
  return CheckTargetOf("data.targets[0]", data, WantedTarget(spec->loss(), output.output, target), graph, output,
                       &target);
}

absl::Status CheckTargetsAgainstData(const v1::Data& data, v1::Data::Format format) {
  const auto only = [&](const std::string& field, v1::Data::Format wanted) -> absl::Status {
    if (format == wanted || format == v1::Data::AUTO) return absl::OkStatus();
    return Bad(field, ": only for format ", v1::Data::Format_Name(wanted), ", not ", v1::Data::Format_Name(format),
               "; leave it out");
  };
  for (int i = 0; i < data.inputs_size(); ++i) {
    const std::string where = absl::StrCat("data.inputs[", i, "].");
    if (data.inputs(i).columns_size() > 0) CAIRN_RETURN_IF_ERROR(only(where + "columns", v1::Data::CSV));
    if (!data.inputs(i).feature().empty()) CAIRN_RETURN_IF_ERROR(only(where + "feature", v1::Data::TFRECORD));
  }
  for (int i = 0; i < data.targets_size(); ++i) {
    const std::string where = absl::StrCat("data.targets[", i, "].");
    const v1::TargetSource& target = data.targets(i);
    if (target.columns_size() > 0) CAIRN_RETURN_IF_ERROR(only(where + "columns", v1::Data::CSV));
    if (!target.feature().empty()) CAIRN_RETURN_IF_ERROR(only(where + "feature", v1::Data::TFRECORD));
    if (!target.pictures().empty()) CAIRN_RETURN_IF_ERROR(only(where + "pictures", v1::Data::IMAGE_FOLDER));
  }
  return absl::OkStatus();
}

}  // namespace cairn
