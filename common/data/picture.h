// Pictures: JPEG and PNG files into pixels, and their resizing.
//
// Thread-safe. The same file gives the same bytes on every x86-64 processor: the accurate integer DCT, no scaled
// decoding, no FMA.
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

// A picture above this is refused: a header of a few bytes may claim anything.

// Whether the name ends as a JPEG's or PNG's does. What it is, is told from its bytes.
bool HasPictureName(const std::string& path);

// channels: 1 (grey: luma 0.299 R + 0.587 G + 0.114 B) or 3 (RGB). Transparency is dropped, as tf.io.decode_png does.
// Errors: DATA_LOSS names the file and what is wrong with it.
absl::StatusOr<Picture> ReadPicture(const std::string& path, int channels);
// Of bytes that are in memory; `where` is what errors call them.
absl::StatusOr<Picture> DecodePicture(const std::string& where, absl::string_view bytes, int channels);
// Only the header is looked at.
absl::StatusOr<PictureSize> ReadPictureSize(const std::string& path);
absl::StatusOr<PictureSize> DecodePictureSize(const std::string& where, absl::string_view bytes);
// Whether they begin as a JPEG's or PNG's bytes do.
bool IsPicture(absl::string_view bytes);

// Bilinear with half-pixel centers, as tf.image.resize(antialias=False), rounded to the nearest byte.
// out.size() == height * width * in.channels.
void ResizePicture(const Picture& in, int64_t height, int64_t width, absl::Span<uint8_t> out);

}  // namespace cairn
