#include "common/formats/onnx/onnx_export.h"

#include <google/protobuf/text_format.h>

#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/lacks.h"
#include "common/formats/limits.h"
#include "common/formats/onnx/fold_batch_norm.h"
#include "common/model/article.h"
#include "common/model/external_check.h"
#include "common/model/inner_node.h"
#include "common/model/layer_type.h"
#include "common/model/layers/categories.h"
#include "common/model/layers/recurrent.h"
#include "common/model/limits.h"
#include "common/model/onnx/onnx_operation_values.h"
#include "common/model/recurrent.h"

namespace cairn {
namespace {

constexpr int64_t kIrVersion = 7;  // the IR version of opset 13

std::string ModelText(const std::string& name, const Graph& graph) {
  v1::Model model;
  model.set_name(name);
  for (const Node& node : graph.nodes()) *model.add_layers() = node.layer;
  for (const int output : graph.outputs()) {  // of one alone it is the last layer
    if (graph.outputs().size() > 1) model.add_outputs(graph.nodes()[static_cast<size_t>(output)].name);
  }
  for (const v1::Submodel& submodel : graph.submodels()) *model.add_submodels() = submodel;
  std::string text;
  google::protobuf::TextFormat::PrintToString(model, &text);
  return text;
}

// Rejects what ONNX cannot express.
absl::Status CheckNode(const Graph& graph, const Node& node) {
  const auto named = [&](const absl::Status& status) {
    return status.ok() ? status : Annotate(status, absl::StrCat("layer \"", node.name, "\""));
  };
  if (IsRecurrent(node.kind)) CAIRN_RETURN_IF_ERROR(named(layers::CheckRecurrentOnnx(node)));
  if (node.output.size() > kLayerDimensionsMax) {
    return named(Lacks("its output ", ToString(node.output), " has more than ", kLayerDimensionsMax,
                       " axes, which is not written as ONNX; write safetensors or Keras' format"));
  }
  CAIRN_RETURN_IF_ERROR(named(layers::CheckCategoriesOnnx(node)));
  CAIRN_RETURN_IF_ERROR(named(CheckOperationOnnx(node)));
  if (FoldsSteps(node)) {
    const Graph steps = StepGraph(graph, node);
    CAIRN_RETURN_IF_ERROR(named(CheckNode(steps, steps.output())));
  }
  const bool heeds = IsRecurrent(node.kind) || node.kind == LayerKind::kGlobalAveragePooling1D ||
                     node.kind == LayerKind::kMultiHeadAttention;
  for (const int input : node.inputs) {
    const int mask = graph.nodes()[static_cast<size_t>(input)].mask;
    if (!heeds || mask < 0) continue;
    return named(Lacks("it leaves out the steps that \"", graph.nodes()[static_cast<size_t>(mask)].name,
                       "\" masks, and ONNX's operators know no masks; write safetensors or Keras' format"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<onnx::ModelProto> ExportOnnx(const Graph& given, absl::Span<const float> space,
                                            const OnnxExportOptions& options) {
  CAIRN_RETURN_IF_ERROR(CheckHasLayers(given, "ONNX"));
  std::optional<FoldedModel> folded;
  if (options.fold_batch_norm) {
    CAIRN_ASSIGN_OR_RETURN(folded, FoldBatchNormalizations(given, space));
    space = folded->space;
  }
  const Graph& graph = folded.has_value() ? folded->graph : given;
  for (const Node& node : graph.nodes()) CAIRN_RETURN_IF_ERROR(CheckNode(graph, node));
  onnx::ModelProto model;
  model.set_ir_version(kIrVersion);
  model.set_producer_name("cairn");
  onnx::OperatorSetIdProto* opset = model.add_opset_import();
  opset->set_domain("");
  opset->set_version(kOnnxOpset);
  onnx::StringStringEntryProto* own = model.add_metadata_props();
  own->set_key(kOnnxModelKey);
  own->set_value(ModelText(options.model_name, graph));
  model.mutable_graph()->set_name(options.model_name.empty() ? "cairn" : options.model_name);
  constexpr int64_t kBesideWeights = int64_t{64} << 20;  // names, shapes, constants
  if (graph.parameters() > (kOnnxBytesMax - kBesideWeights) / static_cast<int64_t>(sizeof(float))) {
    return absl::UnimplementedError(absl::StrCat(
        "the model has ", graph.parameters(), " parameters; an ONNX file holds at most 2 GiB, so write safetensors"));
  }
  OnnxWriter(graph, space, model.mutable_graph()).WriteGraph();
  return model;
}

std::vector<OnnxPlace> OnnxSkeleton(const Graph& graph, onnx::GraphProto* out) {
  OnnxWriter writer(graph, {}, out);
  writer.WriteGraph();
  return writer.places();
}

}  // namespace cairn
