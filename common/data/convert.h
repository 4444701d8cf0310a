// Converts a data set to TFRecord files of tf.train.Example, with the feature names that readers of TFRecords expect.
//
//   folders of pictures   "image/encoded" (the file's own bytes), "image/class/label", "image/class/text"
//   bytes (IDX, CIFAR-10) "image_raw", "label", and of pictures "height", "width", "depth"
//   numbers (CSV)         "x" (float_list), "y" (int64_list for classes, else float_list)
//   texts (CSV)           each column by its name in the header line, or "column3"; "text" if it is the only feature
//   folders of texts      "text", "label"
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "cairn/v1/data.pb.h"
#include "common/base/status.h"

namespace cairn {

struct ConvertOptions {
  // A folder (train.tfrecord, validation.tfrecord, test.tfrecord; created if needed), or, for one split, a file name
  // with .tfrecord[s][.gz].
  std::string out;
  std::string split;               // "train", "validation", "test"; empty: all splits
  int shards = 1;                  // above 1: train.tfrecord-00000-of-00004, records assigned round-robin
  bool gzip = false;               // for a folder; for a file its name decides
  std::vector<std::string> texts;  // of LoadAsFound (csv_texts.h)
};

struct Converted {
  std::array<int64_t, 3> examples{};  // by SplitIndex
  int files = 0;
  std::vector<std::string> text_columns;  // CSV: ShowTexts (csv_texts.h) of each
};

// Files are complete or absent: they are written under temporary names and renamed. Errors: as LoadAsFound;
// INVALID_ARGUMENT (the data is already TFRecord, or several splits go to one file), UNAVAILABLE (the disk; names the
// file).
absl::StatusOr<Converted> ConvertToTfRecord(const v1::Data& data, const ConvertOptions& options);

}  // namespace cairn
