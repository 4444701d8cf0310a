#include "client/cli/top_screen.h"

#include <algorithm>
#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/cli/colours.h"
#include "client/cli/nodes_table.h"
#include "common/model/state_text.h"
#include "common/report/figures.h"

namespace cairn {
namespace {

bool IsUnfinished(const v1::JobStatus* job) { return !IsFinal(job->state()); }

bool IsWell(const v1::NodeStatus& node) {
  return node.alive() && node.fault().empty() && node.not_ready().empty() && !node.draining();
}

// Why live nodes are not well.
std::vector<std::string> WhysOf(const std::vector<v1::NodeStatus>& nodes) {
  std::vector<std::string> whys;
  for (const v1::NodeStatus& node : nodes) {
    const std::string& why = node.fault().empty() ? node.not_ready() : node.fault();
    if (node.alive() && !why.empty()) whys.push_back(absl::StrCat(node.name(), ": ", why));
  }
  return whys;
}

std::vector<const v1::JobStatus*> Ordered(const std::vector<v1::JobStatus>& jobs) {
  std::vector<const v1::JobStatus*> ordered;
  for (const v1::JobStatus& job : jobs) ordered.push_back(&job);
  const auto ended = std::stable_partition(ordered.begin(), ordered.end(), IsUnfinished);
  std::reverse(ordered.begin(), ended);
  return ordered;
}

std::string NodeCounts(const std::vector<v1::NodeStatus>& nodes) {
  std::map<v1::Role, int64_t> alive;
  int64_t away = 0, slots = 0, used = 0;
  for (const v1::NodeStatus& node : nodes) {
    if (!node.alive()) {
      ++away;
      continue;
    }
    ++alive[node.role()];
    slots += node.slots();
    used += node.slots_used();
  }
  std::string text = absl::StrFormat("%d ps, %s", alive[v1::PS], CountText(alive[v1::WORKER], "worker"));
  if (alive[v1::EVALUATOR] > 0) absl::StrAppend(&text, ", ", CountText(alive[v1::EVALUATOR], "evaluator"));
  if (away > 0) absl::StrAppend(&text, ", ", away, " away");
  return absl::StrFormat("%s, %d of %s used", text, used, CountText(slots, "slot"));
}

std::string JobCounts(const std::vector<v1::JobStatus>& jobs) {
  std::map<std::string, int64_t> counts;
  int64_t ended = 0;
  for (const v1::JobStatus& job : jobs) {
    if (IsFinal(job.state()))
      ++ended;
    else
      ++counts[StateText(job.state())];
  }
  std::vector<std::string> parts;
  for (const auto& [state, count] : counts) parts.push_back(absl::StrCat(count, " ", state));
  if (ended > 0 || parts.empty()) parts.push_back(absl::StrCat(ended, " ended"));
  return absl::StrCat("jobs: ", absl::StrJoin(parts, ", "));
}

std::string DoneText(const v1::JobStatus& job) {
  if (job.total_steps() == 0) return "";
  return absl::StrFormat("%d/%d (%d%%)", job.step(), job.total_steps(), 100 * job.step() / job.total_steps());
}

std::string LeftText(const v1::JobStatus& job) {
  const int64_t steps = job.total_steps() - job.step();
  if (job.state() != v1::RUNNING || steps <= 0) return "";
  if (job.images_per_second() <= 0) return "";
  return ShortDuration(absl::Seconds(static_cast<double>(steps) * job.spec().batch_size() / job.images_per_second()));
}

std::string SpeedText(const v1::JobStatus& job) {
  if (job.state() != v1::RUNNING || job.images_per_second() <= 0) return "";
  return Thousands(static_cast<uint64_t>(job.images_per_second()));
}

std::string LossText(const v1::JobStatus& job) {
  const bool open = job.epoch_sums().examples() > 0;
  if (!open && job.epochs().empty()) return "";
  const v1::MetricSums& sums = open ? job.epoch_sums() : job.epochs().rbegin()->train();
  return sums.examples() == 0 ? "" : FigureText(sums.loss() / static_cast<double>(sums.examples()));
}

// On one line, without control characters: a reason may be a traceback.
std::string Plain(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return text;
}

std::string NoteText(const v1::JobStatus& job) {
  std::string note = job.reason();
  if (job.has_not_finite_step())
    absl::StrAppend(&note, note.empty() ? "" : "; ", "loss not finite since step ", job.not_finite_step());
  if (job.has_degraded()) absl::StrAppend(&note, note.empty() ? "" : "; ", "degraded: ", job.degraded().text());
  return note;
}

std::vector<std::string> JobRow(const v1::JobStatus& job) {
  return {absl::StrCat(job.job_id()),
          Plain(job.spec().name()),
          StateText(job.state()),
          DoneText(job),
          SpeedText(job),
          LeftText(job),
          LossText(job),
          Plain(NoteText(job))};
}

std::vector<std::string> TableLines(const std::string& table) {
  std::vector<std::string> lines = absl::StrSplit(table, '\n');
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  for (std::string& line : lines) absl::StripTrailingAsciiWhitespace(&line);
  return lines;
}

// All of them, or so many that a last line for "and N more" fits too. `room`: lines with the header.
size_t Shown(size_t all, int room) {
  const size_t fit = static_cast<size_t>(std::max(0, room - 1));
  return all <= fit ? all : fit - std::min<size_t>(fit, 1);
}

// Lines of a screen, each in the colour of its job's state.
class Screen {
 public:
  explicit Screen(const TopOptions& options) : options_(options) {}
  void Add(const std::string& line, v1::JobState state = v1::JOB_STATE_UNSPECIFIED) {
    if (options_.height > 0 && lines_.size() >= static_cast<size_t>(options_.height)) return;
    const std::string plain = Plain(line);
    const std::string cut = options_.width > 0 ? FirstCharacters(plain, static_cast<size_t>(options_.width)) : plain;
    lines_.push_back(InColourOf(state, cut, options_.colours));
  }
  void AddRest(int64_t count, const char* what) {
    if (count > 0) Add(absl::StrCat("and ", CountText(count, what)));
  }
  std::vector<std::string> Take() { return std::move(lines_); }
  int size() const { return static_cast<int>(lines_.size()); }

