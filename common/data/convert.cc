#include "common/data/convert.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "common/base/crc32c.h"
#include "common/base/files.h"
#include "common/data/byte_reader.h"
#include "common/data/class_folder.h"
#include "common/data/csv_texts.h"
#include "common/data/gzip_file.h"
#include "common/data/limits.h"
#include "common/data/picture.h"
#include "common/data/record_files.h"
#include "common/data/table.h"
#include "common/data/tf_example.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 3> kSplitNames = {"train", "validation", "test"};

// The features of CSV files.
constexpr char kNumbers[] = "x", kTarget[] = "y";

FeatureValue OfBytes(std::string name, std::string bytes) {
  return {.name = std::move(name), .kind = FeatureKind::kBytes, .bytes = std::move(bytes)};
}
FeatureValue OfInt(const char* name, int64_t value) {
  return {.name = name, .kind = FeatureKind::kInts, .ints = {value}};
}
FeatureValue OfFloats(const char* name, std::vector<float> values) {
  return {.name = name, .kind = FeatureKind::kFloats, .floats = std::move(values)};
}

// Makes tf.train.Examples from a data set's examples.
class ExampleMaker {
 public:
  static absl::StatusOr<std::unique_ptr<ExampleMaker>> Open(const v1::Data& data,
                                                            const std::vector<std::string>& texts) {
    std::unique_ptr<ExampleMaker> maker(new ExampleMaker());
    v1::Data sized = data;
    if (sized.image_height() == 0 && sized.image_width() == 0) {  // without effect: pictures are written unchanged
      sized.set_image_height(1);
      sized.set_image_width(1);
    }
    CAIRN_ASSIGN_OR_RETURN(FoundData found, LoadAsFound(sized, texts));
    maker->loaded_ = std::move(found.loaded);
    CAIRN_RETURN_IF_ERROR(maker->NameTexts(data.path(), found.features));
    if (maker->loaded_.format == v1::Data::TFRECORD) {
      return absl::InvalidArgumentError(data.path() + ": holds TFRecords already; use them as they are");
    }
    if (maker->loaded_.format == v1::Data::IMAGE_FOLDER) {
      CAIRN_ASSIGN_OR_RETURN(maker->pictures_, ListClassFolder(data.path(), kPictureFiles));
    }
    return maker;
  }

  int64_t size(int split) const { return loaded_.splits[split] == nullptr ? 0 : loaded_.splits[split]->size(); }

  const std::vector<std::string>& text_columns() const { return text_columns_; }

  absl::StatusOr<std::string> Make(int split, int64_t index) {
    return loaded_.format == v1::Data::IMAGE_FOLDER ? OfPicture(pictures_.splits[split][index])
                                                    : OfNumbers(split, index);
  }

 private:
  // Chooses the names of the features of texts.
  absl::Status NameTexts(const std::string& path, const std::vector<CsvFeature>& features) {
    for (const CsvFeature& feature : features) {
      if (!feature.text) continue;
      std::string name = feature.name.empty() ? absl::StrFormat("column%d", feature.column) : feature.name;
      if (features.size() == 1) name = "text";
      const bool taken = name == kNumbers || name == kTarget ||
                         std::find(text_names_.begin(), text_names_.end(), name) != text_names_.end();
      if (taken) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "%s: %s holds texts, and its name is that of another feature of the records (\"%s\" are the numbers, "
            "\"%s\" is the label); rename the column",
            path, ColumnName(feature), kNumbers, kTarget));
      }
      text_names_.push_back(std::move(name));
      text_columns_.push_back(ShowTexts(feature));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> OfPicture(const ClassFile& file) const {
    CAIRN_ASSIGN_OR_RETURN(ByteReader reader, ByteReader::Open(file.path));
    CAIRN_ASSIGN_OR_RETURN(std::string bytes, reader.ReadToEnd(kPictureFileBytesMax));
    if (!IsPicture(bytes))
      return absl::DataLossError(file.path + ": neither a JPEG nor a PNG picture, whatever its name says");
    return WriteExample({OfBytes("image/encoded", std::move(bytes)), OfInt("image/class/label", file.label),
                         OfBytes("image/class/text", pictures_.class_names[file.label])});
  }

  absl::StatusOr<std::string> OfNumbers(int split, int64_t index) {
    numbers_.resize(static_cast<size_t>(NumElements(loaded_.shape)));
    float label = 0;
    CAIRN_RETURN_IF_ERROR(loaded_.splits[split]->Read(index, numbers_.data(), &label));
    if (!text_names_.empty()) return OfColumns(label);
    if (loaded_.texts != nullptr) {  // TEXT_FOLDER: one text
      return WriteExample(
          {OfBytes("text", std::string(loaded_.texts->Get(numbers_[0]))), OfInt("label", std::llround(label))});
    }
    if (loaded_.element == Element::kFloat) return WriteExample({OfFloats(kNumbers, numbers_), TargetOf(label)});
    std::string bytes;
    for (float number : numbers_) bytes.push_back(static_cast<char>(static_cast<uint8_t>(number)));
    std::vector<FeatureValue> features = {OfBytes("image_raw", std::move(bytes)), OfInt("label", std::llround(label))};
    if (loaded_.shape.size() == 3) {
      const char* const names[] = {"height", "width", "depth"};
      for (int d = 0; d < 3; ++d) features.push_back(OfInt(names[d], loaded_.shape[d]));
    }
    return WriteExample(std::move(features));
  }

  FeatureValue TargetOf(float label) const {
    return loaded_.classes > 0 ? OfInt(kTarget, std::llround(label)) : OfFloats(kTarget, {label});
  }

  // A line of a CSV file with texts: numbers_ has their numbers in loaded_.texts.
  std::string OfColumns(float label) const {
    std::vector<FeatureValue> features = {TargetOf(label)};
    std::vector<float> numbers;
    size_t texts = 0;
    for (size_t place = 0; place < numbers_.size(); ++place) {
      if (texts < text_names_.size() && loaded_.text_places[texts] == static_cast<int64_t>(place)) {
        features.push_back(OfBytes(text_names_[texts++], std::string(loaded_.texts->Get(numbers_[place]))));
      } else {
        numbers.push_back(numbers_[place]);
      }
    }
    if (!numbers.empty()) features.push_back(OfFloats(kNumbers, std::move(numbers)));
    return WriteExample(std::move(features));
  }

  LoadedData loaded_;
  std::vector<std::string> text_names_;    // of the CSV columns at loaded_.text_places
  std::vector<std::string> text_columns_;  // of the same
  ClassFolderFiles pictures_;              // IMAGE_FOLDER
  std::vector<float> numbers_;
};

