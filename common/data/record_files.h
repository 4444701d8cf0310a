// Finds the TFRecord files of a folder, and the split of each.
//
//   PATH                                  a file: the training split; the name of one shard means all shards
//   PATH/*train*, *validation*, *test*    by a word of the name, as in "mnist-train.tfrecord-00001-of-00004"
//   PATH/{train,validation,val,test}/*    folders of splits
//   PATH/*                                no such words: all files are the training split
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

// By SplitIndex; empty: the split does not exist. Errors: NOT_FOUND (no files, or a shard is missing), INVALID_ARGUMENT
// (some file names have a split, others do not).
absl::StatusOr<std::array<std::vector<std::string>, 3>> FindRecordFiles(const std::string& path);

}  // namespace cairn
