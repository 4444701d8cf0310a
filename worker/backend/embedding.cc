#include "worker/backend/embedding.h"

#include "absl/strings/str_cat.h"

namespace cairn {

absl::Status BadEmbeddingId(const Node& node, int64_t example, float id) {
  return absl::InvalidArgumentError(absl::StrCat(
      "layer \"", node.name, "\": id ", id, " in example ", example, " of the batch is not a whole number in [0, ",
      node.layer.embedding().input_dim(), "); correct the data or set input_dim to the largest id plus 1"));
}

}  // namespace cairn
