// JPEG and PNG files: decoded as grey and colour, and resized; the header alone says the same size. Pictures above 1 MP
// are left to the limits' own tests: they only take time.
#include "common/base/check.h"
#include "common/data/picture.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const cairn::FuzzFolder folder;
  cairn::ByteSource in(data, size);
  const int channels = in.Below(2) == 0 ? 1 : 3;
  const int64_t height = in.Below(16) + 1, width = in.Below(16) + 1;
  folder.Write("picture", in.Rest());
  const std::string path = folder / "picture";
  const auto header = cairn::ReadPictureSize(path);
  if (header.ok() && header->height * header->width > (1 << 20)) return 0;
  const auto picture = cairn::ReadPicture(path, channels);
  if (!picture.ok()) return 0;
  CAIRN_CHECK(header.ok() && header->height == picture->height && header->width == picture->width, "two sizes");
  CAIRN_CHECK(picture->pixels.size() == static_cast<size_t>(picture->height * picture->width * channels), "pixels");
  std::vector<uint8_t> resized(height * width * channels);
  cairn::ResizePicture(*picture, height, width, absl::MakeSpan(resized));
  return 0;
}
