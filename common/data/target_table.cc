#include "common/data/target_table.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/files.h"
#include "common/base/roots.h"
#include "common/data/picture.h"

namespace cairn {
namespace {

namespace fs = std::filesystem;

// Takes the pixel with the nearest centre: tf.image.resize(method="nearest", half_pixel_centers).
void ResizeNearest(const Picture& in, int64_t height, int64_t width, absl::Span<float> out) {
  float* to = out.data();
  for (int64_t y = 0; y < height; ++y) {
    const int64_t row = std::min(in.height - 1, (2 * y + 1) * in.height / (2 * height));
    for (int64_t x = 0; x < width; ++x) {
      const int64_t column = std::min(in.width - 1, (2 * x + 1) * in.width / (2 * width));
      const uint8_t* pixel = in.pixels.data() + (row * in.width + column) * in.channels;
      for (int64_t c = 0; c < in.channels; ++c) *to++ = static_cast<float>(pixel[c]);
    }
  }
}

}  // namespace

absl::Status FloatTargets::Read(int64_t index, absl::Span<float> target) const {
  const float* begin = numbers_.data() + index * width_;
  std::copy(begin, begin + width_, target.begin());
  return absl::OkStatus();
}

absl::Status PictureTargets::Read(int64_t index, absl::Span<float> target) const {
  const int channels = shape_.size() == 3 ? static_cast<int>(shape_[2]) : 1;
  CAIRN_ASSIGN_OR_RETURN(const Picture picture, ReadPicture(files_[static_cast<size_t>(index)], channels));
  if (shape_.size() == 2) {
    ResizeNearest(picture, shape_[0], shape_[1], target);
    return absl::OkStatus();
  }
  static thread_local std::vector<uint8_t> resized;
  resized.resize(target.size());
  ResizePicture(picture, shape_[0], shape_[1], absl::MakeSpan(resized));
  std::copy(resized.begin(), resized.end(), target.begin());
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> MatchPictures(const std::string& root, const std::string& dir,
                                                       const std::vector<std::string>& examples) {
  const fs::path named(dir);
  const fs::path folder = named.is_absolute() || NamesRoot(dir) ? named : fs::path(root) / named;
  CAIRN_RETURN_IF_ERROR(CheckInRoots("data.targets[0].pictures", folder.string(), Access::kRead));
  if (!IsFolder(folder.string())) {
    return absl::NotFoundError(
        absl::StrFormat("data.targets[0].pictures: %s: no such folder on this machine", folder.string()));
  }
  std::vector<std::string> found;
  found.reserve(examples.size());
  for (const std::string& example : examples) {
    const fs::path stem = folder / fs::path(example).lexically_relative(root).replace_extension();
    for (const char* ending : {".png", ".jpg", ".jpeg", ".PNG", ".JPG", ".JPEG"}) {
      if (const std::string file = stem.string() + ending; IsFile(file)) {
        found.push_back(file);
        break;
      }
    }
    if (found.size() == static_cast<size_t>(&example - examples.data()) + 1) continue;
    return absl::NotFoundError(
        absl::StrFormat("data.targets[0].pictures: %s has no picture %s.png or .jpg, which is the target of %s; add it",
                        folder.string(), stem.lexically_relative(folder).string(), example));
  }
  return found;
}

}  // namespace cairn
