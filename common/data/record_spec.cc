#include "common/data/record_spec.h"

#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/text.h"
#include "common/data/limits.h"
#include "common/data/picture.h"
#include "common/data/table.h"
#include "common/model/target_check.h"

namespace cairn {
namespace {

using Encoding = v1::TfRecord::Encoding;

std::string Describe(const RecordFeatures& features) {
  std::vector<std::string> texts;
  for (const auto& [name, feature] : features) {
    if (texts.size() == kTfRecordFeaturesShownMax) {
      texts.push_back("...");
      break;
    }
    const std::string kind = feature.place.kind == FeatureKind::kBytes && feature.values == 1
                                 ? absl::StrFormat("%d bytes", feature.bytes.size())
                                 : absl::StrFormat("%s of %d", ToText(feature.place.kind), feature.values);
    texts.push_back(absl::StrFormat("\"%s\" (%s)", ToUtf8(CutUtf8(name, 60)), kind));
  }
  return texts.empty() ? "no features" : absl::StrJoin(texts, ", ");
}

absl::StatusOr<std::string> ChooseFeature(const std::string& asked, const char* field,
                                          const std::vector<std::string>& usual, const RecordFeatures& features) {
  if (!asked.empty()) {
    if (features.contains(asked)) return asked;
    return absl::InvalidArgumentError(absl::StrFormat("data.tfrecord.%s: there is no feature \"%s\"; the record has %s",
                                                      field, asked, Describe(features)));
  }
  for (const std::string& name : usual) {
    if (features.contains(name)) return name;
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("data.tfrecord.%s: missing, and the record has none of \"%s\"; it has %s; name one of them",
                      field, absl::StrJoin(usual, "\", \""), Describe(features)));
}

absl::StatusOr<Encoding> ChooseEncoding(const v1::TfRecord& asked, const std::string& input,
                                        const RecordFeature& feature) {
  const bool bytes = feature.place.kind == FeatureKind::kBytes;
  Encoding encoding = asked.encoding();
  if (encoding == v1::TfRecord::TEXT) {
    return absl::InvalidArgumentError(
        "data.tfrecord.encoding: TEXT, but the model's input takes numbers; give it an input with text: true");
  }
  if (encoding == v1::TfRecord::ENCODING_AUTO) {
    encoding = !bytes                     ? v1::TfRecord::NUMBERS
               : IsPicture(feature.bytes) ? v1::TfRecord::JPEG_OR_PNG
                                          : v1::TfRecord::RAW_UINT8;
  }
  if (!v1::TfRecord::Encoding_IsValid(encoding)) {
    return absl::InvalidArgumentError(absl::StrFormat("data.tfrecord.encoding: %d is not known", encoding));
  }
  if (bytes == (encoding == v1::TfRecord::NUMBERS) || feature.place.kind == FeatureKind::kEmpty) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "data.tfrecord.encoding: %s, but feature \"%s\" is a %s; use %s", v1::TfRecord::Encoding_Name(encoding), input,
        ToText(feature.place.kind), bytes ? "JPEG_OR_PNG, RAW_UINT8 or RAW_FLOAT32" : "NUMBERS"));
  }
  return encoding;
}

// Reads "image/height" and similar features, which many writers store next to the bytes; 0: missing.
int64_t SideFeature(const RecordFeatures& features, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const auto it = features.find(name);
    if (it == features.end() || it->second.place.kind != FeatureKind::kInts || it->second.values != 1) continue;
    if (it->second.number >= 1 && it->second.number <= 1 << 16) return static_cast<int64_t>(it->second.number);
  }
  return 0;
}

// The shape of inputs that do not contain their shape; empty: unknown.
Shape KnownShape(const v1::TfRecord& asked, const Shape& input_shape, const RecordFeatures& features) {
  if (asked.shape_size() > 0) return {asked.shape().begin(), asked.shape().end()};
  if (!input_shape.empty()) return input_shape;
  const Shape beside = {SideFeature(features, {"image/height", "height"}),
                        SideFeature(features, {"image/width", "width"}),
                        SideFeature(features, {"image/channels", "image/depth", "channels", "depth"})};
  return NumElements(beside) > 0 ? beside : Shape();
}

// 0: the shape is empty, or too large for an example.
int64_t CountNumbers(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t d : shape) {
    if (d < 1 || d > kTfRecordNumbersMax / count) return 0;
    count *= d;
  }
  return count;
}

