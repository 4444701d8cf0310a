#include "coordinator/core/retention.h"

#include <set>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "coordinator/core/limits.h"

namespace cairn {
namespace {

constexpr std::pair<char, int64_t> kUnits[] = {{'d', 24 * 3600}, {'h', 3600}, {'m', 60}, {'s', 1}};  // in seconds

struct Rule {
  const char* name;
  const char* of;  // noun in Text()
  absl::Duration Retention::*age;
};
constexpr Rule kRules[] = {{"succeeded", "succeeded ones", &Retention::succeeded},
                           {"ended_with_errors", "those that ended with errors", &Retention::ended_with_errors},
                           {"failed", "failed ones", &Retention::failed},
                           {"cancelled", "cancelled ones", &Retention::cancelled}};

absl::StatusOr<absl::Duration> ParseAge(absl::string_view text) {
  if (text == "forever") return absl::InfiniteDuration();
  for (const auto& [unit, seconds] : kUnits) {
    int64_t count = 0;
    if (text.empty() || text.back() != unit) continue;
    if (!absl::SimpleAtoi(text.substr(0, text.size() - 1), &count) || count < 0 ||
        count > kEndedAgeSecondsMax / seconds)
      break;
    return absl::Seconds(count * seconds);
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("\"%s\" is not an age; write a number and s, m, h or d, such as 30d, or forever", text));
}

// In the largest unit that divides it.
std::string AgeText(absl::Duration age) {
  const int64_t all = absl::ToInt64Seconds(age);
  for (const auto& [unit, seconds] : kUnits) {
    if (all > 0 && all % seconds == 0) return absl::StrCat(all / seconds, std::string(1, unit));
  }
  return "0s";
}

absl::Status Apply(absl::string_view name, absl::string_view value, Retention* retention) {
  if (name == "without_weights") {
    int count = 0;
    if (absl::SimpleAtoi(value, &count) && count >= 0 && count <= kEndedJobsMax) {
      retention->without_weights = count;
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrFormat("\"%s\" is not a number within 0 .. %d", value, kEndedJobsMax));
  }
  for (const Rule& rule : kRules) {
    if (name != rule.name) continue;
    CAIRN_ASSIGN_OR_RETURN(retention->*rule.age, ParseAge(value));
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError("use succeeded, ended_with_errors, failed, cancelled or without_weights");
}

}  // namespace

absl::StatusOr<Retention> Retention::Parse(const std::string& text) {
  Retention retention;
  std::set<std::string> named;
  for (absl::string_view rule : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(absl::StripAsciiWhitespace(rule), absl::MaxSplits('=', 1));
    const auto& [name, value] = parts;
    absl::Status status = Apply(name, value, &retention);
    if (status.ok() && !named.insert(name).second)
      status = absl::InvalidArgumentError("is named twice; leave one of them out");
    if (!status.ok()) return Annotate(status, absl::StrCat("--keep-ended-jobs: ", name));
  }
  return retention;
}

absl::Duration Retention::AgeMax(v1::JobState state) const {
  switch (state) {
    case v1::FAILED: return failed;
    case v1::CANCELLED: return cancelled;
    case v1::ENDED_WITH_ERRORS: return ended_with_errors;
    default: return succeeded;
  }
}

std::string Retention::Text() const {
  std::vector<std::string> parts = {"ended jobs are kept until they are deleted"};
  for (const Rule& rule : kRules) {
    if (this->*rule.age != absl::InfiniteDuration())
      parts.push_back(absl::StrCat(rule.of, " for ", AgeText(this->*rule.age)));
  }
  parts.push_back(absl::StrCat("of those without weights the newest ", without_weights));
  return absl::StrJoin(parts, "; ");
}

}  // namespace cairn
