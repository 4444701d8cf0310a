// Any data set as TFRecord files of tf.train.Example, with the names that readers of TFRecords look for.
//
//   folders of pictures   "image/encoded" (the file's own bytes), "image/class/label", "image/class/text"
//   bytes (IDX, CIFAR-10) "image_raw", "label", and of pictures "height", "width", "depth"
//   numbers (CSV)         "x" (float_list), "y" (int64_list for classes, else float_list)
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "cairn/v1/data.pb.h"
#include "common/base/status.h"

namespace cairn {

struct ConvertOptions {
  // A folder (train.tfrecord, validation.tfrecord, test.tfrecord; made if needed), or a file's name with
  // .tfrecord[s][.gz], for one split.
  std::string out;
  std::string split;  // "train", "validation", "test"; empty: all that there are
  int shards = 1;     // more: train.tfrecord-00000-of-00004, records dealt out in turn
  bool gzip = false;  // in a folder; a file's name tells
};

struct Converted {
  std::array<int64_t, 3> examples{};  // by SplitIndex
  int files = 0;
};

// Files come into being whole: written beside their names, then renamed. Errors: as OpenDataset's; INVALID_ARGUMENT
// (the data is TFRecord already, a file for several splits), UNAVAILABLE (the disk; names the file).
absl::StatusOr<Converted> ConvertToTfRecord(const v1::Data& data, const ConvertOptions& options);

}  // namespace cairn
