// Permute.
#include <algorithm>

#include "absl/strings/str_join.h"
#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/limits.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

absl::Status InferPermute(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  const Shape& input = inputs[0];
  const Numbers& dims = node->layer.permute().dims();
  const int rank = static_cast<int>(input.size());
  if (input.size() > kPermutedAxesMax) {
    return Bad("its input ", ToString(input), " has ", rank, " axes; at most ", kPermutedAxesMax,
               " can be permuted, so join some by a Reshape before it");
  }
  std::vector<int32_t> sorted(dims.begin(), dims.end());
  std::sort(sorted.begin(), sorted.end());
  bool permutation = dims.size() == rank;
  for (int i = 0; permutation && i < rank; ++i) permutation = sorted[i] == i + 1;
  if (!permutation) {
    return Bad("dims [", absl::StrJoin(dims, ","), "] is not an order of the axes 1 .. ", rank, " of its input ",
               ToString(input), "; name each once, such as ",
               rank == 2   ? "[2,1]"
               : rank == 3 ? "[3,1,2]"
                           : "[1]");
  }
  for (int i = 0; i < rank; ++i) node->output[i] = input[dims[i] - 1];
  return absl::OkStatus();
}

void ReadPermute(KerasConfig& c, v1::Layer* layer) { c.Ints("dims", layer->mutable_permute()->mutable_dims()); }

void WritePermute(const Node& node, KerasWriter& c) { c.Ints("dims", node.layer.permute().dims()); }

void WriteOnnx(const Node& node, OnnxWriter& w) {
  std::vector<int64_t> axes = {0};
  for (const int32_t dim : node.layer.permute().dims()) axes.push_back(dim);
  const std::string x = w.In(node, 0, Channels::kLast);
  // onnxruntime treats an identity Transpose before a Gemm as one that permutes, so it is not written.
  const bool moves = !std::is_sorted(axes.begin(), axes.end());
  w.SetOutput(node, moves ? w.Transpose(x, axes) : x, Channels::kLast);
}

constexpr KerasClass kKeras[] = {{"Permute", ReadPermute}};

}  // namespace

constinit const LayerType kPermuteLayer = {
    .kind = LayerKind::kPermute,
    .field = v1::Layer::kPermute,
    .name = "permute",
    .infer = InferPermute,
    .keras = kKeras,
    .write_keras = WritePermute,
    .write_onnx = WriteOnnx,
};

}  // namespace cairn::layers
