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
bool MadeOrthogonal(const v1::Muon& muon, const Variable& variable) {
  if (variable.shape.size() != 2) return false;
  if (muon.exclude_embeddings() && absl::AsciiStrToLower(variable.name).find("embedding") != std::string::npos) {
    return false;
  }
  const auto& texts = muon.exclude_layers();
  return std::none_of(texts.begin(), texts.end(),
                      [&](const std::string& text) { return variable.name.find(text) != std::string::npos; });
}

}  // namespace

bool UpdatedAsAWhole(const v1::Optimizer& optimizer, const Variable& variable) {
  if (variable.kind != VariableKind::kTrainable) return false;
  if (optimizer.has_muon()) return MadeOrthogonal(optimizer.muon(), variable);
  return optimizer.has_lamb() || optimizer.has_adafactor();
}

absl::Status CheckVariablesOf(const v1::Optimizer& optimizer, const Graph& graph) {
  if (!optimizer.has_muon()) return absl::OkStatus();
  for (const std::string& text : optimizer.muon().exclude_layers()) {
    const auto& all = graph.variables();
    if (std::any_of(all.begin(), all.end(),
                    [&](const Variable& v) { return v.name.find(text) != std::string::npos; })) {
      continue;
    }
    return Bad("optimizer.muon.exclude_layers: \"", text, "\" is part of no variable's name",
               all.empty() ? "" : absl::StrCat("; they are like \"", all.front().name, "\""));
  }
  for (const Variable& v : graph.variables()) {
    if (!UpdatedAsAWhole(optimizer, v) || std::min(v.shape[0], v.shape[1]) <= kMuonSideMax) continue;
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
