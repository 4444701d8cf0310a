#include "common/data/image_folder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/files.h"
#include "common/data/decoded_table.h"
#include "common/data/limits.h"
#include "common/data/picture.h"
#include "common/data/table.h"
#include "common/model/target_check.h"

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

absl::Status ListSplit(const std::string& dir, const std::vector<std::string>& class_names,
                       std::vector<PictureFile>* files) {
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
      if (entry.is_dir || !HasPictureName(entry.name)) continue;
      files->push_back({absl::StrCat(class_dir, "/", entry.name), static_cast<int32_t>(it - class_names.begin())});
    }
    if (files->size() == before) {
      return absl::NotFoundError(class_dir + ": holds no .jpg, .jpeg or .png file; remove the folder or fill it");
    }
  }
  if (files->empty()) {
    return absl::NotFoundError(dir + ": holds no class folders; pictures belong in one folder a class");
  }
  return absl::OkStatus();
}

class PictureSource : public ExampleSource {
 public:
  PictureSource(std::vector<PictureFile> files, const Shape& shape) : files_(std::move(files)), shape_(shape) {}

  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  float Label(int64_t index) const override { return static_cast<float>(files_[index].label); }
  absl::Status Decode(int64_t index, void* out) const override {
    CAIRN_ASSIGN_OR_RETURN(const Picture picture, ReadPicture(files_[index].path, static_cast<int>(shape_[2])));
    ResizePicture(picture, shape_[0], shape_[1],
                  absl::MakeSpan(static_cast<uint8_t*>(out), static_cast<size_t>(NumElements(shape_))));
    return absl::OkStatus();
  }

 private:
  const std::vector<PictureFile> files_;
  const Shape shape_;
};

}  // namespace

absl::StatusOr<Shape> PictureShape(const v1::Data& data, const Shape& input_shape) {
  if (data.image_height() < 0 || data.image_width() < 0 || data.image_height() > kImageFolderSideMax ||
      data.image_width() > kImageFolderSideMax) {
    return absl::InvalidArgumentError(absl::StrFormat("data.image_height, data.image_width: %dx%d; use 1 to %d",
                                                      data.image_height(), data.image_width(), kImageFolderSideMax));
  }
  Shape shape = {data.image_height(), data.image_width(), 3};
  if (input_shape.size() == 3) {
    if (shape[0] == 0) shape[0] = input_shape[0];
    if (shape[1] == 0) shape[1] = input_shape[1];
    shape[2] = input_shape[2];
  }
  if (shape[0] == 0 || shape[1] == 0) {
    return absl::InvalidArgumentError(
        "data.image_height, data.image_width: needed, for pictures differ in size and the model's input "
        "does not say; set both, as 128 and 128");
  }
  if (shape[2] != 1 && shape[2] != 3) {
    return absl::InvalidArgumentError(
        absl::StrFormat("model: its input has %d channels; pictures give 1 (grey) or 3 (RGB)", shape[2]));
  }
  return shape;
}

bool LooksLikeImageFolder(const std::string& dir) {
  const std::string train = SplitDir(dir, kTrainSplit);
  const std::string& root = train.empty() ? dir : train;
  const absl::StatusOr<std::vector<std::string>> classes = SubDirs(root);
  if (!classes.ok()) return false;
  for (const std::string& name : *classes) {
    const absl::StatusOr<std::vector<Entry>> entries = ListDir(absl::StrCat(root, "/", name));
    if (!entries.ok()) continue;
    for (const Entry& entry : *entries) {
      if (!entry.is_dir && HasPictureName(entry.name)) return true;
    }
  }
  return false;
}

absl::StatusOr<ImageFolderFiles> ListImageFolder(const std::string& path) {
  ImageFolderFiles files;
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
    if (!dir.empty()) CAIRN_RETURN_IF_ERROR(ListSplit(dir, files.class_names, &files.splits[s]));
  }
  return files;
}

namespace {

absl::StatusOr<std::shared_ptr<const TargetTable>> TargetsOf(const v1::Data& data,
                                                             const std::vector<PictureFile>& files,
                                                             const Shape& example) {
  std::vector<std::string> paths;
  for (const PictureFile& file : files) paths.push_back(file.path);
  const v1::TargetSource& target = data.targets(PictureTargetOf(data));
  CAIRN_ASSIGN_OR_RETURN(paths, MatchPictures(data.path(), target.pictures(), paths));
  Shape shape(target.shape().begin(), target.shape().end());
  if (shape.size() < 2) shape = {example[0], example[1]};
  return std::make_shared<PictureTargets>(std::move(paths), shape);
}

}  // namespace

absl::StatusOr<LoadedData> LoadImageFolder(const v1::Data& data, const Shape& input_shape) {
  LoadedData loaded;
  CAIRN_ASSIGN_OR_RETURN(loaded.shape, PictureShape(data, input_shape));
  CAIRN_ASSIGN_OR_RETURN(ImageFolderFiles files, ListImageFolder(data.path()));
  loaded.class_names = std::move(files.class_names);
  loaded.classes = static_cast<int32_t>(loaded.class_names.size());
  CAIRN_ASSIGN_OR_RETURN(const std::shared_ptr<CacheRoom> room, CacheRoom::Make(data));
  const bool pictures = PictureTargetOf(data) >= 0;
  if (!TakesLabel(data)) loaded.classes = 0;
  if (pictures) loaded.target_size = TargetSize(data);
  for (int s = 0; s < 3; ++s) {
    if (files.splits[s].empty()) continue;
    if (pictures) {
      CAIRN_ASSIGN_OR_RETURN(loaded.targets[s], TargetsOf(data, files.splits[s], loaded.shape));
    }
    auto source = std::make_unique<PictureSource>(std::move(files.splits[s]), loaded.shape);
    loaded.splits[s] =
        std::make_shared<DecodedTable>(std::move(source), NumElements(loaded.shape), Element::kByte, room);
  }
  return loaded;
}

}  // namespace cairn
