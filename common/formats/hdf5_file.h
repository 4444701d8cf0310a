// HDF5 files of float32 arrays in groups, as Keras writes and reads them, over the library's C interface.
//
// Any thread: the library is not thread-safe as Debian builds it, so that all calls take one lock for as long as one
// array is read or written. Invariants:
//   1. Of a file that is read only what is asked for is looked at, step by step: a link to another file, data that lies
//      elsewhere and an array larger than what is stored for it are refused.
//   2. The library's own messages are not printed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/tensor/buffer.h"

namespace cairn {

class Hdf5Writer {
 public:
  // Makes the file anew. Errors: INTERNAL names it.
  static absl::StatusOr<std::unique_ptr<Hdf5Writer>> Create(const std::string& path);
  ~Hdf5Writer();
  Hdf5Writer(const Hdf5Writer&) = delete;
  Hdf5Writer& operator=(const Hdf5Writer&) = delete;

  // With the groups above it; `name` becomes its attribute of that name.
  absl::Status AddGroup(const std::string& group, const std::string& name);
  // values.size() == NumElements(shape); the group is there.
  absl::Status AddArray(const std::string& group, const std::string& name, const Shape& shape,
                        absl::Span<const float> values);
  // Nothing is whole before this returns OK.
  absl::Status Close();

 private:
  Hdf5Writer(std::string path, int64_t file) : path_(std::move(path)), file_(file) {}
  const std::string path_;
  int64_t file_;  // hid_t
};

struct Hdf5Array {
  Shape shape;
  Buffer values;  // float32
};

class Hdf5Reader {
 public:
  // The bytes of a file; `where` stands in the errors. Errors: DATA_LOSS.
  static absl::StatusOr<std::unique_ptr<Hdf5Reader>> Open(Buffer bytes, std::string where);
  ~Hdf5Reader();
  Hdf5Reader(const Hdf5Reader&) = delete;
  Hdf5Reader& operator=(const Hdf5Reader&) = delete;

  // How many things the group holds; -1: there is no such group. Errors: DATA_LOSS.
  absl::StatusOr<int64_t> CountIn(const std::string& group) const;
  // Errors: NOT_FOUND; DATA_LOSS; UNIMPLEMENTED numbers that are no floating-point ones.
  absl::StatusOr<Hdf5Array> Read(const std::string& group, const std::string& name) const;

 private:
  Hdf5Reader(Buffer bytes, std::string where, int64_t file)
      : bytes_(std::move(bytes)), where_(std::move(where)), file_(file) {}
  const Buffer bytes_;
  const std::string where_;
  const int64_t file_;  // hid_t
};

}  // namespace cairn
