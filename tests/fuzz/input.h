// What the targets share: the fuzzer's bytes taken from the front, and a folder of files that is written anew for every
// input.
//
// ByteSource reads as many bytes as it is asked for and gives zeros at the end, so that every input means something. A
// seed is written with ByteSink in the same order.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "common/base/check.h"
#include "common/base/status.h"

namespace cairn {

// Must not fail, whatever the input is.
inline void MustBeOk(const absl::Status& status) { CAIRN_CHECK(status.ok(), status.ToString()); }

class ByteSource {
 public:
  ByteSource(const uint8_t* data, size_t size) : data_(data), left_(size) {}

  bool empty() const { return left_ == 0; }
  size_t left() const { return left_; }
  uint64_t Number(int bytes) {
    uint64_t v = 0;
    for (int i = 0; i < bytes; ++i) v |= static_cast<uint64_t>(Byte()) << (8 * i);
    return v;
  }
  uint8_t Byte() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }
  // One of 0 .. n - 1; n <= 256.
  size_t Below(size_t n) { return Byte() % n; }
  // Mostly small, sometimes at the edges of what 64 bits hold.
  uint64_t Edge() {
    const uint8_t b = Byte();
    if (b < 0xf0) return b;
    if (b < 0xf4) return Number(2);
    if (b < 0xf8) return Number(8);
    return b % 2 == 0 ? UINT64_MAX - (b & 7) / 2 : (uint64_t{1} << (8 * (b & 7))) - 1;
  }
  // At most n bytes, what is left where there are fewer.
  std::string_view Bytes(size_t n) {
    n = std::min(n, left_);
    const std::string_view bytes(reinterpret_cast<const char*>(data_), n);
    data_ += n;
    left_ -= n;
    return bytes;
  }
  std::string_view Rest() { return Bytes(left_); }
  // A length of two bytes, then as many.
  std::string_view Block() { return Bytes(Number(2)); }

 private:
  const uint8_t* data_;
  size_t left_;
};

class ByteSink {
 public:
  ByteSink& Number(uint64_t v, int bytes) {
    for (int i = 0; i < bytes; ++i) out_.push_back(static_cast<char>(v >> (8 * i)));
    return *this;
  }
  ByteSink& Byte(uint8_t v) { return Number(v, 1); }
  ByteSink& Raw(std::string_view bytes) {
    out_.append(bytes);
    return *this;
  }
  ByteSink& Block(std::string_view bytes) { return Number(bytes.size(), 2).Raw(bytes); }
  const std::string& bytes() const { return out_; }

 private:
  std::string out_;
};

// Below the system's folder for temporary files; removed when the program ends.
class FuzzFolder {
 public:
  FuzzFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "cairn_fuzz_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) abort();
    path_ = name;
  }
  // A process apart (common/formats/apart.h) that a sanitizer ends runs this, too: the folder is not its.
  ~FuzzFolder() {
    if (getpid() != owner_) return;
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  void Write(const std::string& name, std::string_view bytes) const {
    FILE* file = fopen((path_ + "/" + name).c_str(), "wb");
    if (file == nullptr || fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size() || fclose(file) != 0) abort();
  }
  void Remove(const std::string& name) const { unlink((path_ + "/" + name).c_str()); }

 private:
  std::string path_;
  const pid_t owner_ = getpid();
};

}  // namespace cairn