// Resolves data.inputs: lists whose lengths are those in the first record.
absl::Status ResolveInputs(const v1::Data& data, const RecordFeatures& features, RecordSpec* spec) {
  spec->encoding = v1::TfRecord::NUMBERS;
  for (int i = 0; i < data.inputs_size(); ++i) {
    const bool text = data.inputs(i).text();
    std::string name = data.inputs(i).feature();
    const std::string field = absl::StrFormat("data.inputs[%d].feature", i);
    if (name.empty()) {  // of a model with one input
      CAIRN_ASSIGN_OR_RETURN(name, ChooseFeature(data.tfrecord().input(), "input", {"text", "x"}, features));
    }
    const auto found = features.find(name);
    if (found == features.end()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: there is no feature \"%s\"; the record has %s", field, name, Describe(features)));
    }
    if (name == spec->label) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: \"%s\" is the label too; name two features of %s", field, name, Describe(features)));
    }
    const FeatureKind kind = found->second.place.kind;
    if (text && kind != FeatureKind::kBytes) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: \"%s\" is a %s, and the model's input takes texts, a bytes_list; name another feature, or let the model "
          "take numbers",
          field, name, ToText(kind)));
    }
    if (!text && (kind == FeatureKind::kBytes || kind == FeatureKind::kEmpty)) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: \"%s\" is a %s; of several inputs each is a float_list or an int64_list", field, name, ToText(kind)));
    }
    spec->inputs.push_back({name, Shape{found->second.values}, text});
    spec->example_size += found->second.values;
  }
  spec->input = spec->inputs[0].feature;
  spec->shape = {spec->example_size};
  if (spec->example_size <= kTfRecordNumbersMax) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "data.inputs: %d numbers in the first record; an example has 1 to %d", spec->example_size, kTfRecordNumbersMax));
}

}  // namespace

absl::StatusOr<RecordFeatures> ReadRecordFeatures(absl::string_view record) {
  ByteWindow window(record);
  RecordFeatures features;
  const auto visit = [&](absl::string_view name, const FeaturePlace& place) -> absl::Status {
    RecordFeature feature;
    feature.place = place;
    if (place.kind == FeatureKind::kBytes) {
      CAIRN_RETURN_IF_ERROR(WalkBytes(window, place, [&](uint64_t begin, uint64_t end) {
        if (feature.values++ == 0) feature.bytes = record.substr(begin, end - begin);
        return true;
      }));
    } else if (place.kind != FeatureKind::kEmpty) {
      CAIRN_RETURN_IF_ERROR(WalkNumbers(window, place, [&](double value) {
        if (feature.values++ == 0) feature.number = value;
        return true;
      }));
    }
    features[std::string(name)] = feature;
    return absl::OkStatus();
  };
  CAIRN_RETURN_IF_ERROR(WalkFeatures(window, 0, record.size(), visit));
  return features;
}

absl::StatusOr<RecordSpec> ResolveRecordSpec(const v1::Data& data, const Shape& input_shape,
                                             const RecordFeatures& features) {
  const v1::TfRecord& asked = data.tfrecord();
  RecordSpec spec;
  spec.label_offset = asked.label_offset();
  if (TakesLabel(data)) {
    CAIRN_ASSIGN_OR_RETURN(spec.label,
                           ChooseFeature(asked.label(), "label", {"image/class/label", "label", "y"}, features));
  }
  for (const v1::TargetSource& target : data.targets()) {
    if (target.feature().empty()) continue;
    spec.targets.push_back({target.feature(), Shape(target.shape().begin(), target.shape().end()), false});
  }
  spec.weight = data.weight_column();
  if (!data.inputs().empty()) {
    CAIRN_RETURN_IF_ERROR(ResolveInputs(data, features, &spec));
    return spec;
  }
  CAIRN_ASSIGN_OR_RETURN(spec.input,
                         ChooseFeature(asked.input(), "input", {"image/encoded", "image", "image_raw", "x"}, features));
  if (spec.input == spec.label) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "data.tfrecord.input: \"%s\" is the label too; name two features of %s", spec.input, Describe(features)));
  }
  const RecordFeature& input = features.at(spec.input);
  CAIRN_ASSIGN_OR_RETURN(spec.encoding, ChooseEncoding(asked, spec.input, input));
  for (int32_t d : asked.shape()) {
    if (d < 1 || d > kTfRecordNumbersMax)
      return absl::InvalidArgumentError(absl::StrFormat("data.tfrecord.shape: %d; use 1 and more", d));
  }
  if (spec.encoding == v1::TfRecord::JPEG_OR_PNG) {
    if (asked.shape_size() > 0) {
      return absl::InvalidArgumentError(
          "data.tfrecord.shape: pictures of JPEG and PNG are resized to the model's input, or to data.image_height and "
          "image_width; leave shape out");
    }
    v1::Data sized = data;
    if (input_shape.empty() && data.image_height() == 0 &&
        data.image_width() == 0) {  // no size was requested: that of the first picture
      CAIRN_ASSIGN_OR_RETURN(const PictureSize size,
                             DecodePictureSize(absl::StrFormat("feature \"%s\"", spec.input), input.bytes));
      sized.set_image_height(static_cast<int32_t>(size.height));
      sized.set_image_width(static_cast<int32_t>(size.width));
    }
    CAIRN_ASSIGN_OR_RETURN(spec.shape, PictureShape(sized, input_shape));
  } else {
    spec.shape = KnownShape(asked, input_shape, features);
    if (spec.shape.empty()) {
      spec.shape = {spec.encoding == v1::TfRecord::NUMBERS       ? input.values
                    : spec.encoding == v1::TfRecord::RAW_FLOAT32 ? static_cast<int64_t>(input.bytes.size() / 4)
                                                                 : static_cast<int64_t>(input.bytes.size())};
    }
  }
  spec.example_size = CountNumbers(spec.shape);
  if (spec.example_size == 0) {
    return absl::InvalidArgumentError(absl::StrFormat("data.tfrecord.shape: %s; an example has 1 to %d numbers",
                                                      ToString(spec.shape), kTfRecordNumbersMax));
  }
  return spec;
}

}  // namespace cairn
