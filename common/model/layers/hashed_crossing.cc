// HashedCrossing: the bin of two or more integers or texts, by their common hash.
#include "common/base/limits.h"
#include "common/model/layers/categories.h"
#include "common/model/layers/table.h"

namespace cairn::layers {
namespace {

absl::Status InferHashedCrossing(absl::Span<const Shape> inputs, Node* node, std::vector<Variable>*) {
  v1::HashedCrossing* layer = node->layer.mutable_hashed_crossing();
  CAIRN_RETURN_IF_ERROR(NeedCategories("num_bins", layer->num_bins(), "64"));
  CAIRN_RETURN_IF_ERROR(NeedOneShape(inputs));
  // Keras crosses each number of one input with each of the others. Only inputs of one number each are unambiguous.
  if (inputs[0] != Shape{1}) return Bad("its inputs are ", ToString(inputs[0]), "; it crosses inputs of [1]");
  CAIRN_RETURN_IF_ERROR(ResolveMode({v1::INT, v1::ONE_HOT}, layer));
  CAIRN_ASSIGN_OR_RETURN(node->output, CategoryCodeOf(node->layer).Of(inputs[0]));
  return absl::OkStatus();
}

void ReadHashedCrossing(KerasConfig& c, v1::Layer* layer) {
  int32_t bins = 0;
  c.Int("num_bins", &bins);
  layer->mutable_hashed_crossing()->set_num_bins(bins);
  layer->mutable_hashed_crossing()->set_output_mode(ReadMode(c));
}

void WriteHashedCrossing(const Node& node, KerasWriter& c) {
  c["num_bins"] = node.layer.hashed_crossing().num_bins();
  WriteMode(node.layer.hashed_crossing().output_mode(), c);
}

constexpr KerasClass kKeras[] = {{"HashedCrossing", ReadHashedCrossing}};

}  // namespace

constinit const LayerType kHashedCrossingLayer = {
    .kind = LayerKind::kHashedCrossing,
    .field = v1::Layer::kHashedCrossing,
    .name = "hashed_crossing",
    .inputs_min = 2,
    .inputs_max = kLayersMax,
    .infer = InferHashedCrossing,
    .keras = kKeras,
    .write_keras = WriteHashedCrossing,
    .merges = true,
    .write_onnx = [](const Node&, OnnxWriter&) {},  // rejected by CheckCategoriesOnnx
};

}  // namespace cairn::layers
