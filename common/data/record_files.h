// Which files of a folder are TFRecords, and of which split.
//
//   PATH                                  a file: the training split; a shard's name stands for all of them
//   PATH/*train*, *validation*, *test*    by a word of the name, as in "mnist-train.tfrecord-00001-of-00004"
//   PATH/{train,validation,val,test}/*    folders of splits
//   PATH/*                                no such words: all of it is the training split
//
// A TFRecord file's name ends in ".tfrecord", ".tfrecords" or "-00001-of-00004"; ".gz" may follow. Files are in the
// order of their names.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace cairn {

bool HasRecordName(const std::string& path);

// By SplitIndex; empty: no such split. Errors: NOT_FOUND (nothing there; a shard is missing), INVALID_ARGUMENT (files
// with and without a split's name).
absl::StatusOr<std::array<std::vector<std::string>, 3>> FindRecordFiles(const std::string& path);

}  // namespace cairn
