// Embedding: rows of a table, selected by ids.
#include <algorithm>

#include "common/base/bad.h"
#include "common/base/lacks.h"
#include "common/model/keras/keras_config.h"
#include "common/model/keras/keras_fields.h"
#include "common/model/keras/keras_writer.h"
#include "common/model/layers/fields.h"
#include "common/model/layers/table.h"
#include "common/model/limits.h"
#include "common/model/onnx/onnx_importer.h"
#include "common/model/onnx/onnx_moves.h"
#include "common/model/onnx/onnx_writer.h"

namespace cairn::layers {
namespace {

absl::Status InferEmbedding(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>* variables) {
  const Shape& input = inputs[0];
  v1::Embedding* embedding = node->layer.mutable_embedding();
  CAIRN_RETURN_IF_ERROR(NeedPositive("input_dim", embedding->input_dim(), "10000, one more than the largest id"));
  CAIRN_RETURN_IF_ERROR(NeedPositive("output_dim", embedding->output_dim(), "64"));
  if (embedding->input_dim() > kEmbeddingIdsMax) {
    return Bad("input_dim ", embedding->input_dim(), " is too large; the limit is ", kEmbeddingIdsMax);
  }
  if (input.size() >= kPermutedAxesMax) {
    return Bad("its input is ", ToString(input), "; it needs ids as [steps], or [rows, steps]");
  }
  if (embedding->mask_zero() && input.size() != 1) {
    return Bad("mask_zero: its input is ", ToString(input), "; a mask is of [steps], so leave mask_zero out");
  }
  node->output.push_back(embedding->output_dim());
  CAIRN_RETURN_IF_ERROR(ResolveInitializer("embeddings_initializer", v1::Initializer::RANDOM_UNIFORM,
                                           embedding->mutable_embeddings_initializer()));
  CAIRN_RETURN_IF_ERROR(AddVariable(*node, "embeddings", {embedding->input_dim(), embedding->output_dim()},
                                    embedding->embeddings_initializer(), variables));
  return Regularize("embeddings_regularizer", embedding->has_embeddings_regularizer(),
                    embedding->embeddings_regularizer(), variables);
}

void ReadEmbedding(KerasConfig& c, v1::Layer* layer) {
  v1::Embedding* embedding = layer->mutable_embedding();
  int32_t input_dim = 0, output_dim = 0;
  c.Int("input_dim", &input_dim);
  c.Int("output_dim", &output_dim);
  embedding->set_input_dim(input_dim);
  embedding->set_output_dim(output_dim);
  if (c.Has("embeddings_initializer"))
    c.Initializer("embeddings_initializer", embedding->mutable_embeddings_initializer());
  keras::Regularizer(c, "embeddings_regularizer", [&] { return embedding->mutable_embeddings_regularizer(); });
  bool mask_zero = false;
  c.Bool("mask_zero", &mask_zero);
  embedding->set_mask_zero(mask_zero);
  c.Only("sparse", false, keras::kLeaveAway);
  c.Ignore("input_length");
}

void WriteEmbedding(const Node& node, KerasWriter& c) {
  const v1::Embedding& embedding = node.layer.embedding();
  c["input_dim"] = embedding.input_dim();
  c["output_dim"] = embedding.output_dim();
  c.Initializer("embeddings_initializer", embedding.embeddings_initializer());
  c.Regularizer("embeddings_regularizer", embedding.has_embeddings_regularizer(), embedding.embeddings_regularizer());
  c.Nulls({"activity_regularizer", "embeddings_constraint"});
  c["mask_zero"] = embedding.mask_zero();
}

void WriteOnnx(const Node& node, OnnxWriter& w) {
  const std::string ids = w.Op("Cast", {w.In(node, 0, Channels::kLast)});
  w.Int("to", onnx::TensorProto::INT64);
  const std::string y = w.Op("Gather", {w.VariableOf(node, "embeddings"), ids});
  w.Int("axis", 0);
  w.SetOutput(node, y, Channels::kLast);
}

// A Gather that selects rows of a table by ids is an embedding; one by constant places is a Take.
absl::Status ImportGather(OnnxImporter& importer) {
  if (!importer.IsConstant(0)) return ImportOnnxTake(importer);
  CAIRN_ASSIGN_OR_RETURN(const OnnxView ids, importer.ViewOf(1));
  CAIRN_ASSIGN_OR_RETURN(OnnxTensor table, importer.ConstantOf(0, "table"));
  OnnxAttributes attributes(importer.node());
  attributes.Only("axis", 0, "an Embedding picks whole rows");
  CAIRN_RETURN_IF_ERROR(attributes.Finish());
  if (table.whole || table.dims.size() != 2)
    return Lacks("table ", ToString(table.dims), "; one of [ids,features] is read");
  CAIRN_ASSIGN_OR_RETURN(const int from, importer.layers().Place(ids));
  v1::Layer layer;
  layer.mutable_embedding()->set_input_dim(static_cast<int32_t>(std::min<int64_t>(table.dims[0], INT32_MAX)));
  layer.mutable_embedding()->set_output_dim(static_cast<int32_t>(std::min<int64_t>(table.dims[1], INT32_MAX)));
  CAIRN_ASSIGN_OR_RETURN(const int id, importer.AddLayer(LayerKind::kEmbedding, layer, {from},
                                                         {{"embeddings", table.dims, std::move(table.floats)}}, 0));
  importer.SetView(OnnxView::Of(id, importer.layers().ShapeOf(id)));
  return absl::OkStatus();
}

std::optional<TorchPlace> PlaceEmbeddings(const Graph&, const Variable& v, absl::string_view) {
  return TorchPlace{"weight", v.shape, {0, 1}, v.shape};
}

constexpr KerasClass kKeras[] = {{"Embedding", ReadEmbedding}};
constexpr OnnxOperator kOnnx[] = {{"Gather", ImportGather}};

}  // namespace

constinit const LayerType kEmbeddingLayer = {
    .kind = LayerKind::kEmbedding,
    .field = v1::Layer::kEmbedding,
    .name = "embedding",
    .infer = InferEmbedding,
    .keras = kKeras,
    .write_keras = WriteEmbedding,
    .write_onnx = WriteOnnx,
    .onnx = kOnnx,
    .torch = PlaceEmbeddings,
};

}  // namespace cairn::layers
