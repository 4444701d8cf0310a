#include "common/formats/keras_weights.h"

#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/formats/hdf5_file.h"
#include "common/formats/keras_class.h"
#include "common/formats/keras_inbound.h"
#include "common/formats/keras_order.h"
#include "common/formats/keras_scopes.h"
#include "common/model/call_mode.h"
#include "common/model/inner_node.h"
#include "common/model/layer_type.h"

namespace cairn {
namespace {

// One group of variables.
struct Vars {
  std::string group;  // "layers/conv2d": without "/vars"
  std::string name;   // the layer's, or that of the layer inside it
  std::string layer;
  std::vector<int> variables;
};

// The attribute that holds the layer `owner` inside the node's layer. In the table a trailing '*' is a wildcard.
std::string AttributeOf(const Node& node, const std::string& owner) {
  for (const KerasSublayer& sublayer : TypeOf(node.kind).sublayers) {
    absl::string_view name = sublayer.name;
    if (absl::ConsumeSuffix(&name, "*") ? absl::StartsWith(owner, name) : owner == name) return sublayer.attribute;
  }
  return owner;
}

bool HasLayerWithin(const Node& node) {
  return node.kind == LayerKind::kTimeDistributed || node.kind == LayerKind::kSpectralNormalization;
}

// path: KerasModel::weight_paths.
std::vector<Vars> VarsOf(const Graph& graph, const Node& node, absl::string_view path) {
  const size_t of_layer_within = absl::ConsumeSuffix(&path, "/") ? 1 : 0;
  std::vector<Vars> groups = {{std::string(path), node.name, node.name, {}}};
  for (const int v : node.variables) {
    const std::string local = graph.variables()[static_cast<size_t>(v)].name.substr(node.name.size() + 1);
    std::vector<std::string> owners = absl::StrSplit(local, '/');
    owners.pop_back();
    if (owners.size() <= of_layer_within) {
      groups[0].variables.push_back(v);
      continue;
    }
    std::string group(path);
    Node holder = node;
    for (size_t i = 0; i < owners.size(); ++i) {
      if (i >= of_layer_within) absl::StrAppend(&group, "/", AttributeOf(holder, owners[i]));
      if (HasLayerWithin(holder)) holder = InnerNode(holder);
    }
    if (groups.back().group != group) groups.push_back({group, owners.back(), node.name, {}});
    groups.back().variables.push_back(v);
  }
  return groups;
}

// The name of `group` in this file: Keras up to 3.3 uses names of private attributes, 2.13 names layers differently.
absl::StatusOr<std::string> FindGroup(const Hdf5Reader& reader, const std::string& group) {
  const size_t last = group.rfind('/');
  for (const std::string& candidate : {group, absl::StrCat(group.substr(0, last + 1), "_", group.substr(last + 1)),
                                       absl::StrReplaceAll(group, {{"layers/", "_layer_checkpoint_dependencies/"}})}) {
    const std::string vars = absl::StrCat(candidate, "/vars");
    CAIRN_ASSIGN_OR_RETURN(const int64_t count, reader.CountIn(vars));
    if (count >= 0) return vars;
  }
  return absl::NotFoundError(group);
}

// Reads the variables of one group in order. Returns how many numbers they have.
absl::StatusOr<size_t> ReadVars(const Hdf5Reader& reader, const std::string& where, const Graph& graph,
                                const Vars& vars, absl::Span<float> out) {
  const std::string& first = graph.variables()[static_cast<size_t>(vars.variables[0])].name;
  const absl::StatusOr<std::string> group = FindGroup(reader, vars.group);
  if (absl::IsNotFound(group.status())) {
    return absl::FailedPreconditionError(absl::StrCat("variable \"", first, "\" is not in ", where, ": there is no \"",
                                                      vars.group, "/vars\"; was it saved from the same model?"));
  }
  if (!group.ok()) return group.status();
  CAIRN_ASSIGN_OR_RETURN(const int64_t count, reader.CountIn(*group));
  if (count != static_cast<int64_t>(vars.variables.size())) {
    return absl::FailedPreconditionError(absl::StrCat("layer \"", vars.layer, "\": it has ", vars.variables.size(),
                                                      " variables, \"", *group, "\" in ", where, " has ", count,
                                                      "; was it saved from the same model?"));
  }
  size_t taken = 0;
  for (size_t i = 0; i < vars.variables.size(); ++i) {
    const Variable& v = graph.variables()[static_cast<size_t>(vars.variables[i])];
    const size_t size = static_cast<size_t>(v.size);
    CAIRN_RETURN_IF_ERROR(ReadKerasVariable(reader, absl::StrCat(*group, "/", i), v, out.subspan(taken, size)));
    taken += size;
  }
  return taken;
}

}  // namespace

absl::Status ReadKerasVariable(const Hdf5Reader& reader, const std::string& path, const Variable& variable,
                               absl::Span<float> out) {
  const Shape& shape = variable.shape;
  absl::Status status = reader.Read(path, shape, out);
  const bool scales = shape.size() == 4 && shape[0] == 1 && shape[1] == 1 && shape[3] == 1;
  if (absl::IsFailedPrecondition(status) && scales && reader.Read(path, {shape[2]}, out).ok()) return absl::OkStatus();
  return status.ok() ? status : Annotate(status, absl::StrCat("variable \"", variable.name, "\""));
}

std::vector<int> KerasOrder(const Graph& graph) {
  std::vector<std::vector<int>> calls;
  std::vector<int> owners;
  for (const Node& node : graph.nodes()) {
    std::vector<int>& inputs = calls.emplace_back();
    owners.push_back(node.shares < 0 ? node.id : node.shares);
    const bool attends = TakesQuery(node.kind);
    const int keywords = attends ? ReadAttentionInputs(node.layer)->keywords : 0;
    for (const int place : KerasInputOrder(static_cast<int>(node.inputs.size()), keywords)) {
      inputs.push_back(node.inputs[static_cast<size_t>(place)]);
    }
  }
  return KerasLayerOrder(calls, owners, graph.outputs());
}

std::vector<std::string> KerasLayerPaths(const Graph& graph, bool layer_scales) {
  std::vector<std::string> paths(graph.nodes().size());
  for (const KerasScopes::Group& group : KerasScopes(graph).Groups(layer_scales)) {
    if (group.node >= 0) paths[static_cast<size_t>(group.node)] = group.path;
  }
  return paths;
}

absl::Status WriteKerasWeights(const std::string& path, const Graph& graph, absl::Span<const float> space) {
  CAIRN_ASSIGN_OR_RETURN(const std::unique_ptr<Hdf5Writer> writer, Hdf5Writer::Create(path));
  CAIRN_RETURN_IF_ERROR(writer->AddGroup("vars", "model"));
  for (const KerasScopes::Group& made : KerasScopes(graph).Groups()) {
    std::vector<Vars> all = {{made.path, made.name, made.name, {}}};
    if (made.node >= 0) all = VarsOf(graph, graph.nodes()[static_cast<size_t>(made.node)], made.path);
    all[0].name = made.name;
    for (const Vars& vars : all) {
      const std::string group = absl::StrCat(vars.group, "/vars");
      CAIRN_RETURN_IF_ERROR(writer->AddGroup(group, vars.name));
      for (size_t i = 0; i < vars.variables.size(); ++i) {
        const Variable& v = graph.variables()[static_cast<size_t>(vars.variables[i])];
        CAIRN_RETURN_IF_ERROR(
            writer->AddArray(group, absl::StrCat(i), v.shape,
                             space.subspan(static_cast<size_t>(v.offset), static_cast<size_t>(v.size))));
      }
    }
  }
  return writer->Close();
}

absl::StatusOr<SafetensorsFile> ReadKerasWeights(const Buffer& bytes, const std::string& where, const Graph& graph,
                                                 const std::vector<std::string>& layer_paths) {
  std::vector<Vars> groups;
  int64_t numbers = 0;
  for (const Node& node : graph.nodes()) {
    if (node.shares >= 0) continue;
    for (Vars& vars : VarsOf(graph, node, layer_paths[static_cast<size_t>(node.id)])) {
      for (const int v : vars.variables) numbers += graph.variables()[static_cast<size_t>(v)].size;
      if (!vars.variables.empty()) groups.push_back(std::move(vars));
    }
  }
  const auto read = [&](const Hdf5Reader& reader, absl::Span<float> out) -> absl::Status {
    for (const Vars& vars : groups) {
      CAIRN_ASSIGN_OR_RETURN(const size_t taken, ReadVars(reader, where, graph, vars, out));
      out.remove_prefix(taken);
    }
    return absl::OkStatus();
  };
  CAIRN_ASSIGN_OR_RETURN(const Buffer values, ReadHdf5(bytes, where, numbers, read));
  SafetensorsFile file;
  size_t at = 0;
  for (const Vars& vars : groups) {
    for (const int id : vars.variables) {
      const Variable& v = graph.variables()[static_cast<size_t>(id)];
      const size_t size = static_cast<size_t>(v.size) * sizeof(float);
      file.tensors.push_back({v.name, v1::FLOAT32, v.shape, values.Slice(at, size)});
      at += size;
    }
  }
  return file;
}

}  // namespace cairn
