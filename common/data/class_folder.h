// Lists the files of a folder of pictures or texts by class without opening them.
//
//   PATH/train/CLASS/*.{jpg,jpeg,png}, PATH/validation/..., PATH/test/...     with splits ("val" means "validation")
//   PATH/CLASS/*.{jpg,jpeg,png}                                               without: all are the training split
//
// Texts are *.txt.
//
// Classes are numbered in the sorted order of their folders' names. Files are ordered by class, then by name. Names
// that begin with a dot are ignored.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/data/picture.h"

namespace cairn {

struct ClassFile {
  std::string path;
  int32_t label = 0;
  std::string name;  // relative to the data set's folder: "train/cat/1.png"
};

struct ClassFolderFiles {
  std::vector<std::string> class_names;
  std::array<std::vector<ClassFile>, 3> splits;  // by SplitIndex; empty: the split does not exist
};

// Which files of a class folder are examples, and how errors call them.
struct ClassFileKind {
  bool (*has_name)(const std::string& name);
  const char *files, *examples;  // ".jpg, .jpeg or .png", "pictures"
};

// Errors: NOT_FOUND (no such folder, no class folders, a class without files), INVALID_ARGUMENT (a class that the
// training split does not have), DATA_LOSS (a folder that cannot be read).
absl::StatusOr<ClassFolderFiles> ListClassFolder(const std::string& path, const ClassFileKind& kind);

// Whether there is such a file at its place.
bool LooksLikeClassFolder(const std::string& dir, const ClassFileKind& kind);

inline constexpr ClassFileKind kPictureFiles = {HasPictureName, ".jpg, .jpeg or .png", "pictures"};

}  // namespace cairn
