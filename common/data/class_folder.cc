#include "common/data/class_folder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/files.h"
#include "common/data/limits.h"
#include "common/data/table.h"

namespace cairn {
namespace {

struct Entry {
  std::string name;
  bool is_dir = false;
};

// The entries of a folder, sorted by name.
absl::StatusOr<std::vector<Entry>> ListDir(const std::string& path) {
  absl::StatusOr<std::vector<FolderEntry>> listed = ListFolder(path);
  if (absl::IsNotFound(listed.status())) return absl::NotFoundError(path + ": no such folder");
  if (!listed.ok()) return absl::DataLossError(listed.status().message());
  std::vector<Entry> entries;
  for (FolderEntry& entry : *listed) {
    if (entry.name[0] != '.') entries.push_back({std::move(entry.name), entry.kind == PathInfo::kFolder});
  }
  return entries;
}

absl::StatusOr<std::vector<std::string>> SubDirs(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<Entry> entries, ListDir(path));
  std::vector<std::string> dirs;
  for (const Entry& entry : entries) {
    if (entry.is_dir) dirs.push_back(entry.name);
  }
  return dirs;
}

// The folder of a split; "" if there is none.
std::string SplitDir(const std::string& path, int split) {
  static constexpr std::array<std::array<const char*, 2>, 3> kNames = {
      {{"train", "training"}, {"validation", "val"}, {"test", "testing"}}};
  for (const char* name : kNames[split]) {
    if (const std::string dir = absl::StrCat(path, "/", name); IsFolder(dir)) return dir;
  }
  return "";
}

// What follows the folder in the path of a file below it.
std::string Below(const std::string& folder, const std::string& path) {
  return path.substr(std::min(path.find_first_not_of('/', folder.size()), path.size()));
}

// root: the data set's folder.
absl::Status ListSplit(const std::string& root, const std::string& dir, const std::vector<std::string>& class_names,
                       const ClassFileKind& kind, std::vector<ClassFile>* files) {
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> found, SubDirs(dir));
  for (const std::string& name : found) {
    const auto it = std::lower_bound(class_names.begin(), class_names.end(), name);
    if (it == class_names.end() || *it != name) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s: class folder \"%s\" is not among the training split's classes", dir, name));
    }
    const std::string class_dir = absl::StrCat(dir, "/", name);
    CAIRN_ASSIGN_OR_RETURN(const std::vector<Entry> entries, ListDir(class_dir));
    const size_t before = files->size();
    for (const Entry& entry : entries) {
      if (entry.is_dir || !kind.has_name(entry.name)) continue;
      const std::string path = absl::StrCat(class_dir, "/", entry.name);
      files->push_back({path, static_cast<int32_t>(it - class_names.begin()), Below(root, path)});
    }
    if (files->size() == before) {
      return absl::NotFoundError(
          absl::StrCat(class_dir, ": holds no ", kind.files, " file; remove the folder or fill it"));
    }
  }
  if (files->empty()) {
    return absl::NotFoundError(
        absl::StrCat(dir, ": holds no class folders; ", kind.examples, " belong in one folder a class"));
  }
  return absl::OkStatus();
}

}  // namespace

bool LooksLikeClassFolder(const std::string& dir, const ClassFileKind& kind) {
  const std::string train = SplitDir(dir, kTrainSplit);
  const std::string& root = train.empty() ? dir : train;
  const absl::StatusOr<std::vector<std::string>> classes = SubDirs(root);
  if (!classes.ok()) return false;
  for (const std::string& name : *classes) {
    const absl::StatusOr<std::vector<Entry>> entries = ListDir(absl::StrCat(root, "/", name));
    if (!entries.ok()) continue;
    for (const Entry& entry : *entries) {
      if (!entry.is_dir && kind.has_name(entry.name)) return true;
    }
  }
  return false;
}

absl::StatusOr<ClassFolderFiles> ListClassFolder(const std::string& path, const ClassFileKind& kind) {
  ClassFolderFiles files;
  const std::string train = SplitDir(path, kTrainSplit);
  for (int s : {kValidationSplit, kTestSplit}) {
    if (const std::string dir = SplitDir(path, s); train.empty() && !dir.empty()) {
      return absl::NotFoundError(absl::StrFormat("%s: there is %s, but no train/ beside it", path, dir));
    }
  }
  CAIRN_ASSIGN_OR_RETURN(files.class_names, SubDirs(train.empty() ? path : train));
  if (files.class_names.size() > kImageFolderClassesMax) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: %d class folders; at most %d are read", path,
                                                      files.class_names.size(), kImageFolderClassesMax));
  }
  for (int s : {kTrainSplit, kValidationSplit, kTestSplit}) {
    const std::string dir = s == kTrainSplit && train.empty() ? path : SplitDir(path, s);
    if (!dir.empty()) CAIRN_RETURN_IF_ERROR(ListSplit(path, dir, files.class_names, kind, &files.splits[s]));
  }
  return files;
}

}  // namespace cairn
