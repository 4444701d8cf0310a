#include "common/model/optimizer_variables.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/base/bad.h"
#include "common/model/limits.h"
#include "common/model/optimizer_slots.h"

namespace cairn {
namespace {

// Keras: a variable of two axes that neither belongs to an embedding nor to an excluded layer.
bool MadeOrthogonal(const v1::Muon& muon, const std::vector<NamePattern>& excluded, const Variable& variable) {
  if (variable.shape.size() != 2) return false;
  if (muon.exclude_embeddings() && absl::AsciiStrToLower(variable.name).find("embedding") != std::string::npos) {
    return false;
  }
  return std::none_of(excluded.begin(), excluded.end(),
                      [&](const NamePattern& pattern) { return pattern.IsIn(variable.name); });
}

absl::Status CheckExcludedLayers(const v1::Muon& muon, const Graph& graph) {
  constexpr char kField[] = "optimizer.muon.exclude_layers: ";
  CAIRN_ASSIGN_OR_RETURN(const std::vector<NamePattern> excluded, ExcludedLayersOf(muon));
  const auto& all = graph.variables();
  int64_t size = 0, bytes = 0;
  for (const NamePattern& pattern : excluded) size += pattern.size();
  for (const Variable& v : all) bytes += static_cast<int64_t>(v.name.size());
  if (bytes > 0 && size > kNamePatternWorkMax / bytes) {
    return Bad(kField, "to search for them in the names of ", all.size(),
               " variables takes too long; give fewer or "
               "shorter ones");
  }
  for (size_t i = 0; i < excluded.size(); ++i) {
    if (std::any_of(all.begin(), all.end(), [&](const Variable& v) { return excluded[i].IsIn(v.name); })) continue;
    return Bad(kField, "\"", muon.exclude_layers(static_cast<int>(i)), "\" is in no variable's name",
               all.empty() ? "" : absl::StrCat("; they are like \"", all.front().name, "\""));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<NamePattern>> ExcludedLayersOf(const v1::Muon& muon) {
  constexpr char kField[] = "optimizer.muon.exclude_layers: ";
  if (muon.exclude_layers_size() > kNamePatternsMax) {
    return Bad(kField, muon.exclude_layers_size(), " expressions; at most ", kNamePatternsMax,
               " are read: join them with |");
  }
  std::vector<NamePattern> patterns;
  int64_t size = 0;
  for (const std::string& text : muon.exclude_layers()) {
    absl::StatusOr<NamePattern> pattern = NamePattern::Make(text);
    if (!pattern.ok()) return Bad(kField, pattern.status().message());
    size += pattern->size();
    patterns.push_back(*std::move(pattern));
  }
  if (size <= kNamePatternSizeMax) return patterns;
  return Bad(kField, "their repetitions make them too large; give shorter ones");
}

WholeUpdates::WholeUpdates(const v1::Optimizer& optimizer) : optimizer_(optimizer) {
  for (const std::string& text : optimizer.muon().exclude_layers()) {
    absl::StatusOr<NamePattern> pattern = NamePattern::Make(text);
    // A running job that an older version accepted, which took it for a part of the name.
    excluded_.push_back(pattern.ok() ? *std::move(pattern) : NamePattern::OfText(text));
  }
}

bool WholeUpdates::Of(const Variable& variable) const {
  if (variable.kind != VariableKind::kTrainable) return false;
  if (optimizer_.has_muon()) return MadeOrthogonal(optimizer_.muon(), excluded_, variable);
  return optimizer_.has_lamb() || optimizer_.has_adafactor();
}

bool UpdatedAsAWhole(const v1::Optimizer& optimizer, const Variable& variable) {
  return WholeUpdates(optimizer).Of(variable);
}

absl::Status CheckVariablesOf(const v1::Optimizer& optimizer, const Graph& graph) {
  if (!optimizer.has_muon()) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(CheckExcludedLayers(optimizer.muon(), graph));
  const WholeUpdates whole(optimizer);
  for (const Variable& v : graph.variables()) {
    if (!whole.Of(v) || std::min(v.shape[0], v.shape[1]) <= kMuonSideMax) continue;
    return Bad("optimizer.muon: ", v.name, " ", ToString(v.shape), " is a matrix whose shorter side is above ",
               kMuonSideMax, ", whose products would take one ps minutes in every step; name it in exclude_layers");
  }
  return absl::OkStatus();
}

std::vector<SlotTensor> SlotTensorsOf(const v1::Optimizer& optimizer, const Variable& variable) {
  std::vector<SlotTensor> tensors;
  const std::vector<std::string> names = SlotNames(optimizer);
  for (size_t i = 0; i < names.size(); ++i) {
    const int slot = static_cast<int>(i);
    if (!optimizer.has_adafactor() || i > 0 || variable.shape.size() < 2) {
      tensors.push_back({names[i], slot, 0, variable.shape});
      continue;
    }
    const Matrices m = MatricesOf(variable.shape);
    Shape rows(variable.shape.begin(), variable.shape.end() - 1), columns(rows.begin(), rows.end() - 1);
    columns.push_back(variable.shape.back());
    if (m.keeps_rows()) tensors.push_back({"r", slot, 0, rows});
    if (m.keeps_columns()) tensors.push_back({"c", slot, m.keeps_rows() ? m.count * m.rows : 0, columns});
  }
  return tensors;
}

Matrices MatricesOf(const Shape& shape) {
  Matrices m;
  m.columns = shape.back();
  m.rows = shape[shape.size() - 2];
  for (size_t d = 0; d + 2 < shape.size(); ++d) m.count *= shape[d];
  return m;
}

}  // namespace cairn