 private:
  // Of UTF-8.
  static std::string FirstCharacters(const std::string& text, size_t count) {
    size_t end = 0;
    for (; end < text.size(); ++end) {
      const bool begins = (static_cast<unsigned char>(text[end]) & 0xC0) != 0x80;
      if (begins && count-- == 0) break;
    }
    return text.substr(0, end);
  }

  const TopOptions options_;
  std::vector<std::string> lines_;
};

void AddJobs(const std::vector<v1::JobStatus>& jobs, int room, Screen& screen) {
  const std::vector<const v1::JobStatus*> ordered = Ordered(jobs);
  std::vector<std::vector<std::string>> rows = {{"JOB", "NAME", "STATE", "STEP", "IMAGES/S", "LEFT", "LOSS", "NOTE"}};
  if (room <= 1 && !ordered.empty()) return screen.AddRest(static_cast<int64_t>(ordered.size()), "more job");
  const size_t shown = Shown(ordered.size(), room);
  for (size_t i = 0; i < shown; ++i) rows.push_back(JobRow(*ordered[i]));
  const std::vector<std::string> lines = TableLines(Table(rows));
  for (size_t i = 0; i < lines.size(); ++i) {
    screen.Add(lines[i], i == 0 ? v1::JOB_STATE_UNSPECIFIED : ordered[i - 1]->state());
  }
  screen.AddRest(static_cast<int64_t>(ordered.size() - shown), "more job");
}

void AddNodes(std::vector<v1::NodeStatus> nodes, int room, absl::Time now, Screen& screen) {
  std::stable_partition(nodes.begin(), nodes.end(), [](const v1::NodeStatus& node) { return !IsWell(node); });
  const std::vector<std::string> whys = WhysOf(nodes);
  const size_t all = nodes.size();
  if (room <= 1 && all > 0) return screen.AddRest(static_cast<int64_t>(all), "more node");
  const size_t shown = Shown(all, std::max(2, room - static_cast<int>(whys.size())));
  nodes.resize(shown);
  for (const std::string& line : TableLines(NodesLines(nodes, now))) screen.Add(line);
  screen.AddRest(static_cast<int64_t>(all - shown), "more node");
  for (const std::string& why : whys) screen.Add(why);
}

}  // namespace

std::vector<std::string> TopScreen(const TopInput& input, const TopOptions& options) {
  Screen screen(options);
  screen.Add(absl::StrFormat("cairn top - %s - %s - %s - %s", input.address,
                             absl::FormatTime("%H:%M:%S", input.now, input.zone), NodeCounts(input.nodes),
                             JobCounts(input.jobs)));
  if (!input.trouble.empty()) screen.Add(absl::StrCat("what follows is old: ", input.trouble));
  screen.Add("");
  // Each table gets what the other one leaves; where both want more, half each.
  const int want_jobs = static_cast<int>(input.jobs.size()) + 1;
  const int want_nodes = static_cast<int>(input.nodes.size() + WhysOf(input.nodes).size()) + 1;
  int job_room = want_jobs, node_room = want_nodes;
  if (options.height > 0) {
    const int room = std::max(0, options.height - screen.size() - 1);
    job_room = std::clamp(room - want_nodes, std::min(room / 2, want_jobs), want_jobs);
    node_room = std::min(room - job_room, want_nodes);
  }
  AddJobs(input.jobs, job_room, screen);
  screen.Add("");
  AddNodes(input.nodes, node_room, input.now, screen);
  return screen.Take();
}

}  // namespace cairn
