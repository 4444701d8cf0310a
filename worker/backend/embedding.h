// Checks the ids of an Embedding, with the same error text in every backend.
//
// Thread-safe.
#pragma once

#include <cstdint>

#include "common/base/status.h"
#include "common/model/graph.h"

namespace cairn {

// The row of an id given as a float; -1 if it is not an integer in [0, rows).
inline int64_t EmbeddingRow(float id, int64_t rows) {
  if (!(id >= 0 && id < static_cast<float>(rows))) return -1;
  const int64_t row = static_cast<int64_t>(id);
  return static_cast<float>(row) == id ? row : -1;
}

// INVALID_ARGUMENT: `layer "embedding": id 12 in example 3 is no whole number in [0, 10); ...`.
absl::Status BadEmbeddingId(const Node& node, int64_t example, float id);

}  // namespace cairn