// Writes a file of records, gzip or plain. The file gets its name when it is complete.
class RecordWriter {
 public:
  RecordWriter(const std::string& path, bool gzip)
      : path_(path), part_(path + ".part"), file_(part_, gzip ? "wb6" : "wbT", path) {}
  ~RecordWriter() {
    std::error_code ignored;
    if (!whole_) fs::remove(part_, ignored);
  }
  absl::Status Write(const std::string& record) {
    frame_.clear();
    AppendRecord(record, &frame_);
    return file_.Write(frame_.data(), frame_.size());
  }
  absl::Status Close() {
    CAIRN_RETURN_IF_ERROR(file_.Close());
    whole_ = true;  // what cannot be put in place is removed
    return PutInPlace(part_, path_);
  }

 private:
  const std::string path_, part_;
  GzipFile file_;
  bool whole_ = false;
  std::string frame_;
};

std::string ShardPath(const std::string& path, int shard, int shards) {
  if (shards == 1) return path;
  const bool gzip = absl::EndsWith(path, ".gz");
  const std::string plain = gzip ? path.substr(0, path.size() - 3) : path;
  return absl::StrFormat("%s-%05d-of-%05d%s", plain, shard, shards, gzip ? ".gz" : "");
}

absl::Status WriteSplit(ExampleMaker& maker, int split, const std::string& path, int shards) {
  const bool gzip = absl::EndsWith(path, ".gz");
  for (int shard = 0; shard < shards; ++shard) {
    RecordWriter writer(ShardPath(path, shard, shards), gzip);
    for (int64_t i = shard; i < maker.size(split); i += shards) {
      CAIRN_ASSIGN_OR_RETURN(const std::string example, maker.Make(split, i));
      CAIRN_RETURN_IF_ERROR(writer.Write(example));
    }
    CAIRN_RETURN_IF_ERROR(writer.Close());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int>> ChooseSplits(const ExampleMaker& maker, const ConvertOptions& options) {
  std::vector<int> chosen;
  for (int s = 0; s < 3; ++s) {
    if (maker.size(s) > 0 && (options.split.empty() || options.split == kSplitNames[s])) chosen.push_back(s);
  }
  if (chosen.empty()) {
    return absl::InvalidArgumentError(absl::StrFormat("--split %s: the data has no such split", options.split));
  }
  if (HasRecordName(options.out) && chosen.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s: one file for a data set of %d splits; give a folder, or choose with --split train",
                        options.out, chosen.size()));
  }
  return chosen;
}

}  // namespace

absl::StatusOr<Converted> ConvertToTfRecord(const v1::Data& data, const ConvertOptions& options) {
  if (options.shards < 1 || options.shards > kConvertShardsMax) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--shards: %d is not in 1 to %d", options.shards, kConvertShardsMax));
  }
  CAIRN_ASSIGN_OR_RETURN(const std::unique_ptr<ExampleMaker> maker, ExampleMaker::Open(data, options.texts));
  CAIRN_ASSIGN_OR_RETURN(const std::vector<int> splits, ChooseSplits(*maker, options));
  const bool file = HasRecordName(options.out);
  const fs::path folder = file ? fs::path(options.out).parent_path() : fs::path(options.out);
  std::error_code error;
  if (!folder.empty()) fs::create_directories(folder, error);
  if (error) return absl::UnavailableError(absl::StrFormat("%s: cannot be made: %s", folder.string(), error.message()));
  Converted converted;
  converted.text_columns = maker->text_columns();
  for (int split : splits) {
    const int64_t size = maker->size(split);
    const int shards = static_cast<int>(std::min<int64_t>(options.shards, size));
    const std::string path =
        file ? options.out
             : absl::StrFormat("%s/%s.tfrecord%s", options.out, kSplitNames[split], options.gzip ? ".gz" : "");
    CAIRN_RETURN_IF_ERROR(WriteSplit(*maker, split, path, shards));
    converted.examples[split] = size;
    converted.files += shards;
  }
  return converted;
}

}  // namespace cairn
