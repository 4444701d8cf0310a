// TFRecord files of tf.train.Example: what of an example is the input and what the label, told from data.tfrecord or
// from the first record.
//
// Opening looks at each record's label and skips the rest; a record's checksum and its input are checked when it is
// read.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/text.h"
#include "common/data/decoded_table.h"
#include "common/data/limits.h"
#include "common/data/picture.h"
#include "common/data/record_decoder.h"
#include "common/data/record_file.h"
#include "common/data/record_files.h"
#include "common/data/table.h"
#include "common/data/tf_example.h"

namespace cairn {
namespace {

using Encoding = v1::TfRecord::Encoding;

struct Feature {
  FeaturePlace place;
  int64_t values = 0;
  absl::string_view bytes;  // kBytes: the first value
  double number = 0;        // the first one
};
using Features = std::map<std::string, Feature>;

// All that the record has. Views of it.
absl::StatusOr<Features> ReadFeatures(absl::string_view record) {
  ByteWindow window(record);
  Features features;
  const auto visit = [&](absl::string_view name, const FeaturePlace& place) -> absl::Status {
    Feature feature;
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
    features[std::string(name)] = std::move(feature);
    return absl::OkStatus();
  };
  CAIRN_RETURN_IF_ERROR(WalkFeatures(window, 0, record.size(), visit));
  return features;
}

std::string Describe(const Features& features) {
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
                                          const std::vector<std::string>& usual, const Features& features) {
  if (!asked.empty()) {
    if (features.contains(asked)) return asked;
    return absl::InvalidArgumentError(absl::StrFormat("data.tfrecord.%s: there is no feature \"%s\"; the record has %s",
                                                      field, asked, Describe(features)));
  }
  for (const std::string& name : usual) {
    if (features.contains(name)) return name;
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("data.tfrecord.%s: missing, and none of \"%s\" is there; the record has %s; name one of them",
                      field, absl::StrJoin(usual, "\", \""), Describe(features)));
}

absl::StatusOr<Encoding> ChooseEncoding(const v1::TfRecord& asked, const std::string& input, const Feature& feature) {
  const bool bytes = feature.place.kind == FeatureKind::kBytes;
  Encoding encoding = asked.encoding();
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

// "image/height" and the like, as many writers put them beside the bytes; 0: not there.
int64_t SideFeature(const Features& features, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const auto it = features.find(name);
    if (it == features.end() || it->second.place.kind != FeatureKind::kInts || it->second.values != 1) continue;
    if (it->second.number >= 1 && it->second.number <= 1 << 16) return static_cast<int64_t>(it->second.number);
  }
  return 0;
}

// Of inputs that do not tell their shape themselves; empty: nobody knows.
Shape KnownShape(const v1::TfRecord& asked, const Shape& input_shape, const Features& features) {
  if (asked.shape_size() > 0) return {asked.shape().begin(), asked.shape().end()};
  if (!input_shape.empty()) return input_shape;
  const Shape beside = {SideFeature(features, {"image/height", "height"}),
                        SideFeature(features, {"image/width", "width"}),
                        SideFeature(features, {"image/channels", "image/depth", "channels", "depth"})};
  return NumElements(beside) > 0 ? beside : Shape();
}

// 0: none, or more than are read of an example.
int64_t CountNumbers(const Shape& shape) {
  int64_t count = 1;
  for (const int64_t d : shape) {
    if (d < 1 || d > kTfRecordNumbersMax / count) return 0;
    count *= d;
  }
  return count;
}

absl::StatusOr<RecordSpec> Resolve(const v1::Data& data, const Shape& input_shape, const Features& features) {
  const v1::TfRecord& asked = data.tfrecord();
  RecordSpec spec;
  spec.label_offset = asked.label_offset();
  CAIRN_ASSIGN_OR_RETURN(spec.input,
                         ChooseFeature(asked.input(), "input", {"image/encoded", "image", "image_raw", "x"}, features));
  CAIRN_ASSIGN_OR_RETURN(spec.label,
                         ChooseFeature(asked.label(), "label", {"image/class/label", "label", "y"}, features));
  if (spec.input == spec.label) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "data.tfrecord.input: \"%s\" is the label too; name two features of %s", spec.input, Describe(features)));
  }
  const Feature& input = features.at(spec.input);
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
        data.image_width() == 0) {  // nobody asks for a size: the first one's
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

// ---- a split ----

struct LabelKinds {
  bool ints = true, whole = true;
  double min = std::numeric_limits<double>::infinity(), max = -min;
};

absl::Status NoFeature(const std::string& name) {
  return absl::DataLossError(absl::StrFormat("has no feature \"%s\", which the first record has", name));
}

class RecordSource : public ExampleSource {
 public:
  explicit RecordSource(RecordSpec spec) : spec_(std::move(spec)) {}

  // room: gzip files take their memory from it.
  absl::Status Add(const std::string& path, CacheRoom& room, bool measure, int64_t* numbers_max, LabelKinds* kinds) {
    first_.push_back(size());
    const auto visit = [&](ByteWindow& window, uint64_t begin, uint64_t end) {
      return Look(window, begin, end, measure, numbers_max, kinds);
    };
    CAIRN_ASSIGN_OR_RETURN(std::unique_ptr<const RecordFile> file, RecordFile::Open(path, room.memory_left(), visit));
    (void)room.TakeMemory(file->memory_bytes());
    files_.push_back(std::move(file));
    return absl::OkStatus();
  }
  void set_shape(const Shape& shape) {
    spec_.shape = shape;
    spec_.example_size = NumElements(shape);
  }

  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  float Label(int64_t index) const override { return labels_[index]; }

  absl::Status Decode(int64_t index, void* out) const override {
    const size_t f = FileOf(index);
    const RecordFile& file = *files_[f];
    const int64_t number = index - first_[f];
    static thread_local std::string scratch;
    CAIRN_ASSIGN_OR_RETURN(const absl::string_view record, file.Read(number, &scratch));
    FeaturePlace input;
    bool found = false;
    ByteWindow window(record);
    const auto visit = [&](absl::string_view name, const FeaturePlace& place) {
      if (name != spec_.input) return absl::OkStatus();
      input = place;
      found = true;
      return absl::OkStatus();
    };
    absl::Status status = WalkFeatures(window, 0, record.size(), visit);
    if (status.ok() && !found) status = NoFeature(spec_.input);
    if (status.ok()) status = DecodeInput(record, spec_, input, out);
    return file.Annotated(number, status);
  }

  // For people: "train.tfrecord: record 3 has label 12".
  std::string DescribeLabel(int64_t index) const {
    const size_t f = FileOf(index);
    const std::string offset =
        spec_.label_offset == 0 ? "" : absl::StrFormat(" after data.tfrecord.label_offset %d", spec_.label_offset);
    return absl::StrFormat("%s: record %d has label %.9g%s", files_[f]->path(), index - first_[f], Label(index),
                           offset);
  }

 private:
  size_t FileOf(int64_t index) const {
    return static_cast<size_t>(std::upper_bound(first_.begin(), first_.end(), index) - first_.begin()) - 1;
  }
  // Of one record, while its file is opened: the label; the length of the input where nobody told the shape.
  absl::Status Look(ByteWindow& window, uint64_t begin, uint64_t end, bool measure, int64_t* numbers_max,
                    LabelKinds* kinds) {
    FeaturePlace label, input;
    bool found = false, has_input = false;
    CAIRN_RETURN_IF_ERROR(WalkFeatures(window, begin, end, [&](absl::string_view name, const FeaturePlace& place) {
      if (name == spec_.label) {
        label = place;
        found = true;
      } else if (name == spec_.input) {
        input = place;
        has_input = true;
      }
      return absl::OkStatus();
    }));
    if (!found) return NoFeature(spec_.label);
    if (!has_input) return NoFeature(spec_.input);
    CAIRN_ASSIGN_OR_RETURN(const float value, ReadLabel(window, spec_, label));
    labels_.push_back(value);
    kinds->ints = kinds->ints && label.kind == FeatureKind::kInts;
    kinds->whole = kinds->whole && value == std::floor(value);
    kinds->min = std::min<double>(kinds->min, value);
    kinds->max = std::max<double>(kinds->max, value);
    if (!measure) return absl::OkStatus();
    int64_t count = 0;
    CAIRN_RETURN_IF_ERROR(WalkNumbers(window, input, [&](double) { return ++count <= kTfRecordNumbersMax; }));
    *numbers_max = std::max(*numbers_max, count);
    return absl::OkStatus();
  }

  RecordSpec spec_;
  std::vector<std::unique_ptr<const RecordFile>> files_;
  std::vector<int64_t> first_;  // index of each file's first record
  std::vector<float> labels_;
};

// The label that decides how many classes there are, or that there are none.
std::string DescribeDecidingLabel(const std::array<std::unique_ptr<RecordSource>, 3>& sources, const LabelKinds& kinds,
                                  double classes_max, bool classes) {
  for (const auto& source : sources) {
    for (int64_t i = 0; source != nullptr && i < source->size(); ++i) {
      const double label = source->Label(i);
      const bool is_class = label >= 0 && label < classes_max && label == std::floor(label);
      if (classes ? label == kinds.max : !is_class) return source->DescribeLabel(i);
    }
  }
  return "";
}

// The first record's bytes, checked. The others are not looked at.
absl::StatusOr<std::string> FirstRecord(const std::string& path, const CacheRoom& room) {
  std::string bytes;
  const auto visit = [&](ByteWindow& window, uint64_t begin, uint64_t end) -> absl::Status {
    for (uint64_t at = begin; at < end;) {
      const size_t part = static_cast<size_t>(std::min<uint64_t>(end - at, ByteWindow::kBytes));
      CAIRN_ASSIGN_OR_RETURN(const absl::string_view view, window.At(at, part));
      bytes.append(view.data(), view.size());
      at += part;
    }
    return absl::CancelledError();  // enough
  };
  const absl::Status opened = RecordFile::Open(path, room.memory_left(), visit).status();
  if (!absl::IsCancelled(opened)) return opened;
  return bytes;
}

}  // namespace

