// Pictures in folders by class (common/data/class_folder.h).
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/data/class_folder.h"
#include "common/data/decoded_table.h"
#include "common/data/limits.h"
#include "common/data/picture.h"
#include "common/data/table.h"
#include "common/model/target_check.h"

namespace cairn {
namespace {

class PictureSource : public ExampleSource {
 public:
  PictureSource(std::vector<ClassFile> files, const Shape& shape) : files_(std::move(files)), shape_(shape) {}

  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  float Label(int64_t index) const override { return static_cast<float>(files_[index].label); }
  std::string NameOf(int64_t index) const override { return files_[index].name; }
  absl::Status Decode(int64_t index, void* out) const override {
    CAIRN_ASSIGN_OR_RETURN(const Picture picture, ReadPicture(files_[index].path, static_cast<int>(shape_[2])));
    ResizePicture(picture, shape_[0], shape_[1],
                  absl::MakeSpan(static_cast<uint8_t*>(out), static_cast<size_t>(NumElements(shape_))));
    return absl::OkStatus();
  }

 private:
  const std::vector<ClassFile> files_;
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

bool LooksLikeImageFolder(const std::string& dir) { return LooksLikeClassFolder(dir, kPictureFiles); }

namespace {

absl::StatusOr<std::shared_ptr<const TargetTable>> TargetsOf(const v1::Data& data, const std::vector<ClassFile>& files,
                                                             const Shape& example) {
  std::vector<std::string> paths;
  for (const ClassFile& file : files) paths.push_back(file.path);
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
  CAIRN_ASSIGN_OR_RETURN(ClassFolderFiles files, ListClassFolder(data.path(), kPictureFiles));
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
