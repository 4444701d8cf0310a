#include "common/data/dataset.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/base/check.h"
#include "common/base/files.h"
#include "common/base/random.h"
#include "common/base/roots.h"
#include "common/data/external_dataset.h"
#include "common/data/picture.h"
#include "common/data/table.h"
#include "common/model/external_check.h"
#include "common/model/target_check.h"

namespace cairn {
namespace {

int IndexOf(v1::Split split) {
  switch (split) {
    case v1::TRAIN: return kTrainSplit;
    case v1::VALIDATION: return kValidationSplit;
    default: return kTestSplit;  // EvaluateRequest: unset means TEST
  }
}

// A split: a whole table, or the examples `chosen` from one, in ascending order.
struct SplitView {
  std::shared_ptr<const ExampleTable> table;
  std::shared_ptr<const TargetTable> targets;         // null: the table's labels
  std::shared_ptr<const std::vector<float>> weights;  // null: all 1
  std::vector<int64_t> chosen;
  bool all = true;

  int64_t size() const {
    if (table == nullptr) return 0;
    return all ? table->size() : static_cast<int64_t>(chosen.size());
  }
  int64_t TableIndex(int64_t index) const { return all ? index : chosen[index]; }
};

// For a job with several outputs: the source of the numbers of a target.
struct TargetPiece {
  enum class From { kTable, kLabel, kInput } from;
  int64_t size;
};

// Empty: an example has only its label, or a single target.
std::vector<TargetPiece> PiecesOf(const v1::Data& data) {
  std::vector<TargetPiece> pieces;
  if (data.targets_size() < 2 && TakesLabel(data) == data.targets().empty()) return pieces;
  for (const v1::TargetSource& target : data.targets()) {
    const TargetPiece::From from = target.input_itself() ? TargetPiece::From::kInput
                                   : IsLabel(target)     ? TargetPiece::From::kLabel
                                                         : TargetPiece::From::kTable;
    pieces.push_back({from, NumElements(Shape(target.shape().begin(), target.shape().end()))});
  }
  return pieces;
}

class TableDataset : public Dataset {
 public:
  TableDataset(v1::DataInfo info, std::array<SplitView, 3> splits, const LoadedData& loaded,
               std::vector<TargetPiece> pieces)
      : info_(std::move(info)),
        splits_(std::move(splits)),
        target_size_(loaded.target_size),
        pieces_(std::move(pieces)),
        input_sizes_(loaded.input_sizes),
        texts_(loaded.texts),
        text_places_(loaded.text_places),
        no_training_(loaded.no_training),
        no_labels_(loaded.no_labels),
        first_(static_cast<size_t>(loaded.first())) {
    info_.set_texts(static_cast<int32_t>(text_places_.size()));
    info_.set_train_examples(splits_[kTrainSplit].size());
    info_.set_validation_examples(splits_[kValidationSplit].size());
    info_.set_test_examples(splits_[kTestSplit].size());
    for (int32_t d : info_.example_shape()) example_size_ *= d;
    bytes_ = std::all_of(splits_.begin(), splits_.end(),
                         [](const SplitView& s) { return s.table == nullptr || s.table->element() == Element::kByte; });
  }

  const v1::DataInfo& info() const override { return info_; }
  int64_t size(v1::Split split) const override { return splits_[IndexOf(split)].size(); }
  int64_t example_size() const override { return example_size_; }
  int64_t label_size() const override {
    int64_t size = 0;
    for (const TargetPiece& piece : pieces_) size += piece.size;
    return !pieces_.empty() ? size : target_size_ > 0 ? target_size_ : 1;
  }
  std::vector<int64_t> input_sizes() const override { return input_sizes_; }
  const TextStore* texts() const override { return texts_.get(); }
  std::vector<int64_t> text_places() const override { return text_places_; }
  std::string no_training() const override { return no_training_; }
  std::string no_labels() const override { return no_labels_; }
  bool weighted() const override { return splits_[first_].weights != nullptr; }
  float Weight(v1::Split split, int64_t index) const override {
    const SplitView& view = splits_[IndexOf(split)];
    return view.weights == nullptr ? 1 : (*view.weights)[static_cast<size_t>(view.TableIndex(index))];
  }
  std::string NameOf(v1::Split split, int64_t index) const override {
    const SplitView& view = splits_[IndexOf(split)];
    return view.table->NameOf(view.TableIndex(index));
  }
  Element element() const override { return bytes_ ? Element::kByte : Element::kFloat; }
  bool in_memory() const override { return splits_[first_].table->in_memory(); }

