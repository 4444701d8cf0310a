// CIFAR-10, binary version (A. Krizhevsky): a file consists of records of 3073 bytes, a label 0..9 and three 32x32
// planes (red, green, blue). Loading converts the planes to channels-last pixels.
#include <map>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"
#include "common/base/log.h"
#include "common/data/byte_reader.h"
#include "common/data/limits.h"
#include "common/data/table.h"

namespace cairn {
namespace {

constexpr int64_t kPlane = 32 * 32;
constexpr int64_t kPixels = 3 * kPlane;
constexpr int64_t kRecord = 1 + kPixels;
constexpr int kClasses = 10;
constexpr int kTrainFiles = 5;  // in the complete data set
constexpr char kTrainPrefix[] = "data_batch_", kSuffix[] = ".bin";
constexpr char kUnpacked[] = "cifar-10-batches-bin";  // the folder in the archive

struct Records {
  std::string pixels;
  std::vector<uint8_t> labels;
};

absl::Status AppendFile(const std::string& path, Records* out) {
  CAIRN_ASSIGN_OR_RETURN(ByteReader reader, ByteReader::Open(path));
  CAIRN_ASSIGN_OR_RETURN(const std::string bytes, reader.ReadToEnd(kCifar10FileBytesMax));
  if (bytes.empty() || bytes.size() % kRecord != 0) {
    return absl::DataLossError(absl::StrFormat(
        "%s: has %d bytes, not a whole number of CIFAR-10 records of %d; fetch it again", path, bytes.size(), kRecord));
  }
  const int64_t count = bytes.size() / kRecord;
  const size_t first = out->labels.size();
  out->labels.resize(first + count);
  out->pixels.resize((first + count) * kPixels);
  for (int64_t r = 0; r < count; ++r) {
    const char* record = bytes.data() + r * kRecord;
    const uint8_t label = static_cast<uint8_t>(record[0]);
    if (label >= kClasses) {
      return absl::DataLossError(
          absl::StrFormat("%s: record %d has label %d; CIFAR-10's labels are 0..9", path, r, label));
    }
    out->labels[first + r] = label;
    char* pixel = out->pixels.data() + (first + r) * kPixels;
    for (int64_t i = 0; i < kPlane; ++i) {
      pixel[3 * i] = record[1 + i];
      pixel[3 * i + 1] = record[1 + kPlane + i];
      pixel[3 * i + 2] = record[1 + 2 * kPlane + i];
    }
  }
  return absl::OkStatus();
}

std::shared_ptr<const ExampleTable> ToTable(Records records) {
  auto pixels = std::make_shared<std::string>(std::move(records.pixels));
  const Buffer buffer = Buffer::Wrap(pixels, pixels->data(), pixels->size());
  return std::make_shared<ByteTable>(buffer, std::move(records.labels), kPixels);
}

absl::StatusOr<std::vector<std::string>> ClassNames(const std::string& path) {
  if (!IsThere(path)) {
    return std::vector<std::string>{"airplane", "automobile", "bird",  "cat",  "deer",
                                    "dog",      "frog",       "horse", "ship", "truck"};
  }
  CAIRN_ASSIGN_OR_RETURN(ByteReader reader, ByteReader::Open(path));
  CAIRN_ASSIGN_OR_RETURN(const std::string text, reader.ReadToEnd(1 << 16));
  std::vector<std::string> names;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripAsciiWhitespace(line);
    if (!line.empty()) names.emplace_back(line);
  }
  if (names.size() != kClasses) {
    return absl::DataLossError(absl::StrFormat("%s: names %d classes instead of %d", path, names.size(), kClasses));
  }
  return names;
}

// data_batch_<n>.bin, sorted by number.
std::vector<std::string> TrainFilesIn(const std::string& dir) {
  std::map<int, std::string> files;
  for (const FolderEntry& entry : EntriesOf(dir)) {
    const std::string& file = entry.name;
    absl::string_view name = file;
    int number = 0;
    if (!absl::ConsumePrefix(&name, kTrainPrefix) || !absl::ConsumeSuffix(&name, kSuffix)) continue;
    if (absl::SimpleAtoi(name, &number)) files[number] = absl::StrCat(dir, "/", file);
  }
  std::vector<std::string> paths;
  for (auto& [number, path] : files) paths.push_back(std::move(path));
  return paths;
}

// The folder itself, or the archive's folder in it.
std::string FolderOf(const std::string& path) {
  return TrainFilesIn(path).empty() ? absl::StrCat(path, "/", kUnpacked) : path;
}

}  // namespace

bool LooksLikeCifar10(const std::string& path) { return !TrainFilesIn(FolderOf(path)).empty(); }

absl::StatusOr<LoadedData> LoadCifar10(const std::string& path) {
  const std::string dir = FolderOf(path);
  const std::vector<std::string> train_files = TrainFilesIn(dir);
  if (train_files.empty()) {
    return absl::NotFoundError(
        absl::StrFormat("%s: holds neither %s*%s nor a folder %s with them", path, kTrainPrefix, kSuffix, kUnpacked));
  }
  LoadedData loaded;
  loaded.shape = {32, 32, 3};
  loaded.classes = kClasses;
  CAIRN_ASSIGN_OR_RETURN(loaded.class_names, ClassNames(dir + "/batches.meta.txt"));
  Records train;
  for (const std::string& file : train_files) CAIRN_RETURN_IF_ERROR(AppendFile(file, &train));
  if (train_files.size() < kTrainFiles) {
    LogWarning("%s: %d of CIFAR-10's %d files %s*%s are there; the training split is their %d examples", dir,
               train_files.size(), kTrainFiles, kTrainPrefix, kSuffix, train.labels.size());
  }
  loaded.splits[kTrainSplit] = ToTable(std::move(train));
  const std::string test_path = dir + "/test_batch.bin";
  if (IsThere(test_path)) {
    Records test;
    CAIRN_RETURN_IF_ERROR(AppendFile(test_path, &test));
    loaded.splits[kTestSplit] = ToTable(std::move(test));
  }
  return loaded;
}

}  // namespace cairn
