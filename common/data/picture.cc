#include "common/data/picture.h"

#include <png.h>
#include <turbojpeg.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "common/data/byte_reader.h"
#include "common/data/limits.h"

namespace cairn {
namespace {

enum class FileKind { kUnknown, kJpeg, kPng };

FileKind KindOf(absl::string_view bytes) {
  if (absl::StartsWith(bytes, "\xFF\xD8\xFF")) return FileKind::kJpeg;
  if (absl::StartsWith(bytes, "\x89PNG\r\n\x1A\n")) return FileKind::kPng;
  return FileKind::kUnknown;
}

absl::StatusOr<std::string> ReadBytes(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(ByteReader reader, ByteReader::Open(path));
  CAIRN_ASSIGN_OR_RETURN(std::string bytes, reader.ReadToEnd(kPictureFileBytesMax));
  if (bytes.empty()) return absl::DataLossError(path + ": an empty file");
  return bytes;
}

absl::Status UnknownKind(const std::string& path) {
  return absl::DataLossError(path + ": neither a JPEG nor a PNG picture, whatever its name says");
}

absl::Status CheckSize(const std::string& path, int64_t height, int64_t width) {
  if (height > 0 && width > 0 && height * width <= kPicturePixelsMax) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat("%s: its header says %dx%d pixels; at most %d million are decoded", path,
                                             width, height, kPicturePixelsMax / 1'000'000));
}

struct JpegCloser {
  void operator()(void* handle) const { tjDestroy(handle); }
};
using JpegHandle = std::unique_ptr<void, JpegCloser>;

absl::Status JpegError(const std::string& path, void* handle) {
  return absl::DataLossError(absl::StrFormat("%s: broken JPEG: %s", path, tjGetErrorStr2(handle)));
}

// Warnings that do not affect pixels.
bool IsHarmless(absl::string_view warning) {
  return absl::StrContains(warning, "extraneous bytes") || absl::StrContains(warning, "unknown JFIF") ||
         absl::StrContains(warning, "nknown Adobe");
}

absl::StatusOr<PictureSize> JpegHeader(const std::string& path, absl::string_view bytes, void* handle) {
  int width = 0, height = 0, sampling = 0, colours = 0;
  const int result = tjDecompressHeader3(handle, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), &width,
                                         &height, &sampling, &colours);
  if (result != 0 && tjGetErrorCode(handle) == TJERR_FATAL) return JpegError(path, handle);
  // libjpeg accepts a file that ends before its frame header as one that has only tables.
  if (width <= 0 || height <= 0) return absl::DataLossError(path + ": broken JPEG: it ends within its header");
  if (colours == TJCS_CMYK || colours == TJCS_YCCK) {
    return absl::DataLossError(path + ": a CMYK JPEG; convert it to RGB");
  }
  CAIRN_RETURN_IF_ERROR(CheckSize(path, height, width));
  return PictureSize{height, width};
}

absl::StatusOr<Picture> DecodeJpeg(const std::string& path, absl::string_view bytes, int channels) {
  JpegHandle handle(tjInitDecompress());
  if (handle == nullptr) return absl::ResourceExhaustedError(path + ": no memory for a JPEG decoder");
  CAIRN_ASSIGN_OR_RETURN(const PictureSize size, JpegHeader(path, bytes, handle.get()));
  Picture picture{size.height, size.width, channels, {}};
  picture.pixels.resize(size.height * size.width * channels);
  const int format = channels == 1 ? TJPF_GRAY : TJPF_RGB;
  if (tjDecompress2(handle.get(), reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), picture.pixels.data(),
                    size.width, 0, size.height, format, TJFLAG_ACCURATEDCT | TJFLAG_LIMITSCANS) != 0 &&
      (tjGetErrorCode(handle.get()) == TJERR_FATAL || !IsHarmless(tjGetErrorStr2(handle.get())))) {
    return JpegError(path, handle.get());
  }
  return picture;
}

struct PngCloser {
  void operator()(png_image* image) const { png_image_free(image); }
};

absl::Status PngError(const std::string& path, const png_image& image) {
  return absl::DataLossError(absl::StrFormat("%s: broken PNG: %s", path, image.message));
}

absl::StatusOr<PictureSize> PngHeader(const std::string& path, absl::string_view bytes, png_image* image) {
  image->version = PNG_IMAGE_VERSION;
  if (!png_image_begin_read_from_memory(image, bytes.data(), bytes.size())) return PngError(path, *image);
  CAIRN_RETURN_IF_ERROR(CheckSize(path, image->height, image->width));
  return PictureSize{image->height, image->width};
}

// Drops the alpha channel: keeps RGB, or computes the luma.
void DropAlpha(const std::vector<uint8_t>& rgba, int channels, std::vector<uint8_t>* out) {
  const size_t count = rgba.size() / 4;
  out->resize(count * channels);
  for (size_t i = 0; i < count; ++i) {
    const uint8_t *p = rgba.data() + 4 * i, r = p[0], g = p[1], b = p[2];
    if (channels == 3) {
      std::memcpy(out->data() + 3 * i, p, 3);
    } else {
      (*out)[i] = static_cast<uint8_t>((299 * r + 587 * g + 114 * b + 500) / 1000);
    }
  }
}