  absl::Status Read(v1::Split split, int64_t index, float* example, float* label) const override {
    CAIRN_ASSIGN_OR_RETURN(const SplitView* const view, Find(split, index));
    if (HasLabelAlone(*view)) return view->table->Read(view->TableIndex(index), example, label);
    float of_table;
    CAIRN_RETURN_IF_ERROR(view->table->Read(view->TableIndex(index), example, &of_table));
    return ReadTarget(*view, index, of_table, label);
  }

  absl::Status ReadBytes(v1::Split split, int64_t index, uint8_t* example, float* label) const override {
    CAIRN_ASSIGN_OR_RETURN(const SplitView* const view, Find(split, index));
    if (HasLabelAlone(*view)) return view->table->ReadBytes(view->TableIndex(index), example, label);
    float of_table;
    CAIRN_RETURN_IF_ERROR(view->table->ReadBytes(view->TableIndex(index), example, &of_table));
    return ReadTarget(*view, index, of_table, label);
  }

 private:
  absl::StatusOr<const SplitView*> Find(v1::Split split, int64_t index) const {
    const SplitView& view = splits_[IndexOf(split)];
    if (index < 0 || index >= view.size()) {
      return absl::OutOfRangeError(absl::StrFormat("%s: example %d of the %s split, which has %d", info_.path(), index,
                                                   v1::Split_Name(split), view.size()));
    }
    return &view;
  }

  bool HasLabelAlone(const SplitView& view) const { return view.targets == nullptr && pieces_.empty(); }

  absl::Status ReadTarget(const SplitView& view, int64_t index, float of_table, float* label) const {
    if (pieces_.empty()) {
      return view.targets->Read(view.TableIndex(index), absl::MakeSpan(label, static_cast<size_t>(target_size_)));
    }
    static thread_local std::vector<float> numbers;
    numbers.resize(static_cast<size_t>(target_size_));
    if (view.targets != nullptr) {
      CAIRN_RETURN_IF_ERROR(view.targets->Read(view.TableIndex(index), absl::MakeSpan(numbers)));
    }
    const float* next = numbers.data();
    for (const TargetPiece& piece : pieces_) {
      switch (piece.from) {
        case TargetPiece::From::kLabel: *label = of_table; break;
        case TargetPiece::From::kInput: std::fill_n(label, piece.size, 0.0f); break;  // filled in by WithJobTargets
        case TargetPiece::From::kTable:
          std::copy_n(next, piece.size, label);
          next += piece.size;
          break;
      }
      label += piece.size;
    }
    return absl::OkStatus();
  }

