#include "worker/backend/onednn/step_variables.h"

#include <algorithm>

#include "common/base/limits.h"

namespace cairn::onednn {
namespace {

int64_t AlignUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

}  // namespace

StepVariables::StepVariables(const Graph& graph) : graph_(graph), last_users_(graph.variables().size(), -1) {
  for (const Node& node : graph_.nodes()) {
    if (node.shares < 0) continue;
    for (int v : node.variables) last_users_[v] = node.id;
  }
}

bool StepVariables::IsPart(const Variable& variable, int node) const {
  const int last = last_users_[static_cast<size_t>(&variable - graph_.variables().data())];
  return last >= 0 && last != node;
}

void StepVariables::Take(Plan::Step& step) {
  step.parts.insert(step.parts.end(), parts_.begin(), parts_.end());
  parts_.clear();
  for (const Variable* variable : reads_) {  // with the padding after each
    const int64_t end = AlignUp(variable->offset + variable->size, kSpaceAlignment);
    const bool first = step.reads_begin == step.reads_end;
    step.reads_begin = first ? variable->offset : std::min(step.reads_begin, variable->offset);
    step.reads_end = first ? end : std::max(step.reads_end, end);
  }
  reads_.clear();
}

void StepVariables::SetRanges(std::vector<Plan::Step>& steps) const {
  for (Plan::Step& step : steps) {
    for (int v : step.variables) {
      const Variable& variable = graph_.variables()[v];
      const int64_t end = variable.offset + variable.size, aligned = AlignUp(end, kSpaceAlignment);
      const int64_t written = variable.kind == VariableKind::kFrozen ? variable.offset : end;
      if (step.begin == step.end) step.begin = variable.offset;
      if (written < aligned) step.gaps.emplace_back(written, aligned);
      step.end = aligned;
    }
  }
}

}  // namespace cairn::onednn
