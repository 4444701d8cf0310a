#include "client/cli/sweep/record.h"

#include <fcntl.h>
#include <google/protobuf/text_format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/cli/sweep/page.h"
#include "client/limits.h"
#include "common/base/text.h"
#include "common/formats/job_text.h"

namespace cairn {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kDefinitionFile[] = "sweep.json";
constexpr char kTrialsFile[] = "trials.jsonl";
constexpr char kPageFile[] = "index.html";
constexpr int kFormat = 1;

Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

// A number where the text is one, so that readers need not convert it.
Json ParameterJson(const std::string& text) {
  const Json value = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return value.is_number() || value.is_boolean() ? value : Json(ToUtf8(text));
}

template <typename T>
bool Take(const Json& object, const char* name, T* to) {
  const auto field = object.find(name);
  if (field == object.end()) return false;
  if constexpr (std::is_same_v<T, std::string>) {
    if (!field->is_string()) return false;
  } else if constexpr (std::is_same_v<T, bool>) {
    if (!field->is_boolean()) return false;
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    if (!field->is_array() || !std::all_of(field->begin(), field->end(), [](const Json& j) { return j.is_string(); }))
      return false;
  } else {
    if (!field->is_number_integer()) return false;
  }
  *to = field->get<T>();
  return true;
}

std::string DefinitionJson(const SweepDefinition& definition) {
  std::string job;
  google::protobuf::TextFormat::PrintToString(definition.job, &job);
  const SweepFlags& flags = definition.flags;
  const Json json = {{"format", kFormat},
                     {"key", definition.key},
                     {"grid", flags.grid},
                     {"ranges", flags.ranges},
                     {"random", flags.random},
                     {"seed", flags.seed},
                     {"by", flags.by},
                     {"mode", flags.mode},
                     {"halving", flags.halving.on},
                     {"halving_factor", flags.halving.factor},
                     {"min_epochs", flags.halving.min_epochs},
                     {"job", job}};
  return json.dump(2) + "\n";
}

bool TakeScores(const Json& object, std::map<int, double>* scores) {
  const auto curve = object.find("curve");
  if (curve == object.end() || !curve->is_array()) return false;
  for (const Json& point : *curve) {
    if (!point.is_array() || point.size() != 2 || !point[0].is_number_integer()) return false;
    if (!point[1].is_number() && !point[1].is_null()) return false;
    (*scores)[point[0].get<int>()] =
        point[1].is_null() ? std::numeric_limits<double>::quiet_NaN() : point[1].get<double>();
  }
  return true;
}

bool TakeJobs(const Json& object, std::vector<uint64_t>* jobs) {
  const auto list = object.find("jobs");
  if (list == object.end() || !list->is_array()) return false;
  for (const Json& job : *list) {
    if (!job.is_number_unsigned()) return false;
    jobs->push_back(job.get<uint64_t>());
  }
  return true;
}

void TakeFigures(const Json& object, Figures* figures) {
  const auto all = object.find("figures");
  if (all == object.end() || !all->is_object()) return;
  for (const auto& [name, value] : all->items()) {
    figures->emplace_back(name, value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN());
  }
}

// What is stored of a trial; false: the line is not one of ours.
bool TakeTrial(const Json& line, Trial* trial) {
  std::string state;
  const bool whole =
      Take(line, "state", &state) && Take(line, "runs", &trial->runs) && Take(line, "rung", &trial->rung) &&
      Take(line, "epochs", &trial->epochs) && Take(line, "checkpoint", &trial->checkpoint) &&
      Take(line, "checkpoint_step", &trial->checkpoint_step) && Take(line, "resumed_step", &trial->resumed_step) &&
      Take(line, "steps_per_epoch", &trial->steps_per_epoch) && Take(line, "reason", &trial->reason) &&
      TakeJobs(line, &trial->jobs) && TakeScores(line, &trial->scores);
  const auto known = TrialStateOf(state);
  if (!whole || !known.ok() || trial->rung < 0 || trial->runs < 0) return false;
  trial->state = *known;
  TakeFigures(line, &trial->figures);
  const bool needs_job = trial->is_active() && trial->state != TrialState::kSubmitting;
  return !needs_job || !trial->jobs.empty();
}

}  // namespace

std::string TrialJson(const Trial& trial, const std::string& by) {
  Json parameters = Json::object(), figures = Json::object(), curve = Json::array();
  for (const auto& [path, value] : trial.parameters) parameters[path] = ParameterJson(value);
  for (const auto& [name, value] : trial.figures) figures[name] = Number(value);
  for (const auto& [epoch, score] : trial.scores) curve.push_back(Json::array({epoch, Number(score)}));
  const auto score = trial.LastScore();
  Json json = {{"trial", trial.number}, {"parameters", parameters}, {"state", TrialStateText(trial.state)}};
  json["by"] = by;
  json["score"] = score ? Number(*score) : Json(nullptr);
  json["job"] = trial.job();
  json["jobs"] = trial.jobs;
  json["epochs"] = trial.epochs;
  json["rung"] = trial.rung;
  json["figures"] = figures;
  json["curve"] = curve;
  json["reason"] = ToUtf8(trial.reason);
  json["runs"] = trial.runs;
  json["checkpoint"] = ToUtf8(trial.checkpoint);
  json["checkpoint_step"] = trial.checkpoint_step;
  json["resumed_step"] = trial.resumed_step;
  json["steps_per_epoch"] = trial.steps_per_epoch;
  return json.dump();
}

