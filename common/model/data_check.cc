#include "common/model/data_check.h"

#include <cmath>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/base/limits.h"
#include "common/model/limits.h"

namespace cairn {
namespace {

constexpr int32_t kPrefetchDefault = 2;

// ---- augmentation ----

using Factor = google::protobuf::RepeatedField<float>;

// `field` is the whole name: data.augmentation[0].random_zoom.height_factor.
absl::Status CheckFactor(const std::string& field, const Factor& factor, float low, float high, bool rising,
                         const char* example) {
  if (factor.empty()) return Bad(field, ": missing; use ", example);
  if (factor.size() > 2) return Bad(field, ": ", factor.size(), " numbers; use one, or two: [low, high]");
  for (float f : factor) {
    if (!(f >= low && f <= high)) return Bad(field, ": ", f, " is outside [", low, ", ", high, "]; use ", example);
  }
  if (factor.size() == 1 && factor[0] < 0) {
    return Bad(field, ": ", factor[0], " is negative; one number f stands for [-f, f]: use ", example);
  }
  if (rising && factor.size() == 2 && factor[0] > factor[1]) {
    return Bad(field, ": its low ", factor[0], " is above its high ", factor[1], "; exchange them");
  }
  return absl::OkStatus();
}

absl::Status CheckFill(const std::string& step, v1::FillMode mode, float value) {
  if (!v1::FillMode_IsValid(mode)) {
    return Bad(step, ".fill_mode: ", static_cast<int>(mode),
               " is not known; use REFLECT, WRAP, FILL_CONSTANT or NEAREST_PIXEL");
  }
  if (!std::isfinite(value)) return Bad(step, ".fill_value: ", value, " is not finite; use 0, say");
  if (value != 0 && mode != v1::FILL_CONSTANT) {
    return Bad(step, ".fill_value: only for fill_mode FILL_CONSTANT; leave it out, or set fill_mode");
  }
  return absl::OkStatus();
}

absl::Status CheckCrop(const std::string& step, const v1::RandomCrop& crop, const Shape& shape) {
  if (crop.padding() < 0 || crop.padding() > kImageSideMax) {
    return Bad(step, ".padding: ", crop.padding(), " is not within 0 .. ", kImageSideMax, "; use 4, say");
  }
  const struct {
    const char* name;
    int64_t size, side;
  } sides[] = {{".height", crop.height(), shape[0]}, {".width", crop.width(), shape[1]}};
  for (const auto& side : sides) {
    const int64_t padded = side.side + 2 * crop.padding();
    if (side.size < 1) return Bad(step, side.name, ": ", side.size, " is not positive; use ", side.side, ", say");
    if (side.size > padded) {
      return Bad(step, side.name, ": ", side.size, " is more than the ", padded, " pixels of the picture",
                 crop.padding() > 0 ? " with its padding" : "", "; use a smaller part",
                 crop.padding() > 0 ? "" : ", or padding");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckStep(const std::string& where, const v1::Augmentation& step, const Shape& shape) {
  switch (step.kind_case()) {
    case v1::Augmentation::kRandomFlip:
      if (v1::RandomFlip::Mode_IsValid(step.random_flip().mode())) return absl::OkStatus();
      return Bad(where, ".random_flip.mode: ", static_cast<int>(step.random_flip().mode()),
                 " is not known; use HORIZONTAL, VERTICAL or HORIZONTAL_AND_VERTICAL");
    case v1::Augmentation::kRandomRotation: {
      const auto& s = step.random_rotation();
      const std::string name = where + ".random_rotation";
      CAIRN_RETURN_IF_ERROR(
          CheckFactor(name + ".factor", s.factor(), -1, 1, true, "0.1 for a tenth of a turn each way"));
      return CheckFill(name, s.fill_mode(), s.fill_value());
    }
    case v1::Augmentation::kRandomZoom: {
      const auto& s = step.random_zoom();
      const std::string name = where + ".random_zoom";
      CAIRN_RETURN_IF_ERROR(CheckFactor(name + ".height_factor", s.height_factor(), -1, 1, true, "0.2, say"));
      if (!s.width_factor().empty()) {
        CAIRN_RETURN_IF_ERROR(CheckFactor(name + ".width_factor", s.width_factor(), -1, 1, true, "0.2, say"));
      }
      return CheckFill(name, s.fill_mode(), s.fill_value());
    }
    case v1::Augmentation::kRandomTranslation: {
      const auto& s = step.random_translation();
      const std::string name = where + ".random_translation";
      CAIRN_RETURN_IF_ERROR(CheckFactor(name + ".height_factor", s.height_factor(), -1, 1, true, "0.1, say"));
      CAIRN_RETURN_IF_ERROR(CheckFactor(name + ".width_factor", s.width_factor(), -1, 1, true, "0.1, say"));
      return CheckFill(name, s.fill_mode(), s.fill_value());
    }
    case v1::Augmentation::kRandomCrop: return CheckCrop(where + ".random_crop", step.random_crop(), shape);
    case v1::Augmentation::kRandomBrightness:
      return CheckFactor(where + ".random_brightness.factor", step.random_brightness().factor(), -1, 1, true,
                         "0.2, say");
    case v1::Augmentation::kRandomContrast:
      return CheckFactor(where + ".random_contrast.factor", step.random_contrast().factor(), 0, 1, false, "0.2, say");
    case v1::Augmentation::kCutout:
      if (step.cutout().size() < 1 || step.cutout().size() > kImageSideMax) {
        return Bad(where, ".cutout.size: ", step.cutout().size(), " is not within 1 .. ", kImageSideMax,
                   "; use half the picture's side, say");
      }
      if (!std::isfinite(step.cutout().fill_value())) return Bad(where, ".cutout.fill_value: not finite; use 0, say");
      return absl::OkStatus();
    default: break;
  }
  return Bad(where,
             ": says nothing; name one of random_flip, random_rotation, random_zoom, random_translation, random_crop, "
             "random_brightness, random_contrast, cutout");
}

// ---- data ----

absl::Status CheckTfRecord(const v1::Data& data, const Shape& input) {
  if (!data.has_tfrecord()) return absl::OkStatus();
  const v1::TfRecord& t = data.tfrecord();
  if (data.format() != v1::Data::TFRECORD && data.format() != v1::Data::AUTO) {
    return Bad("data.tfrecord: only for format TFRECORD, not ", v1::Data::Format_Name(data.format()),
               "; leave one of them out");
  }
  if (t.input().size() > kFeatureNameBytesMax || t.label().size() > kFeatureNameBytesMax) {
    return Bad("data.tfrecord: a feature's name of more than ", kFeatureNameBytesMax, " bytes; use a shorter one");
  }
  if (!t.input().empty() && t.input() == t.label()) {
    return Bad("data.tfrecord.label: \"", t.label(), "\" is the input too; name another feature");
  }
  if (!v1::TfRecord::Encoding_IsValid(t.encoding())) {
    return Bad("data.tfrecord.encoding: ", static_cast<int>(t.encoding()),
               " is not known; use JPEG_OR_PNG, RAW_UINT8, RAW_FLOAT32, NUMBERS, or leave it out");
  }
  if (t.shape_size() == 0) return absl::OkStatus();
  Shape shape(t.shape().begin(), t.shape().end());
  int64_t numbers = 1;
  for (int64_t d : shape) {
    if (d < 1 || d > kLayerOutputMax / numbers) {
      return Bad("data.tfrecord.shape: ", ToString(shape),
                 " has a size that is not positive, or too many numbers; use that of one example");
    }
    numbers *= d;
  }
  if (shape.size() > kFeatureDimensionsMax)
    return Bad("data.tfrecord.shape: more than ", kFeatureDimensionsMax, " sizes; use fewer");
  if (numbers != NumElements(input)) {
    return Bad("data.tfrecord.shape: ", ToString(shape), " has ", numbers, " numbers, the model's input ",
               ToString(input), " has ", NumElements(input), "; make them equal, or leave shape out");
  }
  return absl::OkStatus();
}

absl::Status CheckData(v1::Data* data, const Shape& input) {
  if (data->cache_dir().size() > kPathBytesMax) {
    return Bad("data.cache_dir: longer than ", kPathBytesMax, " bytes; use a shorter one");
  }
  if (!data->cache_dir().empty() && data->cache_dir()[0] != '/') {
    return Bad("data.cache_dir: \"", data->cache_dir(),
               "\" is not absolute; give the directory as every worker sees it");
  }
  if (!data->has_prefetch()) data->set_prefetch(kPrefetchDefault);
  if (data->prefetch() < 0 || data->prefetch() > kPrefetchMax) {
    return Bad("data.prefetch: ", data->prefetch(), " is not within 0 .. ", kPrefetchMax, "; use ", kPrefetchDefault,
               ", or 0 for none");
  }
  CAIRN_RETURN_IF_ERROR(CheckTfRecord(*data, input));
  return CheckAugmentation(*data, input);
}

// ---- loss ----

absl::Status CheckClassWeights(const v1::JobSpec& spec, int64_t outputs) {
  if (spec.class_weight().empty()) return absl::OkStatus();
  const v1::Loss::Kind kind = spec.loss().kind();
  const bool binary = kind == v1::Loss::BINARY_CROSSENTROPY;
  if (!IsCategorical(kind) && !(binary && outputs == 1)) {
    return Bad("class_weight: needs classes, but the loss is ", v1::Loss::Kind_Name(kind),
               binary ? " over several outputs" : "",
               "; leave class_weight out, or use SPARSE_CATEGORICAL_CROSSENTROPY");
  }
  const int64_t classes = binary ? 2 : outputs;
  std::set<int32_t> seen;
  for (int i = 0; i < spec.class_weight_size(); ++i) {
    const v1::ClassWeight& w = spec.class_weight(i);
    if (w.class_id() < 0 || w.class_id() >= classes) {
      return Bad("class_weight[", i, "].class_id: ", w.class_id(), " is not one of the model's classes 0 .. ",
                 classes - 1, "; use one of them");
    }
    if (!seen.insert(w.class_id()).second) {
      return Bad("class_weight[", i, "].class_id: ", w.class_id(), " has a weight already; remove one of them");
    }
    if (!(w.weight() >= 0) || !std::isfinite(w.weight())) {
      return Bad("class_weight[", i, "].weight: ", w.weight(), " is negative or not finite; use a number such as 2");
    }
  }
  return absl::OkStatus();
}

}  // namespace

Shape ExampleShape(const v1::Data& data, const Shape& input_shape) {
  if (data.image_height() == 0 || data.image_width() == 0 || input_shape.size() != 3) return input_shape;
  return {data.image_height(), data.image_width(), input_shape[2]};
}

absl::Status CheckAugmentation(const v1::Data& data, const Shape& input_shape) {
  if (data.augmentation().empty()) return absl::OkStatus();
  if (data.augmentation_size() > kAugmentationsMax) {
    return Bad("data.augmentation: ", data.augmentation_size(), " steps; at most ", kAugmentationsMax, " are allowed");
  }
  if (input_shape.size() != 3) {
    return Bad("data.augmentation: for pictures, but the model's input is ", ToString(input_shape),
               "; leave it out, or make the input [height, width, channels]");
  }
  Shape shape = ExampleShape(data, input_shape);
  for (int i = 0; i < data.augmentation_size(); ++i) {
    CAIRN_RETURN_IF_ERROR(CheckStep(absl::StrCat("data.augmentation[", i, "]"), data.augmentation(i), shape));
    if (data.augmentation(i).has_random_crop()) shape = input_shape;
  }
  if (shape == input_shape) return absl::OkStatus();
  return Bad("data.image_height: pictures are resized to ", ToString(shape), ", but the model's input is ",
             ToString(input_shape), "; make them equal, or make one of the other by a random_crop");
}

absl::Status CheckDataPipeline(v1::JobSpec* spec, const Graph& graph) {
  CAIRN_RETURN_IF_ERROR(CheckData(spec->mutable_data(), graph.input_shape()));
  return CheckClassWeights(*spec, graph.output().output.back());
}

absl::Status CheckDataPipelineAgainstData(const v1::JobSpec& spec, const v1::DataInfo& data) {
  if (spec.data().has_tfrecord() && data.format() != v1::Data::TFRECORD) {
    return Bad("data.tfrecord: only for format TFRECORD, but ", data.path(), " is ",
               v1::Data::Format_Name(data.format()), "; leave it out");
  }
  for (int i = 0; i < spec.class_weight_size(); ++i) {
    if (data.classes() > 0 && spec.class_weight(i).class_id() >= data.classes()) {
      return Bad("class_weight[", i, "].class_id: ", spec.class_weight(i).class_id(), ", but ", data.path(),
                 " has the ", data.classes(), " classes 0 .. ", data.classes() - 1, "; use one of them");
    }
  }
  return absl::OkStatus();
}

}  // namespace cairn
