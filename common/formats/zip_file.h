// Zip archives of a few named members, such as .keras files.
//
// Free functions, blocking; any thread. Invariant: archives are not trusted. A member's size is checked before it is
// read, its checksum afterwards.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/tensor/buffer.h"

namespace cairn {

struct ZipMember {
  std::string name;
  std::string text;  // its bytes, or
  std::string file;  // the file that has them
};

// Stored, not compressed. The archive is complete or absent: WriteFileWhole (common/base/files.h).
// Errors: INTERNAL names it.
absl::Status WriteZip(const std::string& path, const std::vector<ZipMember>& members);

// Errors: NOT_FOUND: no such archive or member; DATA_LOSS: not an archive, or damaged; INVALID_ARGUMENT: the member has
// more than bytes_max.
absl::StatusOr<Buffer> ReadZipMember(const std::string& path, const std::string& name, uint64_t bytes_max);

}  // namespace cairn