std::string DifferenceOf(const SweepDefinition& stored, const SweepDefinition& given) {
  const SweepFlags& a = stored.flags;
  const SweepFlags& b = given.flags;
  if (a.grid != b.grid) return "--grid";
  if (a.ranges != b.ranges) return "--range";
  if (a.random != b.random) return "--random";
  if (a.seed != b.seed) return "--seed";
  if (a.by != b.by) return "--by";
  if (a.mode != b.mode) return "--mode";
  if (a.halving.on != b.halving.on) return "--halving";
  if (a.halving.factor != b.halving.factor) return "--halving-factor";
  if (a.halving.min_epochs != b.halving.min_epochs) return "--min-epochs";
  std::string was, is;
  google::protobuf::TextFormat::PrintToString(stored.job, &was);
  google::protobuf::TextFormat::PrintToString(given.job, &is);
  return was == is ? "" : "the job, its --set or its --model";
}

absl::StatusOr<SweepFolder> SweepFolder::Open(const std::string& path) {
  std::error_code error;
  const std::string absolute = std::filesystem::absolute(path, error).lexically_normal().string();
  CAIRN_RETURN_IF_ERROR(MakeFolders(absolute));
  const std::string lock_path = absl::StrCat(absolute, "/lock");
  FileDescriptor lock(open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (lock.get() < 0) return FileError(lock_path, "cannot be opened");
  if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return FileError(lock_path, "cannot be locked");
    return absl::FailedPreconditionError(absl::StrFormat(
        "%s: another `cairn sweep` runs with this folder; wait until it has ended, or give another -o", path));
  }
  return SweepFolder(absolute, std::move(lock));
}

absl::StatusOr<std::string> SweepFolder::Read(const std::string& name) const {
  const std::string path = absl::StrCat(path_, "/", name);
  const PathInfo info = InfoOf(path);
  if (info.kind == PathInfo::kNone) return "";
  if (info.bytes > kSweepFileBytesMax)
    return absl::InvalidArgumentError(absl::StrFormat("%s: is longer than %d MiB", path, kSweepFileBytesMax >> 20));
  std::ifstream in(path, std::ios::binary);
  std::string text(info.bytes, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!in.good() && !text.empty()) return FileError(path, "cannot be read");
  return text;
}

absl::Status SweepFolder::WriteFile(const std::string& name, const std::string& text) const {
  const std::string path = absl::StrCat(path_, "/", name);
  return WriteFileWhole(path, [&](const std::string& beside) -> absl::Status {
    std::ofstream out(beside, std::ios::binary);
    out << text;
    out.close();
    return out.good() ? absl::OkStatus() : FileError(beside, "cannot be written");
  });
}

absl::StatusOr<std::optional<SweepDefinition>> SweepFolder::ReadDefinition() const {
  CAIRN_ASSIGN_OR_RETURN(const std::string text, Read(kDefinitionFile));
  if (text.empty()) return std::optional<SweepDefinition>();
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  SweepDefinition definition;
  definition.folder = path_;
  SweepFlags& flags = definition.flags;
  int format = 0;
  std::string job;
  const bool whole = json.is_object() && Take(json, "format", &format) && Take(json, "key", &definition.key) &&
                     Take(json, "grid", &flags.grid) && Take(json, "ranges", &flags.ranges) &&
                     Take(json, "random", &flags.random) && Take(json, "seed", &flags.seed) &&
                     Take(json, "by", &flags.by) && Take(json, "mode", &flags.mode) &&
                     Take(json, "halving", &flags.halving.on) && Take(json, "halving_factor", &flags.halving.factor) &&
                     Take(json, "min_epochs", &flags.halving.min_epochs) && Take(json, "job", &job);
  const std::string path = absl::StrCat(path_, "/", kDefinitionFile);
  if (!whole || format != kFormat) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is not a sweep of this version of cairn, or is damaged; give another folder with -o"));
  }
  CAIRN_ASSIGN_OR_RETURN(definition.job, ParseJobText(job, path));
  return std::optional<SweepDefinition>(std::move(definition));
}

absl::Status SweepFolder::Write(const SweepDefinition& definition) const {
  return WriteFile(kDefinitionFile, DefinitionJson(definition));
}

absl::Status SweepFolder::ReadTrials(std::vector<Trial>* trials) const {
  CAIRN_ASSIGN_OR_RETURN(const std::string text, Read(kTrialsFile));
  std::set<int> seen;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (line.empty()) continue;
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    int trial = 0;
    const bool known = json.is_object() && Take(json, "trial", &trial) && trial >= 1 &&
                       trial <= static_cast<int>(trials->size()) && seen.insert(trial).second;
    if (!known || !TakeTrial(json, &(*trials)[trial - 1])) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s/%s: line %d is not a trial of this sweep; a trial whose line is removed begins anew",
                          path_, kTrialsFile, number));
    }
  }
  return absl::OkStatus();
}

absl::Status SweepFolder::Write(const SweepDefinition& definition, const Sweep& sweep) const {
  std::string lines;
  for (const Trial& trial : sweep.trials()) absl::StrAppend(&lines, TrialJson(trial, sweep.options().by), "\n");
  CAIRN_RETURN_IF_ERROR(WriteFile(kTrialsFile, lines));
  return WriteFile(kPageFile, SweepPage(definition.job.name(), sweep));
}

}  // namespace cairn
