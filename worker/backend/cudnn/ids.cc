#include "worker/backend/cudnn/ids.h"

#include "worker/backend/embedding.h"

namespace cairn::cudnn {

std::vector<IdReader> IdReadersOf(const Graph& graph) {
  std::vector<IdReader> readers;
  for (const Node& node : graph.nodes()) {
    const Node* const input = ReadsIds(node) ? IdInput(graph, node) : nullptr;
    if (input != nullptr) readers.push_back({EmbeddingOf(node), input->input_offset, NumElements(input->output)});
  }
  return readers;
}

absl::Status CheckIds(const std::vector<IdReader>& readers, int64_t size, const Batch& batch) {
  for (const IdReader& reader : readers) {
    const int64_t rows = reader.embedding.layer.embedding().input_dim();
    for (int64_t e = 0; e < batch.examples; ++e) {
      for (int64_t i = e * size + reader.begin; i < e * size + reader.begin + reader.count; ++i) {
        const float id =
            batch.element == Element::kByte ? static_cast<float>(batch.inputs.data()[i]) : batch.inputs.floats()[i];
        if (EmbeddingRow(id, rows) < 0) return BadEmbeddingId(reader.embedding, e, id);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace cairn::cudnn
