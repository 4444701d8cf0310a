// HDF5 files of float32 arrays in groups, as Keras writes and reads them, over the library's C interface.
//
// Any thread: the library is not thread-safe as Debian builds it, so that all calls take one lock, a reader for as long
// as it reads. Invariants:
//   1. Files are read in a process of its own (apart.h): the library is not made for bad bytes.
//   2. Only what is asked for is looked at, step by step: a link to somewhere else, data that lies in another file,
//      filters other than deflate, shuffle and fletcher32, and an array of another shape than asked for are refused
//      before anything of their size is made.
//   3. The library's own messages are not printed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "common/base/status.h"
#include "common/tensor/buffer.h"

namespace cairn {

// Makes the file in memory, and writes it with its end: the library loses its head over a disk that is full, and
// crashes when the process ends.
class Hdf5Writer {
 public:
  // Errors name the file.
  static absl::StatusOr<std::unique_ptr<Hdf5Writer>> Create(const std::string& path);
  ~Hdf5Writer();
  Hdf5Writer(const Hdf5Writer&) = delete;
  Hdf5Writer& operator=(const Hdf5Writer&) = delete;

  // With the groups above it; `name` becomes its attribute of that name.
  absl::Status AddGroup(const std::string& group, const std::string& name);
  // values.size() == NumElements(shape); the group is there.
  absl::Status AddArray(const std::string& group, const std::string& name, const Shape& shape,
                        absl::Span<const float> values);
  // Nothing is there before this returns OK. Errors: RESOURCE_EXHAUSTED the disk is full, NOT_FOUND, PERMISSION_DENIED
  // and others of the system.
  absl::Status Close();

 private:
  Hdf5Writer(std::string path, int64_t file) : path_(std::move(path)), file_(file) {}
  const std::string path_;
  int64_t file_;  // hid_t
};

// What is read of a file, inside of ReadHdf5 alone.
class Hdf5Reader {
 public:
  Hdf5Reader(std::string where, int64_t file) : where_(std::move(where)), file_(file) {}

  // How many things the group holds; -1: there is no such group. Errors: DATA_LOSS.
  absl::StatusOr<int64_t> CountIn(const std::string& group) const;
  // An array of this shape; out.size() == NumElements(shape). Errors: NOT_FOUND; FAILED_PRECONDITION another shape;
  // DATA_LOSS; UNIMPLEMENTED numbers that are no floating-point ones, or a filter.
  absl::Status Read(const std::string& path, const Shape& shape, absl::Span<float> out) const;
  // The text, or the list of texts, that is an attribute of this group; group "": the file's root. Errors: NOT_FOUND
  // there is no such group or attribute; DATA_LOSS it holds something else, or more than bytes_max.
  absl::StatusOr<std::vector<std::string>> Texts(const std::string& group, const std::string& attribute,
                                                 size_t bytes_max) const;

 private:
  const std::string where_;
  const int64_t file_;  // hid_t
};

// So many float32 numbers, which `read` takes out of the bytes of a file. It runs in another process: what it does to
// memory is lost, but for the numbers. `where` stands in the errors. Errors: those of `read`; DATA_LOSS no HDF5 file,
// or a damaged one; FAILED_PRECONDITION far more numbers than the file can have; RESOURCE_EXHAUSTED.
absl::StatusOr<Buffer> ReadHdf5(const Buffer& bytes, const std::string& where, int64_t numbers,
                                absl::FunctionRef<absl::Status(const Hdf5Reader&, absl::Span<float>)> read);

// One text of at most bytes_max bytes that `read` makes of the file, in another process as above. Errors: as above.
absl::StatusOr<std::string> ReadHdf5Text(const Buffer& bytes, const std::string& where, size_t bytes_max,
                                         absl::FunctionRef<absl::StatusOr<std::string>(const Hdf5Reader&)> read);

}  // namespace cairn
