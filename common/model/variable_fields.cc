#include "common/model/variable_fields.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace cairn {
namespace {

using google::protobuf::FieldDescriptor;

class Finder {
 public:
  Finder(absl::string_view suffix, absl::Span<const Variable> variables) : suffix_(suffix), variables_(variables) {}

  // within: a text that the names of the layer's variables contain.
  void Visit(v1::Layer* layer, const std::string& path, const std::string& within) {
    const auto* const reflection = layer->GetReflection();
    const FieldDescriptor* const kind =
        reflection->GetOneofFieldDescriptor(*layer, v1::Layer::descriptor()->FindOneofByName("kind"));
    if (kind == nullptr) return;
    google::protobuf::Message* const fields = reflection->MutableMessage(layer, kind);
    for (int i = 0; i < fields->GetDescriptor()->field_count(); ++i) {
      const FieldDescriptor* const field = fields->GetDescriptor()->field(i);
      if (field->is_repeated() || field->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
      if (!fields->GetReflection()->HasField(*fields, field)) continue;
      google::protobuf::Message* const message = fields->GetReflection()->MutableMessage(fields, field);
      const std::string name = absl::StrCat(path, field->name());
      if (auto* const inner = dynamic_cast<v1::Layer*>(message)) {
        Visit(inner, absl::StrCat(name, "."), absl::StrCat("/", inner->name(), "/"));
      } else if (absl::EndsWith(field->name(), suffix_)) {
        found_.push_back({name, message, VariableOf(absl::StripSuffix(field->name(), suffix_), within)});
      }
    }
  }
  std::vector<VariableField> Take() { return std::move(found_); }

 private:
  int Find(const std::string& name, const std::string& within) const {
    for (size_t i = 0; i < variables_.size(); ++i) {
      const std::string& whole = variables_[i].name;
      if (absl::EndsWith(whole, absl::StrCat("/", name)) && absl::StrContains(whole, within)) {
        return static_cast<int>(i);
      }
    }
    return -1;
  }
  // Finds "kernel", or "depthwise_kernel" for "depthwise"; a DepthwiseConv2D has only a "kernel".
  int VariableOf(absl::string_view subject, const std::string& within) const {
    int variable = Find(std::string(subject), within);
    if (variable < 0) variable = Find(absl::StrCat(subject, "_kernel"), within);
    return variable < 0 && subject == "depthwise" ? Find("kernel", within) : variable;
  }

  const absl::string_view suffix_;
  const absl::Span<const Variable> variables_;
  std::vector<VariableField> found_;
};

}  // namespace

std::vector<VariableField> VariableFieldsOf(v1::Layer* layer, absl::string_view suffix,
                                            absl::Span<const Variable> variables) {
  Finder finder(suffix, variables);
  finder.Visit(layer, "", "");
  return finder.Take();
}

std::vector<int> NodesWithin(const Graph& graph, int64_t begin, int64_t end) {
  const auto& variables = graph.variables();  // in order of offset
  auto v = std::partition_point(variables.begin(), variables.end(),
                                [&](const Variable& one) { return one.offset + one.size <= begin; });
  std::vector<int> nodes;
  for (; v != variables.end() && v->offset < end; ++v) {
    if (nodes.empty() || nodes.back() != v->node) nodes.push_back(v->node);
  }
  return nodes;
}

}  // namespace cairn