  v1::DataInfo info_;
  const std::array<SplitView, 3> splits_;
  const int64_t target_size_;
  const std::vector<TargetPiece> pieces_;
  const std::vector<int64_t> input_sizes_;
  const std::shared_ptr<const TextStore> texts_;
  const std::vector<int64_t> text_places_;
  const std::string no_training_, no_labels_;
  const size_t first_;  // split that exists
  int64_t example_size_ = 1;
  bool bytes_ = false;
};

absl::Status CheckShare(const char* field, float share) {
  if (share >= 0 && share < 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%s: %g is not in [0, 1)", field, share));
}

int64_t ShareOf(int64_t examples, float share) {
  return share <= 0 ? 0
                    : std::max<int64_t>(1, std::llround(static_cast<double>(share) * static_cast<double>(examples)));
}

// Shuffles all training examples by the seed; the first ones become the validation split, the next ones the test split.
absl::StatusOr<std::array<SplitView, 3>> MakeSplits(const v1::Data& data, const LoadedData& loaded) {
  CAIRN_RETURN_IF_ERROR(CheckShare("data.validation_split", data.validation_split()));
  CAIRN_RETURN_IF_ERROR(CheckShare("data.test_split", data.test_split()));
  std::array<SplitView, 3> splits;
  for (int s = 0; s < 3; ++s) splits[s] = {loaded.splits[s], loaded.targets[s], loaded.weights[s], {}, true};
  if (splits[kTrainSplit].table == nullptr) return splits;
  const int64_t n = splits[kTrainSplit].size();
  const int64_t validation = splits[kValidationSplit].table ? 0 : ShareOf(n, data.validation_split());
  const int64_t test = splits[kTestSplit].table ? 0 : ShareOf(n, data.test_split());
  if (validation + test == 0) return splits;
  if (validation + test >= n) {
    return absl::InvalidArgumentError(
        absl::StrFormat("data.validation_split, data.test_split: %d and %d of %d examples leave none to train with; "
                        "use smaller shares",
                        validation, test, n));
  }
  const Permutation order(StreamKey(data.split_seed(), RandomStream::kSplit), 0, n);
  const SplitView training = splits[kTrainSplit];
  const auto choose = [&](int split, int64_t begin, int64_t end) {
    SplitView& view = splits[split];
    view = training;
    view.all = false;
    for (int64_t place = begin; place < end; ++place) view.chosen.push_back(order(place));
    std::sort(view.chosen.begin(), view.chosen.end());
  };
  if (validation > 0) choose(kValidationSplit, 0, validation);
  if (test > 0) choose(kTestSplit, validation, validation + test);
  choose(kTrainSplit, validation + test, n);
  return splits;
}

absl::Status CheckDataInRoots(const v1::Data& data) {
  CAIRN_RETURN_IF_ERROR(CheckInRoots("data.path", data.path(), Access::kRead));
  return CheckInRoots("data.cache_dir", data.cache_dir(), Access::kWrite);
}

// Where pictures that lie in the folder itself belong; empty: there are none.
std::string PicturesHint(const std::string& path, const std::vector<FolderEntry>& entries) {
  for (const FolderEntry& entry : entries) {
    if (entry.kind == PathInfo::kFolder || entry.name[0] == '.' || !HasPictureName(entry.name)) continue;
    return absl::StrFormat(
        ". Pictures belong in one folder a class below that one; put new ones, whose class is not known, into any, "
        "such as %s/unknown/%s",
        path, entry.name);
  }
  return "";
}

absl::StatusOr<v1::Data::Format> DetectFormat(const std::string& path) {
  const bool folder = IsFolder(path);
  if (LooksLikeCsv(path) && !folder) return v1::Data::CSV;
  if (LooksLikeTfRecord(path)) return v1::Data::TFRECORD;
  if (!folder && HasPictureName(path)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("data.path: %s: is a single picture; give the folder above its folder. Pictures belong in one "
                        "folder a class below the folder that is given; put new ones, whose class is not known, into "
                        "any, such as new/unknown, and give new",
                        path));
  }
  if (!folder) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "data.path: %s: cannot tell the format of a file of this name; looked for *.csv[.gz], *.tfrecord[s][.gz] and "
        "*-00000-of-00001. Set data.format, or give the folder that holds the data set",
        path));
  }
  if (LooksLikeIdx(path)) return v1::Data::IDX;
  if (LooksLikeCifar10(path)) return v1::Data::CIFAR10;
  if (LooksLikeCsv(path)) return v1::Data::CSV;
  if (LooksLikeImageFolder(path)) return v1::Data::IMAGE_FOLDER;
  if (LooksLikeTextFolder(path)) return v1::Data::TEXT_FOLDER;
  std::vector<std::string> found;
  const std::vector<FolderEntry> entries = EntriesOf(path);
  for (const FolderEntry& entry : entries) {
    if (found.size() < 6) found.push_back(entry.name);
  }
  if (found.size() == 6) found.back() = "...";
  return absl::InvalidArgumentError(
      absl::StrFormat("data.path: %s: cannot tell the format. Looked for train-images-idx3-ubyte[.gz] (IDX), "
                      "data_batch_*.bin (CIFAR10), "
                      "train.csv[.gz] or one CSV file (CSV), train*.tfrecord[.gz] or *-00000-of-00001 (TFRECORD), "
                      "[train/]CLASS/*.jpg|jpeg|png (IMAGE_FOLDER), [train/]CLASS/*.txt (TEXT_FOLDER); found %s%s",
                      path, found.empty() ? "nothing" : absl::StrJoin(found, ", "), PicturesHint(path, entries)));
}

absl::StatusOr<LoadedData> LoadAs(const v1::Data& data, v1::Data::Format format, const Shape& input_shape) {
  if (format != v1::Data::CSV && format != v1::Data::TFRECORD && !IsFolder(data.path())) {
    return absl::InvalidArgumentError(
        absl::StrFormat("data.path: %s is a file; format %s is a folder", data.path(), v1::Data::Format_Name(format)));
  }
  switch (format) {
    case v1::Data::IDX: return LoadIdx(data.path());
    case v1::Data::CIFAR10: return LoadCifar10(data.path());
    case v1::Data::IMAGE_FOLDER: return LoadImageFolder(data, input_shape);
    case v1::Data::CSV: return LoadCsv(data, input_shape);
    case v1::Data::TFRECORD: return LoadTfRecord(data, input_shape);
    case v1::Data::TEXT_FOLDER: return LoadTextFolder(data);
    default: break;
  }
  return absl::InvalidArgumentError(absl::StrFormat("data.format: %d is unknown", format));
}

}  // namespace

