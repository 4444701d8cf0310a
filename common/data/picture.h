// Decodes JPEG and PNG files to pixels, and resizes pictures.
//
// Thread-safe. A file gives the same bytes on every x86-64 processor: the decoder uses the accurate integer DCT, no
// scaled decoding and no FMA.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/status.h"

namespace cairn {

struct Picture {
  int64_t height = 0, width = 0, channels = 0;
  std::vector<uint8_t> pixels;  // [height, width, channels]
};

struct PictureSize {
  int64_t height = 0, width = 0;
};

// Larger pictures are rejected: a header of a few bytes may claim any size.

// Whether the name has a JPEG or PNG extension. The actual format is detected from the bytes.
bool HasPictureName(const std::string& path);

// channels: 1 (grey: luma 0.299 R + 0.587 G + 0.114 B) or 3 (RGB). Transparency is dropped, as tf.io.decode_png does.
// Errors: DATA_LOSS names the file and what is wrong with it.
absl::StatusOr<Picture> ReadPicture(const std::string& path, int channels);
// Decodes bytes in memory; errors call them `where`.
absl::StatusOr<Picture> DecodePicture(const std::string& where, absl::string_view bytes, int channels);
// Reads only the header.
absl::StatusOr<PictureSize> ReadPictureSize(const std::string& path);
absl::StatusOr<PictureSize> DecodePictureSize(const std::string& where, absl::string_view bytes);
// Whether the bytes begin with a JPEG or PNG signature.
bool IsPicture(absl::string_view bytes);

// Bilinear with half-pixel centers, as tf.image.resize(antialias=False), rounded to the nearest byte.
// out.size() == height * width * in.channels.
void ResizePicture(const Picture& in, int64_t height, int64_t width, absl::Span<uint8_t> out);

}  // namespace cairn
