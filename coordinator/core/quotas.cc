#include "coordinator/core/quotas.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "coordinator/core/limits.h"

namespace cairn {
namespace {

struct Field {
  const char* name;
  std::optional<int64_t> Quota::*quota;
  int64_t Holding::*holding;
};
constexpr Field kFields[] = {{"jobs", &Quota::jobs, &Holding::jobs},
                             {"parameters", &Quota::parameters, &Holding::parameters},
                             {"replicas", &Quota::replicas, &Holding::replicas}};

absl::Status ParseField(absl::string_view word, Quota* quota) {
  const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(word, absl::MaxSplits('=', 1));
  const Field* const field = std::find_if(std::begin(kFields), std::end(kFields),
                                          [&](const Field& known) { return parts.first == known.name; });
  int64_t value = 0;
  if (field == std::end(kFields) || !absl::SimpleAtoi(parts.second, &value) || value < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", absl::CHexEscape(word), "\": give jobs=N, parameters=N or replicas=N, N a whole number"));
  }
  if ((quota->*field->quota).has_value())
    return absl::InvalidArgumentError(absl::StrCat(field->name, " stands twice in the line"));
  quota->*field->quota = value;
  return absl::OkStatus();
}

// words: without the comment, at least one.
absl::Status ParseLine(const std::vector<absl::string_view>& words, Quotas* quotas) {
  const std::string kind(words[0]);
  const bool named = kind == "user" || kind == "group";
  if (!named && kind != "default") {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", absl::CHexEscape(kind), "\": a line begins with default, user NAME or group NAME"));
  }
  const size_t first = named ? 2 : 1;
  if (words.size() <= first)
    return absl::InvalidArgumentError("the line limits nothing: give jobs=N, parameters=N or replicas=N");
  Quota quota;
  for (size_t i = first; i < words.size(); ++i) CAIRN_RETURN_IF_ERROR(ParseField(words[i], &quota));
  if (!named) {
    if (quotas->each_user) return absl::InvalidArgumentError("there is a second line with default");
    quotas->each_user = quota;
    return absl::OkStatus();
  }
  auto& lines = kind == "user" ? quotas->users : quotas->groups;
  if (lines.emplace(words[1], quota).second) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("there is a second line with ", kind, " ", words[1]));
}

}  // namespace

void Holding::Add(int64_t job_parameters, int32_t job_replicas) {
  ++jobs;
  parameters += job_parameters;
  replicas += std::max(1, job_replicas);
}

absl::StatusOr<Quotas> Quotas::Parse(absl::string_view text, const std::string& file) {
  Quotas quotas;
  quotas.file = file;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    const std::vector<absl::string_view> words =
        absl::StrSplit(line.substr(0, line.find('#')), absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty()) continue;
    if (const absl::Status status = ParseLine(words, &quotas); !status.ok()) {
      return absl::InvalidArgumentError(absl::StrFormat("--quotas: %s, line %d: %s", file, number, status.message()));
    }
  }
  return quotas;
}

const Quota* Quotas::OfUser(const std::string& user) const {
  const auto own = users.find(user);
  if (own != users.end()) return &own->second;
  return each_user ? &*each_user : nullptr;
}

const Quota* Quotas::OfGroup(const std::string& group) const {
  const auto found = groups.find(group);
  return found == groups.end() ? nullptr : &found->second;
}

absl::Status Quotas::Check(const Quota& quota, const std::string& whose, const Holding& has,
                           const Holding& more) const {
  for (const Field& field : kFields) {
    const std::optional<int64_t>& most = quota.*field.quota;
    const int64_t now = has.*field.holding, then = now + more.*field.holding;
    if (!most || then <= *most) continue;
    return absl::ResourceExhaustedError(
        absl::StrFormat("quota of %s: %s=%d; the jobs that have not ended have %d, with this one %d: wait until some "
                        "have ended, cancel "
                        "some, or ask for more (%s on the coordinator's machine)",
                        whose, field.name, *most, now, then, file));
  }
  return absl::OkStatus();
}

absl::Status CheckDefaultJobs(const std::string& user, const Holding& has) {
  if (has.jobs < kJobsOfUserDefault) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrFormat(
      "quota of user %s: jobs=%d, the default of every user; the jobs that have not ended are %d without "
      "this one: wait until some have ended, cancel some, or ask for more (`user %s jobs=N` in the file "
      "of --quotas on the coordinator's machine)",
      user, kJobsOfUserDefault, has.jobs, user));
}

}  // namespace cairn
