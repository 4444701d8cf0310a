#include "client/cli/sweep/report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "common/base/text.h"
#include "common/report/figures.h"

namespace cairn {
namespace {

constexpr size_t kCellBytes = 40;

std::string Cell(const std::string& text) {
  return text.size() <= kCellBytes ? text : std::string(CutUtf8(text, kCellBytes - 3)) + "...";
}

}  // namespace

std::string SweepTable(const Sweep& sweep, int rows) {
  const std::vector<const Trial*> ranking = sweep.Ranking();
  std::vector<std::vector<std::string>> cells = {{"#", "TRIAL", "JOB", "STATE", "EPOCHS"}};
  for (const std::string& name : ShortNames(ranking[0]->parameters)) cells[0].push_back(Cell(name));
  cells[0].push_back(sweep.options().by);
  for (const Trial* trial : ranking) {
    if (rows > 0 && static_cast<int>(cells.size()) > rows) break;
    std::vector<std::string> row = {absl::StrCat(cells.size()), absl::StrCat(trial->number),
                                    trial->job() == 0 ? "-" : absl::StrCat(trial->job()), TrialStateText(trial->state),
                                    absl::StrCat(trial->epochs)};
    for (const auto& [path, value] : trial->parameters) row.push_back(Cell(value));
    const auto score = trial->LastScore();
    row.push_back(score ? FigureText(*score) : "-");
    cells.push_back(std::move(row));
  }
  const size_t left_out = ranking.size() + 1 - cells.size();
  return absl::StrCat(Table(cells), left_out > 0 ? absl::StrFormat("... and %d more\n", left_out) : "");
}

std::string SweepSummary(const Sweep& sweep) {
  const auto& trials = sweep.trials();
  const auto count = [&](auto which) { return std::count_if(trials.begin(), trials.end(), which); };
  const auto ended = count([](const Trial& t) { return t.is_final(); });
  const auto active = count([](const Trial& t) { return t.is_active(); });
  const auto failed = count([](const Trial& t) { return t.state == TrialState::kFailed; });
  std::string text = absl::StrFormat("%d of %d trials have ended", ended, trials.size());
  if (active > 0) absl::StrAppend(&text, ", ", active, " in the cluster");
  if (failed > 0) absl::StrAppend(&text, ", ", failed, " failed");
  const Trial* best = sweep.Ranking()[0];
  if (best->is_out() || !best->LastScore()) return text;
  return absl::StrFormat("%s; best: trial %d, %s: %s (%s)", text, best->number, sweep.options().by,
                         FigureText(*best->LastScore()), AssignmentText(best->parameters));
}

std::string CutLines(const std::string& text, int width) {
  std::string cut;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty()))
    cut += std::string(CutUtf8(std::string(line), static_cast<size_t>(std::max(1, width)))) + "\n";
  return cut;
}

}  // namespace cairn
