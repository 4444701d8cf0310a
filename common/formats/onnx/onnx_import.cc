#include "common/formats/onnx/onnx_import.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/text_format.h>

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/limits.h"
#include "common/formats/limits.h"
#include "common/formats/onnx/onnx_constants.h"
#include "common/formats/onnx/onnx_export.h"
#include "common/formats/onnx/onnx_fuse.h"
#include "common/model/graph.h"
#include "common/model/onnx/axis_order.h"
#include "common/model/onnx/onnx_graph.h"
#include "common/model/onnx/onnx_importer.h"
#include "common/model/onnx/onnx_tensor.h"

namespace cairn {
namespace {

const std::string* OwnModelText(const onnx::ModelProto& model) {
  for (const onnx::StringStringEntryProto& entry : model.metadata_props()) {
    if (entry.key() == kOnnxModelKey && entry.value().size() <= static_cast<size_t>(kControlMessageBytesMax))
      return &entry.value();
  }
  return nullptr;
}

bool SameTensor(const onnx::TensorProto& a, const onnx::TensorProto& b, bool numbers) {
  return a.data_type() == b.data_type() &&
         std::equal(a.dims().begin(), a.dims().end(), b.dims().begin(), b.dims().end()) &&
         (!numbers || a.raw_data() == b.raw_data());
}

template <typename Messages>
bool SameMessages(const Messages& a, const Messages& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) { return x.SerializeAsString() == y.SerializeAsString(); });
}

// Where the numbers of each variable are if `graph` equals the export of `own`; else nullopt. Messages without maps
// have a unique serialization.
std::optional<std::vector<std::pair<OnnxPlace, const onnx::TensorProto*>>> MatchSkeleton(
    const Graph& own, const onnx::GraphProto& graph) {
  onnx::GraphProto skeleton;
  const std::vector<OnnxPlace> places = OnnxSkeleton(own, &skeleton);
  if (!SameMessages(skeleton.node(), graph.node()) || !SameMessages(skeleton.input(), graph.input()) ||
      !SameMessages(skeleton.output(), graph.output()) || skeleton.initializer_size() != graph.initializer_size()) {
    return std::nullopt;
  }
  std::map<std::string, const OnnxPlace*> variables;
  for (const OnnxPlace& place : places) variables[place.initializer] = &place;
  std::map<std::string, const onnx::TensorProto*> tensors;
  for (const onnx::TensorProto& tensor : graph.initializer()) tensors[tensor.name()] = &tensor;
  std::vector<std::pair<OnnxPlace, const onnx::TensorProto*>> matched;
  for (const onnx::TensorProto& tensor : skeleton.initializer()) {
    const auto there = tensors.find(tensor.name());
    const auto variable = variables.find(tensor.name());
    if (there == tensors.end() || !SameTensor(tensor, *there->second, variable == variables.end())) return std::nullopt;
    if (variable != variables.end()) matched.emplace_back(*variable->second, there->second);
  }
  return matched;
}

// No error messages: a file without a Cairn model is read as any other graph.
class Silent : public google::protobuf::io::ErrorCollector {
  void AddError(int, google::protobuf::io::ColumnNumber, const std::string&) override {}
};

// nullopt: Cairn did not write this graph, or it was modified.
absl::StatusOr<std::optional<ImportedOnnx>> ImportOwn(const onnx::ModelProto& model) {
  const bool opset = model.opset_import_size() == 1 && model.opset_import(0).domain().empty() &&
                     model.opset_import(0).version() == kOnnxOpset;
  const std::string* text = opset ? OwnModelText(model) : nullptr;
  ImportedOnnx imported;
  google::protobuf::TextFormat::Parser parser;
  parser.SetRecursionLimit(kTextDepthMax);
  Silent silent;
  parser.RecordErrorsTo(&silent);
  if (text == nullptr || !parser.ParseFromString(*text, &imported.model)) return std::nullopt;
  const absl::StatusOr<Graph> own = Graph::Build(imported.model);
  if (!own.ok() || !ConstantsFit(*own, static_cast<int64_t>(model.ByteSizeLong()))) return std::nullopt;
  const auto matched = MatchSkeleton(*own, model.graph());
  if (!matched.has_value()) return std::nullopt;
  for (const auto& [place, tensor] : *matched) {
    CAIRN_RETURN_IF_ERROR(CheckOnnxTensor(*tensor));
    const Variable& v = own->variables()[static_cast<size_t>(place.variable)];
    const std::vector<float> floats = ReadOnnxTensor(*tensor).floats;
    imported.variables.push_back(
        {v.name, v.shape, InOrder(floats, ShapeInOrder(v.shape, place.axes), InverseOrder(place.axes))});
  }
  return imported;
}

// Checks that the import has everything that its own model's graph needs; anything else is a bug in Cairn.
absl::Status CheckComplete(const ImportedOnnx& imported) {
  const absl::StatusOr<Graph> graph = Graph::Build(imported.model);
  if (!graph.ok()) return graph.status();
  std::map<std::string, const OnnxVariable*> variables;
  for (const OnnxVariable& v : imported.variables) variables[v.name] = &v;
  for (const Variable& v : graph->variables()) {
    const auto it = variables.find(v.name);
    if (it == variables.end() || it->second->shape != v.shape ||
        it->second->values.size() != static_cast<size_t>(v.size)) {
      return absl::InternalError(absl::StrCat("variable \"", v.name, "\" was not read as the model needs it"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ImportedOnnx> ImportOnnx(const onnx::ModelProto& model) {
  CAIRN_ASSIGN_OR_RETURN(std::optional<ImportedOnnx> own, ImportOwn(model));
  if (own.has_value()) return *std::move(own);
  CAIRN_ASSIGN_OR_RETURN(OnnxGraph graph, CheckOnnx(model));
  FuseOnnx(&graph);
  OnnxImporter importer(graph);
  CAIRN_ASSIGN_OR_RETURN(ImportedOnnx imported, importer.Import());
  if (std::set<const onnx::NodeProto*> last_only = importer.LastOnly(); !last_only.empty()) {
    CAIRN_ASSIGN_OR_RETURN(imported, OnnxImporter(graph, std::move(last_only)).Import());
  }
  CAIRN_RETURN_IF_ERROR(CheckComplete(imported));
  return imported;
}

absl::StatusOr<onnx::ModelProto> ParseOnnxMessage(absl::string_view bytes) {
  onnx::ModelProto model;
  if (static_cast<int64_t>(bytes.size()) > kOnnxBytesMax ||
      !model.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::DataLossError("not an ONNX file, or a damaged one");
  }
  return model;
}

absl::StatusOr<ImportedOnnx> ParseOnnx(absl::string_view bytes) {
  CAIRN_ASSIGN_OR_RETURN(const onnx::ModelProto model, ParseOnnxMessage(bytes));
  return ImportOnnx(model);
}

}  // namespace cairn
