// CategoryEncoding: encodes integers as rows of zeros and ones.
#include "common/model/layers/categories.h"
#include "common/model/layers/table.h"

namespace cairn::layers {
namespace {

absl::Status InferCategoryEncoding(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  v1::CategoryEncoding* layer = node->layer.mutable_category_encoding();
  CAIRN_RETURN_IF_ERROR(NeedCategories("num_tokens", layer->num_tokens(), "10, one more than the largest category"));
  CAIRN_RETURN_IF_ERROR(ResolveMode({v1::MULTI_HOT, v1::ONE_HOT, v1::COUNT}, layer));
  CAIRN_ASSIGN_OR_RETURN(node->output, CategoryCodeOf(node->layer).Of(inputs[0]));
  return absl::OkStatus();
}

void ReadCategoryEncoding(KerasConfig& c, v1::Layer* layer) {
  int32_t tokens = 0;
  c.Int("num_tokens", &tokens);
  layer->mutable_category_encoding()->set_num_tokens(tokens);
  layer->mutable_category_encoding()->set_output_mode(ReadMode(c));
}

void WriteCategoryEncoding(const Node& node, KerasWriter& c) {
  c["num_tokens"] = node.layer.category_encoding().num_tokens();
  WriteMode(node.layer.category_encoding().output_mode(), c);
}

void WriteOnnx(const Node& node, OnnxWriter& w) {
  const std::string indices = w.Op("Cast", {w.In(node, 0, Channels::kLast)});
  w.Int("to", onnx::TensorProto::INT64);
  WriteOnnxCode(node, indices, w);
}

constexpr KerasClass kKeras[] = {{"CategoryEncoding", ReadCategoryEncoding}};

}  // namespace

constinit const LayerType kCategoryEncodingLayer = {
    .kind = LayerKind::kCategoryEncoding,
    .field = v1::Layer::kCategoryEncoding,
    .name = "category_encoding",
    .infer = InferCategoryEncoding,
    .keras = kKeras,
    .write_keras = WriteCategoryEncoding,
    .write_onnx = WriteOnnx,
};

}  // namespace cairn::layers
