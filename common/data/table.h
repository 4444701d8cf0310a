// ExampleTable: the examples of one split, in one file format. LoadedData: what a format's loader finds at a path.
//
// Tables are immutable and thread-safe. The loaders validate every byte that they read; errors name the file and what
// is wrong.
// wrong.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cairn/v1/data.pb.h"
#include "common/base/status.h"
#include "common/data/target_table.h"
#include "common/data/text_store.h"
#include "common/tensor/batch.h"
#include "common/tensor/buffer.h"

namespace cairn {

class ExampleTable {
 public:
  virtual ~ExampleTable() = default;
  virtual int64_t size() const = 0;
  // Whether Read only copies from memory.
  virtual bool in_memory() const { return true; }
  // The type of the numbers before they are converted to float32.
  virtual Element element() const { return Element::kFloat; }
  // index: in [0, size()). example: the numbers of the shape. label: one number.
  virtual absl::Status Read(int64_t index, float* example, float* label) const = 0;
  // The same as bytes; only if element() is kByte.
  virtual absl::Status ReadBytes(int64_t index, uint8_t* example, float* label) const;
  virtual float Label(int64_t index) const = 0;
  // As Dataset::NameOf.
  virtual std::string NameOf(int64_t index) const { return std::to_string(index); }
};

// The pixels of all examples in memory, one byte each, channels last.
class ByteTable : public ExampleTable {
 public:
  // pixels.size() == labels.size() * example_size.
  ByteTable(Buffer pixels, std::vector<uint8_t> labels, int64_t example_size);
  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  Element element() const override { return Element::kByte; }
  absl::Status Read(int64_t index, float* example, float* label) const override;
  absl::Status ReadBytes(int64_t index, uint8_t* example, float* label) const override;
  float Label(int64_t index) const override { return labels_[index]; }

 private:
  const Buffer pixels_;
  const std::vector<uint8_t> labels_;
  const int64_t example_size_;
};

// Examples that are decoded on demand (pictures, records); DecodedTable turns a source into a table. Thread-safe.
class ExampleSource {
 public:
  virtual ~ExampleSource() = default;
  virtual int64_t size() const = 0;
  virtual float Label(int64_t index) const = 0;
  virtual std::string NameOf(int64_t index) const { return std::to_string(index); }
  // Writes example_size numbers to `out`, bytes or floats. Errors: as ExampleTable::Read.
  virtual absl::Status Decode(int64_t index, void* out) const = 0;
};

enum SplitIndex { kTrainSplit = 0, kValidationSplit = 1, kTestSplit = 2 };

struct LoadedData {
  v1::Data::Format format = v1::Data::AUTO;  // never AUTO after LoadData
  Shape shape;
  int32_t classes = 0;  // 0: labels are not classes
  std::vector<std::string> class_names;
  std::string deciding_label;  // as in DataInfo
  Element element = Element::kByte;
  std::array<std::shared_ptr<const ExampleTable>, 3> splits;  // by SplitIndex; null: the split does not exist
  // The targets of data.targets, which replace the tables' labels, for each existing split. target_size: in numbers; 0:
  // there are no targets.
  std::array<std::shared_ptr<const TargetTable>, 3> targets;
  int64_t target_size = 0;
  // For data.inputs that are features: the number of values of each; else empty.
  std::vector<int64_t> input_sizes;
  std::array<std::shared_ptr<const std::vector<float>>, 3> weights;  // those of data.weight_column; null: none
  // The texts, and which numbers of an example stand for one, rising; null and empty: there are none.
  std::shared_ptr<const TextStore> texts;
  std::vector<int64_t> text_places;
  // As Dataset::no_training and Dataset::no_labels.
  std::string no_training, no_labels;

  // The first split that exists.
  int first() const {
    int s = kTrainSplit;
    while (s < kTestSplit && splits[static_cast<size_t>(s)] == nullptr) ++s;
    return s;
  }
};

// Loads data.path in the format data.format, or in the detected one. Errors: as OpenDataset.
absl::StatusOr<LoadedData> LoadData(const v1::Data& data, const Shape& input_shape);

// The numbers of all targets of data.targets together; the data's label and the examples themselves count as 0.
int64_t TargetSize(const v1::Data& data);

absl::StatusOr<LoadedData> LoadIdx(const std::string& dir);
absl::StatusOr<LoadedData> LoadCifar10(const std::string& dir);
// input_shape: as in OpenDataset.
absl::StatusOr<LoadedData> LoadCsv(const v1::Data& data, const Shape& input_shape);
absl::StatusOr<LoadedData> LoadImageFolder(const v1::Data& data, const Shape& input_shape);
absl::StatusOr<LoadedData> LoadTfRecord(const v1::Data& data, const Shape& input_shape);
absl::StatusOr<LoadedData> LoadTextFolder(const v1::Data& data);

// The size to which pictures are resized: [height, width, 1 or 3], from `data` or the model's input.
absl::StatusOr<Shape> PictureShape(const v1::Data& data, const Shape& input_shape);

// Whether a folder looks like the format, for AUTO.
bool LooksLikeIdx(const std::string& dir);
bool LooksLikeCifar10(const std::string& dir);
bool LooksLikeCsv(const std::string& path);  // a file or a folder
bool LooksLikeImageFolder(const std::string& dir);
bool LooksLikeTextFolder(const std::string& dir);
bool LooksLikeTfRecord(const std::string& path);  // a file or a folder

}  // namespace cairn
