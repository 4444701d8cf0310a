// TFRecord files of tf.train.Example. The input and the label are chosen by data.tfrecord or, by default, from the
// first record.
//
// Opening a file reads each record's label and skips the rest. A record's checksum and its input are checked when it is
// read.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/files.h"
#include "common/base/text.h"
#include "common/data/decoded_table.h"
#include "common/data/limits.h"
#include "common/data/picture.h"
#include "common/data/record_decoder.h"
#include "common/data/record_file.h"
#include "common/data/record_files.h"
#include "common/data/record_spec.h"
#include "common/data/record_target.h"
#include "common/data/table.h"
#include "common/data/tf_example.h"

namespace cairn {
namespace {

// ---- a split ----

absl::Status ReadParts(absl::string_view record, const std::vector<RecordFeaturePart>& parts, const FeatureRole& role,
                       absl::Span<float> numbers) {
  size_t at = 0;
  for (const RecordFeaturePart& part : parts) {
    const auto size = static_cast<size_t>(NumElements(part.shape));
    CAIRN_RETURN_IF_ERROR(ReadTarget(record, part.feature, part.shape, numbers.subspan(at, size), role));
    at += size;
  }
  return absl::OkStatus();
}

struct LabelKinds {
  bool ints = true, whole = true;
  double min = std::numeric_limits<double>::infinity(), max = -min;
};

absl::Status NoFeature(const std::string& name) {
  return absl::DataLossError(absl::StrFormat("has no feature \"%s\", which the first record has", name));
}

class RecordSource : public ExampleSource {
 public:
  // texts: of all splits; it is added to while files are added.
  RecordSource(RecordSpec spec, std::shared_ptr<TextStore> texts) : spec_(std::move(spec)), texts_(std::move(texts)) {
    for (const RecordFeaturePart& part : spec_.inputs) text_numbers_ += part.text ? NumElements(part.shape) : 0;
  }

  // room: provides the memory for gzip files.
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
    if (!spec_.inputs.empty()) {
      const absl::Span<float> numbers(static_cast<float*>(out), static_cast<size_t>(spec_.example_size));
      return file.Annotated(number, ReadInputs(index, record, numbers));
    }
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

  absl::Status ReadTargetOf(int64_t index, absl::Span<float> target) const {
    const size_t f = FileOf(index);
    static thread_local std::string scratch;
    CAIRN_ASSIGN_OR_RETURN(const absl::string_view record, files_[f]->Read(index - first_[f], &scratch));
    return files_[f]->Annotated(index - first_[f], ReadParts(record, spec_.targets, kTargetRole, target));
  }
  const std::vector<float>& weights() const { return weights_; }

  // For messages: "train.tfrecord: record 3 has label 12".
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
  absl::Status ReadInputs(int64_t index, absl::string_view record, absl::Span<float> numbers) const {
    const float* text = text_of_.data() + index * text_numbers_;
    for (const RecordFeaturePart& part : spec_.inputs) {
      const auto size = static_cast<size_t>(NumElements(part.shape));
      if (part.text) {
        std::copy_n(text, size, numbers.begin());
        text += size;
      } else {
        CAIRN_RETURN_IF_ERROR(ReadTarget(record, part.feature, part.shape, numbers.first(size), kInputRole));
      }
      numbers.remove_prefix(size);
    }
    return absl::OkStatus();
  }
  // Keeps the numbers of the record's texts.
  absl::Status LookAtTexts(ByteWindow& window, uint64_t begin, uint64_t end) {
    for (const RecordFeaturePart& part : spec_.inputs) {
      if (part.text) CAIRN_RETURN_IF_ERROR(ReadTexts(window, begin, end, part, texts_.get(), &text_of_));
    }
    return absl::OkStatus();
  }
  // Called for each record while its file is opened. Reads the label, and the length of the input if the shape is not
  // given.
  absl::Status Look(ByteWindow& window, uint64_t begin, uint64_t end, bool measure, int64_t* numbers_max,
                    LabelKinds* kinds) {
    FeaturePlace label, input, weight;
    bool found = spec_.label.empty(), has_input = false, has_weight = false;
    CAIRN_RETURN_IF_ERROR(WalkFeatures(window, begin, end, [&](absl::string_view name, const FeaturePlace& place) {
      if (!spec_.label.empty() && name == spec_.label) {
        label = place;
        found = true;
      } else if (name == spec_.input) {
        input = place;
        has_input = true;
      } else if (!spec_.weight.empty() && name == spec_.weight) {
        weight = place;
        has_weight = true;
      }
      return absl::OkStatus();
    }));
    if (!found) return NoFeature(spec_.label);
    if (!has_input) return NoFeature(spec_.input);
    if (text_numbers_ > 0) CAIRN_RETURN_IF_ERROR(LookAtTexts(window, begin, end));
    if (!spec_.weight.empty()) {
      if (!has_weight) return NoFeature(spec_.weight);
      CAIRN_ASSIGN_OR_RETURN(const float one, ReadWeight(window, spec_.weight, weight));
      weights_.push_back(one);
    }
    float value = 0;
    if (!spec_.label.empty()) {
      CAIRN_ASSIGN_OR_RETURN(value, ReadLabel(window, spec_, label));
    }
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
  const std::shared_ptr<TextStore> texts_;
  int64_t text_numbers_ = 0;    // of a record
  std::vector<float> text_of_;  // those of all records
  std::vector<float> weights_;
  std::vector<std::unique_ptr<const RecordFile>> files_;
  std::vector<int64_t> first_;  // index of each file's first record
  std::vector<float> labels_;
};

class RecordTargets : public TargetTable {
 public:
  // owner: keeps `source` alive.
  RecordTargets(std::shared_ptr<const ExampleTable> owner, const RecordSource& source)
      : owner_(std::move(owner)), source_(source) {}
  absl::Status Read(int64_t index, absl::Span<float> target) const override {
    return source_.ReadTargetOf(index, target);
  }