absl::StatusOr<Picture> DecodePng(const std::string& path, absl::string_view bytes, int channels) {
  png_image image = {};
  std::unique_ptr<png_image, PngCloser> closer(&image);
  CAIRN_ASSIGN_OR_RETURN(const PictureSize size, PngHeader(path, bytes, &image));
  image.format = PNG_FORMAT_RGBA;
  image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
  std::vector<uint8_t> rgba(PNG_IMAGE_SIZE(image));
  // Warnings (such as an odd colour profile) do not affect pixels; a wrong checksum or missing data is an error.
  if (!png_image_finish_read(&image, nullptr, rgba.data(), 0, nullptr)) return PngError(path, image);
  Picture picture{size.height, size.width, channels, {}};
  DropAlpha(rgba, channels, &picture.pixels);
  return picture;
}

// The input of an output pixel along one axis: in[low] + (in[high] - in[low]) * share.
struct Tap {
  int64_t low, high;
  float share;
};

std::vector<Tap> MakeTaps(int64_t in, int64_t out) {
  std::vector<Tap> taps(out);
  const float scale = static_cast<float>(in) / static_cast<float>(out);
  for (int64_t i = 0; i < out; ++i) {
    const float at = (static_cast<float>(i) + 0.5f) * scale - 0.5f;
    const float floor = std::floor(at);
    taps[i] = {std::max<int64_t>(static_cast<int64_t>(floor), 0),
               std::min<int64_t>(static_cast<int64_t>(std::ceil(at)), in - 1), at - floor};
  }
  return taps;
}

}  // namespace

bool HasPictureName(const std::string& path) {
  const std::string name = absl::AsciiStrToLower(path);
  return absl::EndsWith(name, ".jpg") || absl::EndsWith(name, ".jpeg") || absl::EndsWith(name, ".png");
}

absl::StatusOr<Picture> ReadPicture(const std::string& path, int channels) {
  CAIRN_ASSIGN_OR_RETURN(const std::string bytes, ReadBytes(path));
  return DecodePicture(path, bytes, channels);
}

absl::StatusOr<Picture> DecodePicture(const std::string& where, absl::string_view bytes, int channels) {
  switch (KindOf(bytes)) {
    case FileKind::kJpeg: return DecodeJpeg(where, bytes, channels);
    case FileKind::kPng: return DecodePng(where, bytes, channels);
    case FileKind::kUnknown: break;
  }
  return UnknownKind(where);
}

absl::StatusOr<PictureSize> ReadPictureSize(const std::string& path) {
  CAIRN_ASSIGN_OR_RETURN(const std::string bytes, ReadBytes(path));
  return DecodePictureSize(path, bytes);
}

bool IsPicture(absl::string_view bytes) { return KindOf(bytes) != FileKind::kUnknown; }

absl::StatusOr<PictureSize> DecodePictureSize(const std::string& path, absl::string_view bytes) {
  switch (KindOf(bytes)) {
    case FileKind::kJpeg: {
      JpegHandle handle(tjInitDecompress());
      if (handle == nullptr) return absl::ResourceExhaustedError(path + ": no memory for a JPEG decoder");
      return JpegHeader(path, bytes, handle.get());
    }
    case FileKind::kPng: {
      png_image image = {};
      std::unique_ptr<png_image, PngCloser> closer(&image);
      return PngHeader(path, bytes, &image);
    }
    case FileKind::kUnknown: break;
  }
  return UnknownKind(path);
}

void ResizePicture(const Picture& in, int64_t height, int64_t width, absl::Span<uint8_t> out) {
  if (height == in.height && width == in.width) {
    std::copy(in.pixels.begin(), in.pixels.end(), out.begin());
    return;
  }
  const std::vector<Tap> rows = MakeTaps(in.height, height), columns = MakeTaps(in.width, width);
  const int64_t channels = in.channels;
  uint8_t* to = out.data();
  for (const Tap& row : rows) {
    const uint8_t* top = in.pixels.data() + row.low * in.width * channels;
    const uint8_t* bottom = in.pixels.data() + row.high * in.width * channels;
    for (const Tap& column : columns) {
      for (int64_t c = 0; c < channels; ++c) {
        const int64_t low = column.low * channels + c, high = column.high * channels + c;
        const float above = top[low] + (static_cast<float>(top[high]) - top[low]) * column.share;
        const float below = bottom[low] + (static_cast<float>(bottom[high]) - bottom[low]) * column.share;
        // NOLINTNEXTLINE(bugprone-incorrect-roundings): not below 0, and these bytes are what datasets are made of
        *to++ = static_cast<uint8_t>(above + (below - above) * row.share + 0.5f);
      }
    }
  }
}

}  // namespace cairn