bool LooksLikeTfRecord(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return HasRecordName(path);
  const auto files = FindRecordFiles(path);
  return files.ok() || !absl::IsNotFound(files.status()) || absl::StrContains(files.status().message(), " is missing");
}

absl::StatusOr<LoadedData> LoadTfRecord(const v1::Data& data, const Shape& input_shape) {
  CAIRN_ASSIGN_OR_RETURN(const auto files, FindRecordFiles(data.path()));
  const std::string& first = files[kTrainSplit][0];
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<CacheRoom> room, CacheRoom::Make(data));
  CAIRN_ASSIGN_OR_RETURN(const std::string record, FirstRecord(first, *room));
  const absl::StatusOr<Features> features = ReadFeatures(record);
  if (!features.ok()) return Annotate(features.status(), absl::StrCat(first, ": record 0"));
  const absl::StatusOr<RecordSpec> spec = Resolve(data, input_shape, *features);
  if (!spec.ok())
    return absl::Status(spec.status().code(), absl::StrCat(spec.status().message(), " (", first, ", record 0)"));
  const bool measure =
      spec->encoding == v1::TfRecord::NUMBERS && data.tfrecord().shape_size() == 0 && input_shape.empty();
  LoadedData loaded;
  LabelKinds kinds;
  int64_t numbers_max = 0;
  std::array<std::unique_ptr<RecordSource>, 3> sources;
  for (int s = 0; s < 3; ++s) {
    if (files[s].empty()) continue;
    sources[s] = std::make_unique<RecordSource>(*spec);
    for (const std::string& path : files[s]) {
      CAIRN_RETURN_IF_ERROR(sources[s]->Add(path, *room, measure, &numbers_max, &kinds));
    }
  }
  loaded.shape = measure ? Shape{std::max<int64_t>(1, numbers_max)} : spec->shape;
  loaded.element = spec->decodes_to_bytes() ? Element::kByte : Element::kFloat;
  const double classes_max = kinds.ints ? kTfRecordClassesMax : kTfRecordFloatClassesMax;
  if (kinds.whole && kinds.min >= 0 && kinds.max < classes_max) loaded.classes = static_cast<int32_t>(kinds.max) + 1;
  loaded.deciding_label = DescribeDecidingLabel(sources, kinds, classes_max, loaded.classes > 0);
  for (int s = 0; s < 3; ++s) {
    if (sources[s] == nullptr) continue;
    sources[s]->set_shape(loaded.shape);
    loaded.splits[s] =
        std::make_shared<DecodedTable>(std::move(sources[s]), NumElements(loaded.shape), loaded.element, room);
  }
  return loaded;
}

}  // namespace cairn