 private:
  const std::shared_ptr<const ExampleTable> owner_;
  const RecordSource& source_;
};

// The label that determines the number of classes, or that labels are not classes.
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

// The first record's bytes, checked. Reads no other record.
absl::StatusOr<std::string> FirstRecord(const std::string& path, const CacheRoom& room) {
  std::string bytes;
  const auto visit = [&](ByteWindow& window, uint64_t begin, uint64_t end) -> absl::Status {
    for (uint64_t at = begin; at < end;) {
      const size_t part = static_cast<size_t>(std::min<uint64_t>(end - at, ByteWindow::kBytes));
      CAIRN_ASSIGN_OR_RETURN(const absl::string_view view, window.At(at, part));
      bytes.append(view.data(), view.size());
      at += part;
    }
    return absl::CancelledError();  // stops after the first record
  };
  const absl::Status opened = RecordFile::Open(path, room.memory_left(), visit).status();
  if (!absl::IsCancelled(opened)) return opened;
  return bytes;
}

}  // namespace

bool LooksLikeTfRecord(const std::string& path) {
  if (!IsFolder(path)) return HasRecordName(path);
  const auto files = FindRecordFiles(path);
  return files.ok() || !absl::IsNotFound(files.status()) || absl::StrContains(files.status().message(), " is missing");
}

absl::StatusOr<LoadedData> LoadTfRecord(const v1::Data& data, const Shape& input_shape) {
  CAIRN_ASSIGN_OR_RETURN(const auto files, FindRecordFiles(data.path()));
  const std::string& first = files[kTrainSplit][0];
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<CacheRoom> room, CacheRoom::Make(data));
  CAIRN_ASSIGN_OR_RETURN(const std::string record, FirstRecord(first, *room));
  const absl::StatusOr<RecordFeatures> features = ReadRecordFeatures(record);
  if (!features.ok()) return Annotate(features.status(), absl::StrCat(first, ": record 0"));
  const absl::StatusOr<RecordSpec> spec = ResolveRecordSpec(data, input_shape, *features);
  if (!spec.ok())
    return absl::Status(spec.status().code(), absl::StrCat(spec.status().message(), " (", first, ", record 0)"));
  const bool measure = spec->encoding == v1::TfRecord::NUMBERS && data.tfrecord().shape_size() == 0 &&
                       input_shape.empty() && spec->inputs.empty();
  LoadedData loaded;
  const auto texts = std::make_shared<TextStore>();
  int64_t place = 0;
  for (const RecordFeaturePart& part : spec->inputs) {
    loaded.input_sizes.push_back(NumElements(part.shape));
    for (int64_t i = 0; i < NumElements(part.shape); ++i, ++place) {
      if (part.text) loaded.text_places.push_back(place);
    }
  }
  if (!loaded.text_places.empty()) loaded.texts = texts;
  LabelKinds kinds;
  int64_t numbers_max = 0;
  std::array<std::unique_ptr<RecordSource>, 3> sources;
  for (int s = 0; s < 3; ++s) {
    if (files[s].empty()) continue;
    sources[s] = std::make_unique<RecordSource>(*spec, texts);
    for (const std::string& path : files[s]) {
      CAIRN_RETURN_IF_ERROR(sources[s]->Add(path, *room, measure, &numbers_max, &kinds));
    }
  }
  loaded.shape = measure ? Shape{std::max<int64_t>(1, numbers_max)} : spec->shape;
  loaded.element = spec->decodes_to_bytes() ? Element::kByte : Element::kFloat;
  const double classes_max = kinds.ints ? kTfRecordClassesMax : kTfRecordFloatClassesMax;
  const bool has_labels = !spec->label.empty();
  if (has_labels && kinds.whole && kinds.min >= 0 && kinds.max < classes_max)
    loaded.classes = static_cast<int32_t>(kinds.max) + 1;
  if (has_labels) loaded.deciding_label = DescribeDecidingLabel(sources, kinds, classes_max, loaded.classes > 0);
  for (int s = 0; s < 3; ++s) {
    if (sources[s] == nullptr) continue;
    sources[s]->set_shape(loaded.shape);
    const RecordSource& source = *sources[s];
    if (!spec->weight.empty()) loaded.weights[s] = std::make_shared<const std::vector<float>>(source.weights());
    loaded.splits[s] =
        std::make_shared<DecodedTable>(std::move(sources[s]), NumElements(loaded.shape), loaded.element, room);
    if (spec->targets.empty()) continue;
    loaded.targets[s] = std::make_shared<RecordTargets>(loaded.splits[s], source);
    loaded.target_size = TargetSize(data);
  }
  return loaded;
}

}  // namespace cairn
