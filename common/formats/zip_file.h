// Zip archives of a few named members: what a .keras file is.
//
// Free functions, blocking; any thread. Invariant: nothing of an archive is believed. A member's size is bounded before
// it is read, its checksum compared after.
#pragma once

#include <string>
#include <vector>

#include "common/base/status.h"
#include "common/tensor/buffer.h"

namespace cairn {

struct ZipMember {
  std::string name;
  std::string text;  // its bytes, or
  std::string file;  // where they lie
};

// Stored, not compressed. The archive is complete or absent: written beside its place, flushed and renamed. Errors:
// INTERNAL names it.
absl::Status WriteZip(const std::string& path, const std::vector<ZipMember>& members);

// Errors: NOT_FOUND the archive or the member; DATA_LOSS no archive, or a damaged one; INVALID_ARGUMENT a member of
// more than bytes_max.
absl::StatusOr<Buffer> ReadZipMember(const std::string& path, const std::string& name, uint64_t bytes_max);

}  // namespace cairn
