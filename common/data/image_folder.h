// Lists the files of an image folder without opening them.
//
//   PATH/train/CLASS/*.{jpg,jpeg,png}, PATH/validation/..., PATH/test/...     with splits ("val" means "validation")
//   PATH/CLASS/*.{jpg,jpeg,png}                                               without: all are the training split
//
// Classes are numbered in the sorted order of their folders' names. Files are ordered by class, then by name. Names
// that begin with a dot are ignored.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace cairn {

struct PictureFile {
  std::string path;
  int32_t label = 0;
};

struct ImageFolderFiles {
  std::vector<std::string> class_names;
  std::array<std::vector<PictureFile>, 3> splits;  // by SplitIndex; empty: the split does not exist
};

// Errors: NOT_FOUND (no such folder, no class folders, a class without pictures), INVALID_ARGUMENT (a class that the
// training split does not have), DATA_LOSS (a folder that cannot be read).
absl::StatusOr<ImageFolderFiles> ListImageFolder(const std::string& path);

}  // namespace cairn
