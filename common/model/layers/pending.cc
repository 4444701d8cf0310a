// Rows of layers that are being built. This file goes when the last one has a file of its own.
#include "common/base/lacks.h"
#include "common/model/layers/table.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {
absl::Status InferPending(absl::Span<const Shape>, Node*, std::vector<Variable>*) {
  return absl::UnimplementedError("this layer is being built");
}
void WriteOnnx(const Node&, OnnxWriter&) {}
}  // namespace

#define CAIRN_PENDING(kind_name, field_name, text)                                  \
  constinit const LayerType k##kind_name##Layer = {.kind = LayerKind::k##kind_name, \
                                                   .field = v1::Layer::field_name,  \
                                                   .name = text,                    \
                                                   .infer = InferPending,           \
                                                   .write_onnx = WriteOnnx};

CAIRN_PENDING(SpectralNormalization, kSpectralNormalization, "spectral_normalization")
CAIRN_PENDING(GroupQueryAttention, kGroupQueryAttention, "group_query_attention")
CAIRN_PENDING(StringLookup, kStringLookup, "string_lookup")
CAIRN_PENDING(TextVectorization, kTextVectorization, "text_vectorization")
}  // namespace cairn::layers