int64_t TargetSize(const v1::Data& data) {
  int64_t size = 0;
  for (const v1::TargetSource& target : data.targets()) {
    if (target.input_itself() || IsLabel(target)) continue;
    size += NumElements(Shape(target.shape().begin(), target.shape().end()));
  }
  return size;
}

absl::StatusOr<LoadedData> LoadData(const v1::Data& data, const Shape& input_shape) {
  if (data.path().empty()) return absl::InvalidArgumentError("data.path: missing; name the data set's file or folder");
  CAIRN_RETURN_IF_ERROR(CheckDataInRoots(data));
  if (!IsThere(data.path())) {
    return absl::NotFoundError(absl::StrFormat("data.path: %s: no such file or folder on this machine", data.path()));
  }
  v1::Data::Format format = data.format();
  if (format == v1::Data::AUTO) {
    CAIRN_ASSIGN_OR_RETURN(format, DetectFormat(data.path()));
  }
  CAIRN_RETURN_IF_ERROR(CheckTargetsAgainstData(data, format));
  CAIRN_ASSIGN_OR_RETURN(LoadedData loaded, LoadAs(data, format, input_shape));
  loaded.format = format;
  return loaded;
}

absl::StatusOr<std::shared_ptr<const Dataset>> OpenDataset(const v1::Data& data, const Shape& input_shape) {
  if (data.has_external()) {
    v1::Data checked = data;  // one that an evaluation names was not checked before
    CAIRN_RETURN_IF_ERROR(CheckExternalData(&checked));
    return MakeExternalDataset(checked.external());
  }
  CAIRN_ASSIGN_OR_RETURN(const LoadedData loaded, LoadData(data, input_shape));
  CAIRN_ASSIGN_OR_RETURN(auto splits, MakeSplits(data, loaded));
  v1::DataInfo info;
  info.set_path(data.path());
  info.set_format(loaded.format);
  info.set_classes(loaded.classes);
  info.set_deciding_label(loaded.deciding_label);
  for (const std::string& name : loaded.class_names) info.add_class_names(name);
  // The same numbers may be reshaped for the model: rows of 64 features for an input of [8,8,1].
  const bool reshape = !input_shape.empty() && NumElements(input_shape) == NumElements(loaded.shape);
  for (int64_t d : reshape&& loaded.format != v1::Data::IMAGE_FOLDER ? input_shape : loaded.shape) {
    info.add_example_shape(static_cast<int32_t>(d));
  }
  return std::make_shared<TableDataset>(std::move(info), std::move(splits), loaded, PiecesOf(data));
}

absl::Status CheckTrains(const Dataset& dataset) {
  if (const std::string why = dataset.no_training(); !why.empty()) return absl::InvalidArgumentError(why);
  return CheckLabelled(dataset);
}

absl::Status CheckLabelled(const Dataset& dataset) {
  const std::string why = dataset.no_labels();
  return why.empty() ? absl::OkStatus() : absl::InvalidArgumentError(why);
}

absl::Status Dataset::ReadBytes(v1::Split, int64_t, uint8_t*, float*) const {
  CAIRN_CHECK(false, "asked of data sets of bytes only");
  return absl::OkStatus();
}

absl::StatusOr<Batch> ReadBatch(const Dataset& dataset, v1::Split split, PlaceRange places) {
  if (places.begin < 0 || places.end < places.begin || places.end > dataset.size(split)) {
    return absl::OutOfRangeError(absl::StrFormat("%s: examples %d to %d of the %s split, which has %d",
                                                 dataset.info().path(), places.begin, places.end, v1::Split_Name(split),
                                                 dataset.size(split)));
  }
  Batch batch;
  batch.examples = places.size();
  batch.label_size = dataset.label_size();
  batch.element = dataset.element();
  const int64_t example_bytes = dataset.example_size() * SizeOf(batch.element);
  batch.inputs = Buffer::Allocate(places.size() * example_bytes);
  batch.labels = Buffer::Allocate(places.size() * dataset.label_size() * sizeof(float));
  uint8_t* example = batch.inputs.mutable_data();
  float* label = batch.labels.mutable_floats().data();
  for (int64_t i = places.begin; i < places.end; ++i) {
    CAIRN_RETURN_IF_ERROR(dataset.ReadAs(batch.element, split, i, example, label));
    example += example_bytes;
    label += dataset.label_size();
  }
  return batch;
}

}  // namespace cairn
