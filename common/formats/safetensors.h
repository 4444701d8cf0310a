// Safetensors files: named tensors with a small JSON header, as Hugging Face's library reads and writes them.
//
//   file   := header_bytes (uint64, little-endian)  header  data
//   header := {"NAME": {"dtype": "F32", "shape": [..], "data_offsets": [begin, end]}, ...,
//             "__metadata__": {"KEY": "TEXT"}}
//             padded with spaces to a multiple of 8
//   data   := the tensors' little-endian bytes, row-major; offsets count from its first byte
//
// Free functions; any thread. Invariants:
//   1. A written file is complete or absent: WriteFileWhole (common/base/files.h).
//   2. Files are not trusted: lengths, offsets, shapes and names are
//      checked before they are used, and the tensors must cover the
//      data without holes or overlaps (as the format demands).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cairn/v1/types.pb.h"
#include "common/base/status.h"
#include "common/tensor/buffer.h"

namespace cairn {

// A float32 tensor to be written. values.size() == NumElements(shape).
struct SafetensorView {
  std::string name;  // not empty, unique, not "__metadata__"
  Shape shape;
  absl::Span<const float> values;
};

struct Safetensor {
  std::string name;
  v1::DataType dtype = v1::FLOAT32;
  Shape shape;
  Buffer data;  // NumElements(shape) * SizeOf(dtype) bytes
};

struct SafetensorsFile {
  std::vector<Safetensor> tensors;  // in the order of their bytes
  std::map<std::string, std::string> metadata;
};

// Errors: INVALID_ARGUMENT names the tensor; PERMISSION_DENIED, NOT_FOUND, INTERNAL name the file and the system's
// reason. `digest`: set to the XXH3-128 of the file's bytes, in hex.
absl::Status WriteSafetensors(const std::string& path, const std::vector<SafetensorView>& tensors,
                              const std::map<std::string, std::string>& metadata, std::string* digest = nullptr);

// The same bytes to somewhere else: `begin` is told how many there are before `write` gets them, in order. Errors:
// INVALID_ARGUMENT names the tensor; those of the sink.
struct SafetensorsSink {
  std::function<absl::Status(uint64_t bytes)> begin;
  std::function<absl::Status(absl::string_view bytes)> write;
};
absl::Status WriteSafetensorsTo(const SafetensorsSink& sink, const std::vector<SafetensorView>& tensors,
                                const std::map<std::string, std::string>& metadata, std::string* digest);

// How to treat integer tensors, such as PyTorch's num_batches_tracked. They are not weights of any model in Cairn.
enum class SafetensorsIntegers { kRefuse, kLeave };

// Errors: NOT_FOUND, PERMISSION_DENIED; DATA_LOSS names the file, the tensor and the problem; UNIMPLEMENTED: a
// dtype other than F32, F16 and BF16.
absl::StatusOr<SafetensorsFile> ReadSafetensors(const std::string& path,
                                                SafetensorsIntegers integers = SafetensorsIntegers::kRefuse);

// The same for bytes in memory; errors name `where`.
absl::StatusOr<SafetensorsFile> ParseSafetensors(const Buffer& bytes, absl::string_view where,
                                                 SafetensorsIntegers integers = SafetensorsIntegers::kRefuse);

// The header alone, where the rest is not at hand: of the tensors all but their data, which is empty. What the header
// says is checked against the file's size. read: gives these bytes of the file, in whole. Errors: as of the others, and
// those of read.
using SafetensorsRange = std::function<absl::StatusOr<std::string>(uint64_t begin, uint64_t bytes)>;
absl::StatusOr<SafetensorsFile> ReadSafetensorsHeader(const SafetensorsRange& read, uint64_t file_bytes,
                                                      absl::string_view where,
                                                      SafetensorsIntegers integers = SafetensorsIntegers::kRefuse);

}  // namespace cairn
