#include "common/data/record_decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "common/data/picture.h"

namespace cairn {
namespace {

absl::Status WrongSize(const RecordSpec& spec, int64_t has, const char* unit, int64_t wants) {
  return absl::DataLossError(absl::StrFormat(
      "feature \"%s\" has %d %s, the shape %s takes %d; set data.tfrecord.shape, or the model's input, to "
      "what was written",
      spec.input, has, unit, ToString(spec.shape), wants));
}

// A single non-finite number would make all weights of the model non-finite.
absl::Status CheckFinite(const RecordSpec& spec, const float* numbers) {
  const float* const end = numbers + spec.example_size;
  const float* const bad = std::find_if_not(numbers, end, [](float value) { return std::isfinite(value); });
  if (bad == end) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrFormat("feature \"%s\": number %d (from 0) is %g; leave the record out or fill the value in", spec.input,
                      bad - numbers, *bad));
}

absl::Status DecodeNumbers(ByteWindow& window, const RecordSpec& spec, const FeaturePlace& place, float* out) {
  int64_t count = 0;
  CAIRN_RETURN_IF_ERROR(WalkNumbers(window, place, [&](double value) {
    if (count < spec.example_size) out[count] = static_cast<float>(value);
    ++count;
    return true;
  }));
  if (count > spec.example_size) return WrongSize(spec, count, "numbers", spec.example_size);
  std::fill(out + count, out + spec.example_size, 0.0f);
  return CheckFinite(spec, out);
}

absl::Status DecodeBytes(ByteWindow& window, absl::string_view record, const RecordSpec& spec,
                         const FeaturePlace& place, void* out) {
  absl::string_view bytes;
  int64_t values = 0;
  CAIRN_RETURN_IF_ERROR(WalkBytes(window, place, [&](uint64_t begin, uint64_t end) {
    bytes = record.substr(begin, end - begin);
    return ++values < 2;
  }));
  if (values != 1) {
    return absl::DataLossError(absl::StrFormat("feature \"%s\" has %s; an input is one", spec.input,
                                               values == 0 ? "no value" : "several values"));
  }
  if (spec.encoding == v1::TfRecord::JPEG_OR_PNG) {
    const std::string where = absl::StrFormat("feature \"%s\"", spec.input);
    CAIRN_ASSIGN_OR_RETURN(const Picture picture, DecodePicture(where, bytes, static_cast<int>(spec.shape[2])));
    ResizePicture(picture, spec.shape[0], spec.shape[1],
                  absl::MakeSpan(static_cast<uint8_t*>(out), static_cast<size_t>(spec.example_size)));
    return absl::OkStatus();
  }
  const bool floats = spec.encoding == v1::TfRecord::RAW_FLOAT32;
  const int64_t wants = spec.example_size * (floats ? 4 : 1), has = static_cast<int64_t>(bytes.size());
  if (has != wants) return WrongSize(spec, has, "bytes", wants);
  std::memcpy(out, bytes.data(), bytes.size());  // this machine is little-endian too
  return floats ? CheckFinite(spec, static_cast<const float*>(out)) : absl::OkStatus();
}

}  // namespace

absl::StatusOr<float> ReadLabel(ByteWindow& window, const RecordSpec& spec, const FeaturePlace& place) {
  if (place.kind == FeatureKind::kBytes) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "its label \"%s\" is a bytes_list; name a feature of class numbers in data.tfrecord.label", spec.label));
  }
  double value = 0;
  int64_t values = 0;
  CAIRN_RETURN_IF_ERROR(WalkNumbers(window, place, [&](double number) {
    value = number;
    return ++values < 2;
  }));
  if (values != 1) {
    return absl::DataLossError(absl::StrFormat("its label \"%s\" has %s; a label is one number", spec.label,
                                               values == 0 ? "no number" : "several numbers"));
  }
  value -= spec.label_offset;
  if (!std::isfinite(value)) return absl::DataLossError(absl::StrFormat("its label \"%s\" is %g", spec.label, value));
  if (place.kind == FeatureKind::kInts && spec.label_offset != 0 && value < 0) {
    return absl::DataLossError(
        absl::StrFormat("its label \"%s\" is %d after data.tfrecord.label_offset %d is taken from it; "
                        "class numbers begin at 0",
                        spec.label, static_cast<int64_t>(value), spec.label_offset));
  }
  return static_cast<float>(value);
}

absl::Status DecodeInput(absl::string_view record, const RecordSpec& spec, const FeaturePlace& place, void* out) {
  ByteWindow window(record);
  const bool numbers = spec.encoding == v1::TfRecord::NUMBERS;
  if ((place.kind == FeatureKind::kBytes) == numbers) {
    return absl::DataLossError(
        absl::StrFormat("feature \"%s\" is a %s, unlike the first record's", spec.input, ToText(place.kind)));
  }
  if (numbers) return DecodeNumbers(window, spec, place, static_cast<float*>(out));
  return DecodeBytes(window, record, spec, place, out);
}

}  // namespace cairn
