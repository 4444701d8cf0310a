// Small data sets for tests, in a folder that is removed when the test ends.
#pragma once

#include <png.h>
#include <turbojpeg.h>
#include <zlib.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "common/base/check.h"

namespace cairn {

class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "cairn_data_XXXXXX").string();
    CAIRN_CHECK(mkdtemp(name.data()) != nullptr, "mkdtemp");
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline void WriteFile(const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string ReadFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline void WriteGzip(const std::string& path, const std::string& bytes) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  gzFile gz = gzopen(path.c_str(), "wb");
  CAIRN_CHECK(gzwrite(gz, bytes.data(), bytes.size()) == static_cast<int>(bytes.size()), "gzwrite");
  CAIRN_CHECK(gzclose(gz) == Z_OK, "gzclose");
}

// An IDX file: header and bytes.
inline std::string Idx(const std::vector<uint32_t>& dims, const std::string& bytes) {
  std::string out = {0, 0, 8, static_cast<char>(dims.size())};
  for (uint32_t d : dims) {
    for (int shift : {24, 16, 8, 0}) out.push_back(static_cast<char>(d >> shift));
  }
  return out + bytes;
}

// n bytes that differ: (first + i * 7) mod 256.
inline std::string Bytes(size_t n, int first = 0) {
  std::string bytes(n, '\0');
  for (size_t i = 0; i < n; ++i) bytes[i] = static_cast<char>(first + i * 7);
  return bytes;
}

inline void WritePng(const std::string& path, int width, int height, int channels, const std::vector<uint8_t>& pixels) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.width = width;
  image.height = height;
  image.format = channels == 1 ? PNG_FORMAT_GRAY : channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_RGBA;
  CAIRN_CHECK(png_image_write_to_file(&image, path.c_str(), 0, pixels.data(), 0, nullptr), "PNG");
}

inline void WriteJpeg(const std::string& path, int width, int height, int channels,
                      const std::vector<uint8_t>& pixels) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  tjhandle handle = tjInitCompress();
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  CAIRN_CHECK(tjCompress2(handle, pixels.data(), width, 0, height, channels == 1 ? TJPF_GRAY : TJPF_RGB, &bytes, &size,
                          channels == 1 ? TJSAMP_GRAY : TJSAMP_444, 95, 0) == 0,
              "JPEG");
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<char*>(bytes), size);
  tjFree(bytes);
  tjDestroy(handle);
}

inline std::vector<uint8_t> Plain(int width, int height, std::vector<uint8_t> colour) {
  std::vector<uint8_t> pixels;
  for (int i = 0; i < width * height; ++i) pixels.insert(pixels.end(), colour.begin(), colour.end());
  return pixels;
}

// `train` (and `test`) examples of 2x3 pixels: pixel j of example i is (7 * (6 i + j)) mod 256, its label i mod 10.
inline void WriteIdxDataset(const std::string& dir, int train, int test, bool gzip) {
  const auto write = gzip ? WriteGzip : WriteFile;
  const std::string suffix = gzip ? ".gz" : "";
  const auto split = [&](const std::string& name, int n) {
    std::string labels;
    for (int i = 0; i < n; ++i) labels.push_back(static_cast<char>(i % 10));
    const uint32_t count = n;
    write(dir + "/" + name + "-images-idx3-ubyte" + suffix, Idx({count, 2, 3}, Bytes(n * 6)));
    write(dir + "/" + name + "-labels-idx1-ubyte" + suffix, Idx({count}, labels));
  };
  split("train", train);
  if (test > 0) split("t10k", test);
}

}  // namespace cairn
