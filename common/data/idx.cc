// IDX, the format of the MNIST family (Y. LeCun): big-endian
//
//   file := 00 00 type dimensions size^dimensions byte*      type 08: unsigned bytes; size: 4 bytes each
//
// Images have 2 dimensions [n, features], 3 [n, height, width] or 4 [n, height, width, channels]; labels have 1.
#include <algorithm>
#include <optional>

#include "absl/strings/str_format.h"
#include "common/base/files.h"
#include "common/base/words.h"
#include "common/data/byte_reader.h"
#include "common/data/limits.h"
#include "common/data/table.h"

namespace cairn {
namespace {

constexpr uint8_t kUnsignedByte = 0x08;

struct IdxArray {
  Shape dims;
  Buffer bytes;
};

// The first existing spelling of train-images-idx3-ubyte and the like; empty: none.
std::string FindPart(const std::string& dir, const std::string& split, const std::string& what) {
  for (const char* separator : {"-", "."}) {
    for (const char* dims : {"3", "1", "4", "2"}) {
      for (const char* suffix : {"", ".gz"}) {
        const std::string path = absl::StrFormat("%s/%s-%s%sidx%s-ubyte%s", dir, split, what, separator, dims, suffix);
        if (IsThere(path)) return path;
      }
    }
  }
  return "";
}

absl::StatusOr<IdxArray> ReadIdx(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(ByteReader reader, ByteReader::Open(path));
  uint8_t magic[4];
  CAIRN_RETURN_IF_ERROR(reader.ReadExactly(magic, 4));
  if (magic[0] != 0 || magic[1] != 0 || magic[3] == 0 || magic[3] > 4) {
    return absl::DataLossError(absl::StrFormat("%s: not an IDX file: it begins with %02x %02x %02x %02x", path,
                                               magic[0], magic[1], magic[2], magic[3]));
  }
  if (magic[2] != kUnsignedByte) {
    return absl::DataLossError(
        absl::StrFormat("%s: IDX element type 0x%02x; only unsigned bytes (0x08) are read", path, magic[2]));
  }
  IdxArray array;
  uint64_t total = 1;
  for (int d = 0; d < magic[3]; ++d) {
    char bytes[4];
    CAIRN_RETURN_IF_ERROR(reader.ReadExactly(bytes, 4));
    const uint64_t size = ReadBigEndian({bytes, 4});
    array.dims.push_back(static_cast<int64_t>(size));
    if (array.dims.back() == 0) {
      return absl::DataLossError(absl::StrFormat("%s: empty: its header says %s", path, ToString(array.dims)));
    }
    if (__builtin_mul_overflow(total, size, &total)) total = UINT64_MAX;
  }
  // Before allocating, check whether the file can hold this.
  if (total > reader.bytes_max()) {
    return absl::DataLossError(absl::StrFormat(
        "%s: its header says %s, more than the file holds; it is cut off or broken", path, ToString(array.dims)));
  }
  array.bytes = Buffer::Allocate(total);
  CAIRN_RETURN_IF_ERROR(reader.ReadExactly(array.bytes.mutable_data(), total));
  CAIRN_RETURN_IF_ERROR(reader.ExpectEnd());
  return array;
}

struct IdxSplit {
  Shape shape;
  int32_t classes = 0;
  std::string largest;  // the largest label, as text
  std::shared_ptr<const ExampleTable> table;
};

absl::StatusOr<IdxSplit> ReadSplit(const std::string& images_path, const std::string& labels_path) {
  CAIRN_ASSIGN_OR_RETURN(IdxArray images, ReadIdx(images_path));
  CAIRN_ASSIGN_OR_RETURN(IdxArray labels, ReadIdx(labels_path));
  if (images.dims.size() < 2) {
    return absl::DataLossError(
        absl::StrFormat("%s: has one dimension, %s; images have two to four", images_path, ToString(images.dims)));
  }
  if (labels.dims.size() != 1) {
    return absl::DataLossError(
        absl::StrFormat("%s: has dimensions %s; labels have one", labels_path, ToString(labels.dims)));
  }
  if (labels.dims[0] != images.dims[0]) {
    return absl::DataLossError(absl::StrFormat("%s: holds %d labels, but %s holds %d images", labels_path,
                                               labels.dims[0], images_path, images.dims[0]));
  }
  IdxSplit split;
  split.shape.assign(images.dims.begin() + 1, images.dims.end());
  if (split.shape.size() == 2) split.shape.push_back(1);
  const int64_t example_size = NumElements(split.shape);
  if (example_size > kIdxExampleBytesMax) {
    return absl::DataLossError(absl::StrFormat("%s: one example has %d numbers; at most %d are read", images_path,
                                               example_size, kIdxExampleBytesMax));
  }
  std::vector<uint8_t> values(labels.bytes.data(), labels.bytes.data() + labels.bytes.size());
  const auto largest = std::max_element(values.begin(), values.end());
  split.classes = *largest + 1;
  split.largest = absl::StrFormat("%s: record %d has label %d", labels_path, largest - values.begin(), *largest);
  split.table = std::make_shared<ByteTable>(std::move(images.bytes), std::move(values), example_size);
  return split;
}

// nullopt: neither file exists.
absl::StatusOr<std::optional<IdxSplit>> FindSplit(const std::string& dir, const std::string& prefix) {
  const std::string images = FindPart(dir, prefix, "images"), labels = FindPart(dir, prefix, "labels");
  if (images.empty() && labels.empty()) return std::nullopt;
  if (images.empty() || labels.empty()) {
    return absl::NotFoundError(absl::StrFormat("%s: there is %s, but no %s-%s-idx%d-ubyte[.gz] beside it", dir,
                                               images.empty() ? labels : images, prefix,
                                               images.empty() ? "images" : "labels", images.empty() ? 3 : 1));
  }
  CAIRN_ASSIGN_OR_RETURN(IdxSplit split, ReadSplit(images, labels));
  return split;
}

}  // namespace

bool LooksLikeIdx(const std::string& dir) {
  return !FindPart(dir, "train", "images").empty() || !FindPart(dir, "train", "labels").empty();
}

absl::StatusOr<LoadedData> LoadIdx(const std::string& dir) {
  CAIRN_ASSIGN_OR_RETURN(std::optional<IdxSplit> train, FindSplit(dir, "train"));
  if (!train) {
    return absl::NotFoundError(
        absl::StrFormat("%s: holds no train-images-idx3-ubyte[.gz] and train-labels-idx1-ubyte[.gz]", dir));
  }
  CAIRN_ASSIGN_OR_RETURN(std::optional<IdxSplit> test, FindSplit(dir, "t10k"));
  if (!test) {
    CAIRN_ASSIGN_OR_RETURN(test, FindSplit(dir, "test"));
  }
  LoadedData loaded;
  loaded.shape = train->shape;
  loaded.classes = train->classes;
  loaded.deciding_label = train->largest;
  loaded.splits[kTrainSplit] = train->table;
  if (test) {
    if (test->shape != train->shape) {
      return absl::DataLossError(absl::StrFormat("%s: training images are %s, test images are %s", dir,
                                                 ToString(train->shape), ToString(test->shape)));
    }
    if (test->classes > loaded.classes) loaded.deciding_label = test->largest;
    loaded.classes = std::max(loaded.classes, test->classes);
    loaded.splits[kTestSplit] = test->table;
  }
  return loaded;
}

}  // namespace cairn
