// HDF5 files of float32 arrays in groups, as Keras writes and reads them, over the library's C interface.
//
// Any thread: the library is not thread-safe as Debian builds it, so all calls take one lock; a reader holds it while
// it reads. Invariants:
//   1. Files are read in a separate process (apart.h): the library does not tolerate bad bytes.
//   2. Only requested objects are visited, step by step. Links to other places, data in other files,
//      filters other than deflate, shuffle and fletcher32, and arrays of an unexpected shape are refused before memory
//      of their size is allocated.
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

// Builds the file in memory and writes it in Close: on a full disk the library would fail in a way that crashes the
// process at its end.
class Hdf5Writer {
 public:
  // Errors name the file.
  static absl::StatusOr<std::unique_ptr<Hdf5Writer>> Create(const std::string& path);
  ~Hdf5Writer();
  Hdf5Writer(const Hdf5Writer&) = delete;
  Hdf5Writer& operator=(const Hdf5Writer&) = delete;

  // Adds the group and its missing parents; `name` becomes its attribute "name".
  absl::Status AddGroup(const std::string& group, const std::string& name);
  // values.size() == NumElements(shape); the group must exist.
  absl::Status AddArray(const std::string& group, const std::string& name, const Shape& shape,
                        absl::Span<const float> values);
  // The file exists only once this returns OK. Errors: RESOURCE_EXHAUSTED: the disk is full; NOT_FOUND,
  // PERMISSION_DENIED and others of the system.
  absl::Status Close();

 private:
  Hdf5Writer(std::string path, int64_t file) : path_(std::move(path)), file_(file) {}
  const std::string path_;
  int64_t file_;  // hid_t
};

// Reads a file; exists only inside ReadHdf5.
class Hdf5Reader {
 public:
  Hdf5Reader(std::string where, int64_t file) : where_(std::move(where)), file_(file) {}

  // The number of objects in the group; -1: there is no such group. Errors: DATA_LOSS.
  absl::StatusOr<int64_t> CountIn(const std::string& group) const;
  // Reads an array of this shape; out.size() == NumElements(shape). Errors: NOT_FOUND; FAILED_PRECONDITION: another
  // shape; DATA_LOSS; UNIMPLEMENTED: not floating-point numbers, or an unknown filter.
  absl::Status Read(const std::string& path, const Shape& shape, absl::Span<float> out) const;
  // The string or list of strings in an attribute of this group; group "": the file's root. Errors: NOT_FOUND: no such
  // group or attribute; DATA_LOSS: it has another type, or more than bytes_max.
  absl::StatusOr<std::vector<std::string>> Texts(const std::string& group, const std::string& attribute,
                                                 size_t bytes_max) const;

 private:
  const std::string where_;
  const int64_t file_;  // hid_t
};

// Returns `numbers` float32 numbers that `read` extracts from the bytes of a file. `read` runs in another process: all
// its writes to memory are lost except the numbers. Errors name `where`: those of `read`; DATA_LOSS: not an HDF5 file,
// or damaged; FAILED_PRECONDITION: far more numbers than the file can hold; RESOURCE_EXHAUSTED.
absl::StatusOr<Buffer> ReadHdf5(const Buffer& bytes, const std::string& where, int64_t numbers,
                                absl::FunctionRef<absl::Status(const Hdf5Reader&, absl::Span<float>)> read);

// Returns a text of at most bytes_max bytes that `read` makes from the file, in another process. Errors: as above.
absl::StatusOr<std::string> ReadHdf5Text(const Buffer& bytes, const std::string& where, size_t bytes_max,
                                         absl::FunctionRef<absl::StatusOr<std::string>(const Hdf5Reader&)> read);

}  // namespace cairn
