#include "common/data/record_target.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_format.h"
#include "common/data/picture.h"

namespace cairn {
namespace {

absl::Status WrongSize(const std::string& feature, int64_t has, const char* unit, const Shape& shape,
                       const FeatureRole& role) {
  return absl::DataLossError(
      absl::StrFormat("its %s \"%s\" has %d %s, the shape %s of %s takes %d; correct the record or the "
                      "model's output",
                      role.name, feature, has, unit, ToString(shape), role.field, NumElements(shape)));
}

absl::Status FromBytes(absl::string_view bytes, const std::string& feature, const Shape& shape,
                       absl::Span<float> target, const FeatureRole& role) {
  if (IsPicture(bytes)) {
    const std::string where = absl::StrFormat("feature \"%s\"", feature);
    const int channels = shape.size() == 3 ? static_cast<int>(shape[2]) : 1;
    if (shape.size() < 2 || shape.size() > 3 || (channels != 1 && channels != 3)) {
      return absl::DataLossError(
          absl::StrFormat("its %s \"%s\" is a picture, the shape %s of %s is none; name another feature", role.name,
                          feature, ToString(shape), role.field));
    }
    CAIRN_ASSIGN_OR_RETURN(const Picture picture, DecodePicture(where, bytes, channels));
    if (picture.height != shape[0] || picture.width != shape[1]) {
      return absl::DataLossError(absl::StrFormat("its %s \"%s\" is a picture of %d x %d pixels, the shape is %s",
                                                 role.name, feature, picture.height, picture.width, ToString(shape)));
    }
    std::copy(picture.pixels.begin(), picture.pixels.end(), target.begin());
  } else if (bytes.size() == target.size()) {
    for (size_t i = 0; i < bytes.size(); ++i) target[i] = static_cast<uint8_t>(bytes[i]);
  } else if (bytes.size() == target.size() * sizeof(float)) {
    std::memcpy(target.data(), bytes.data(), bytes.size());  // this machine is little-endian too
  } else {
    return WrongSize(feature, static_cast<int64_t>(bytes.size()), "bytes", shape, role);
  }
  return absl::OkStatus();
}

absl::Status FromNumbers(ByteWindow& window, const std::string& feature, const FeaturePlace& place, const Shape& shape,
                         absl::Span<float> target, const FeatureRole& role) {
  size_t count = 0;
  CAIRN_RETURN_IF_ERROR(WalkNumbers(window, place, [&](double value) {
    if (count < target.size()) target[count] = static_cast<float>(value);
    return ++count <= target.size();
  }));
  if (count == target.size()) return absl::OkStatus();
  return WrongSize(feature, static_cast<int64_t>(count), count > target.size() ? "numbers or more" : "numbers", shape,
                   role);
}

}  // namespace

absl::Status ReadTarget(absl::string_view record, const std::string& feature, const Shape& shape,
                        absl::Span<float> target, const FeatureRole& role) {
  ByteWindow window(record);
  FeaturePlace place;
  bool found = false;
  CAIRN_RETURN_IF_ERROR(
      WalkFeatures(window, 0, record.size(), [&](absl::string_view name, const FeaturePlace& at) -> absl::Status {
        if (name != feature) return absl::OkStatus();
        place = at;
        found = true;
        return absl::OkStatus();
      }));
  if (!found) {
    return absl::DataLossError(
        absl::StrFormat("has no feature \"%s\", which %s names; name another", feature, role.field));
  }
  if (place.kind != FeatureKind::kBytes) {
    CAIRN_RETURN_IF_ERROR(FromNumbers(window, feature, place, shape, target, role));
  } else {
    absl::string_view bytes;
    int64_t values = 0;
    CAIRN_RETURN_IF_ERROR(WalkBytes(window, place, [&](uint64_t begin, uint64_t end) {
      bytes = record.substr(begin, end - begin);
      return ++values < 2;
    }));
    if (values != 1) return absl::DataLossError(absl::StrFormat("its %s \"%s\" is not one value", role.name, feature));
    CAIRN_RETURN_IF_ERROR(FromBytes(bytes, feature, shape, target, role));
  }
  const auto bad = std::find_if_not(target.begin(), target.end(), [](float v) { return std::isfinite(v); });
  if (bad == target.end()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrFormat("its %s \"%s\": number %d (from 0) is %g; leave the record out or fill the value in", role.name,
                      feature, bad - target.begin(), *bad));
}

namespace {

// The bytes begin .. end - 1, which may be more than a window shows at once.
absl::StatusOr<std::string> ReadBytes(ByteWindow& window, uint64_t begin, uint64_t end) {
  std::string bytes;
  bytes.reserve(end - begin);
  while (begin < end) {
    const auto part = static_cast<size_t>(std::min<uint64_t>(end - begin, ByteWindow::kBytes));
    CAIRN_ASSIGN_OR_RETURN(const absl::string_view view, window.At(begin, part));
    bytes.append(view.data(), view.size());
    begin += part;
  }
  return bytes;
}

}  // namespace

absl::Status ReadTexts(ByteWindow& window, uint64_t begin, uint64_t end, const RecordFeaturePart& part,
                       TextStore* texts, std::vector<float>* numbers) {
  FeaturePlace place;
  bool found = false;
  CAIRN_RETURN_IF_ERROR(
      WalkFeatures(window, begin, end, [&](absl::string_view name, const FeaturePlace& at) -> absl::Status {
        if (name != part.feature) return absl::OkStatus();
        place = at;
        found = true;
        return absl::OkStatus();
      }));
  if (!found) {
    return absl::DataLossError(
        absl::StrFormat("has no feature \"%s\", which data.inputs names; name another", part.feature));
  }
  if (place.kind != FeatureKind::kBytes) {
    return absl::DataLossError(absl::StrFormat("its input \"%s\" is a %s, and the model's input takes texts",
                                               part.feature, ToText(place.kind)));
  }
  std::vector<std::pair<uint64_t, uint64_t>> ranges;
  CAIRN_RETURN_IF_ERROR(WalkBytes(window, place, [&](uint64_t from, uint64_t to) {
    ranges.emplace_back(from, to);
    return static_cast<int64_t>(ranges.size()) <= NumElements(part.shape);
  }));
  if (static_cast<int64_t>(ranges.size()) != NumElements(part.shape)) {
    return WrongSize(part.feature, static_cast<int64_t>(ranges.size()), "texts", part.shape, kInputRole);
  }
  for (const auto& [from, to] : ranges) {
    CAIRN_ASSIGN_OR_RETURN(const std::string text, ReadBytes(window, from, to));
    const absl::StatusOr<float> number = texts->Add(text);
    if (!number.ok()) return Annotate(number.status(), absl::StrFormat("its input \"%s\"", part.feature));
    numbers->push_back(*number);
  }
  return absl::OkStatus();
}

absl::StatusOr<float> ReadWeight(ByteWindow& window, const std::string& feature, const FeaturePlace& place) {
  if (place.kind == FeatureKind::kBytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "its weight \"%s\" is a bytes_list; name a feature of one number in data.weight_column", feature));
  }
  double value = -1;
  int64_t values = 0;
  CAIRN_RETURN_IF_ERROR(WalkNumbers(window, place, [&](double number) {
    value = number;
    return ++values < 2;
  }));
  if (values != 1) {
    return absl::DataLossError(absl::StrFormat("its weight \"%s\" has %s; a weight is one number", feature,
                                               values == 0 ? "no number" : "several numbers"));
  }
  const auto weight = static_cast<float>(value);
  if (weight >= 0 && std::isfinite(weight)) return weight;
  return absl::DataLossError(absl::StrFormat("its weight \"%s\" is %g, not a finite number >= 0", feature, value));
}

}  // namespace cairn
