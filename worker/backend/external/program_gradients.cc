#include "worker/backend/external/program_gradients.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace cairn {

ProgramGradients::ProgramGradients(const Graph& graph, absl::Span<float> numbers, const GradientReady& ready)
    : graph_(graph), numbers_(numbers), ready_(ready), final_(graph.variables().size(), false) {
  std::fill(numbers.begin(), numbers.end(), 0.0f);
}

absl::Span<float> ProgramGradients::Of(int variable) const {
  const Variable& v = graph_.variables()[static_cast<size_t>(variable)];
  return numbers_.subspan(static_cast<size_t>(v.offset), static_cast<size_t>(v.size));
}

absl::Status ProgramGradients::Final(int variable) {
  if (variable < 0 || variable >= static_cast<int>(graph_.variables().size())) {
    return absl::InvalidArgumentError(absl::StrCat("variable ", variable, " is said to be final, but there are 0 .. ",
                                                   graph_.variables().size() - 1));
  }
  const auto place = static_cast<size_t>(variable);
  absl::MutexLock lock(&mutex_);
  if (finished_ || final_[place]) {
    return absl::FailedPreconditionError(absl::StrCat("variable \"", graph_.variables()[place].name,
                                                      "\" is said to be final ",
                                                      finished_ ? "after the program has returned" : "twice"));
  }
  Announce(place);
  return absl::OkStatus();
}

void ProgramGradients::Finish() {
  absl::MutexLock lock(&mutex_);
  for (size_t i = final_.size(); i-- > 0;) {
    if (!final_[i]) Announce(i);
  }
  finished_ = true;
}

void ProgramGradients::Announce(size_t variable) {
  const std::vector<Variable>& variables = graph_.variables();
  const int64_t end = variable + 1 < variables.size() ? variables[variable + 1].offset : graph_.space_size();
  // A variable that keeps its value has no gradient.
  if (variables[variable].kind == VariableKind::kFrozen) {
    const absl::Span<float> own = Of(static_cast<int>(variable));
    std::fill(own.begin(), own.end(), 0.0f);
  }
  final_[variable] = true;
  if (ready_) ready_(variables[variable].offset, end);
}

}  // namespace cairn
