#include "client/cli/sweep/space.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/cli/set_field.h"
#include "client/limits.h"
#include "common/base/random.h"

namespace cairn {
namespace {

// Draws of one trial that were made before, until it is taken that there is no other.
constexpr int kDrawsOfATrial = 1000;

template <typename... Args>
absl::Status Bad(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}

// Splits at commas outside of brackets, braces and quotes. Errors: a bracket or quote that is not closed.
absl::StatusOr<std::vector<std::string>> SplitValues(const std::string& text) {
  std::vector<std::string> values(1);
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\' && i + 1 < text.size() && text[i + 1] == ',') {
      values.back() += text[++i];
      continue;
    }
    if (c == '"') quoted = !quoted;
    if (!quoted && (c == '[' || c == '{')) ++depth;
    if (!quoted && (c == ']' || c == '}')) --depth;
    if (depth < 0) return Bad("\"", std::string(1, c), "\" closes nothing");
    if (c == ',' && depth == 0 && !quoted) {
      values.emplace_back();
    } else {
      values.back() += c;
    }
  }
  if (quoted || depth > 0) return Bad("a bracket or a quote is not closed");
  return values;
}

// The number of combinations of a grid, at most `most` + 1.
int64_t Combinations(const std::vector<GridAxis>& grid, int64_t most) {
  int64_t count = 1;
  for (const GridAxis& axis : grid)
    count = std::min<int64_t>(count * static_cast<int64_t>(axis.values.size()), most + 1);
  return count;
}

absl::Status CheckPaths(const SweepSpace& space) {
  std::set<std::string> seen;
  for (const GridAxis& axis : space.grid) {
    if (!seen.insert(axis.path).second)
      return Bad("--grid ", axis.path, ": is given twice; list all its values in one");
  }
  for (const RangeAxis& axis : space.ranges) {
    if (!seen.insert(axis.path).second) return Bad("--range ", axis.path, ": the field is given twice; leave one out");
  }
  if (seen.empty())
    return Bad("there is nothing to sweep: give --grid FIELD=VALUE,VALUE or --random N --range FIELD=LOW:HIGH");
  if (space.random == 0 && !space.ranges.empty()) {
    return Bad("--range ", space.ranges[0].path, ": a range has no combinations to go through; give --random N too");
  }
  if (space.random < 0 || space.random > kSweepTrialsMax) {
    return Bad("--random ", space.random, ": is not from 1 to ", kSweepTrialsMax);
  }
  return absl::OkStatus();
}

// Random numbers of one draw: a function of seed, trial and attempt, one for each axis.
class Draw {
 public:
  Draw(uint64_t seed, int trial, int attempt) : seed_(seed), trial_(trial), attempt_(attempt) {}

  double Next() {  // in [0, 1), 53 bits
    const PhiloxBlock bits = Philox({static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)},
                                    {static_cast<uint32_t>(trial_), static_cast<uint32_t>(attempt_), axis_++, 0});
    const uint64_t whole = (static_cast<uint64_t>(bits[0]) << 32 | bits[1]) >> 11;
    return static_cast<double>(whole) * 0x1.0p-53;
  }

 private:
  const uint64_t seed_;
  const int trial_, attempt_;
  uint32_t axis_ = 0;
};

std::string ValueAt(const RangeAxis& axis, double u) {
  const double high = axis.whole ? axis.high + 1 : axis.high;
  const double x = axis.log ? std::exp(std::log(axis.low) + u * (std::log(high) - std::log(axis.low)))
                            : axis.low + u * (high - axis.low);
  if (axis.whole) return absl::StrFormat("%.0f", std::clamp(std::floor(x), axis.low, axis.high));
  double rounded = 0;
  const std::string text = absl::StrFormat("%.6g", x);
  if (absl::SimpleAtod(text, &rounded) && rounded >= axis.low && rounded <= axis.high) return text;
  return absl::StrFormat("%.17g", std::clamp(x, axis.low, axis.high));
}

Assignment RandomTrial(const SweepSpace& space, int trial, int attempt) {
  Draw draw(space.seed, trial, attempt);
  Assignment result;
  for (const GridAxis& axis : space.grid) {
    const double place = draw.Next() * static_cast<double>(axis.values.size());
    result.emplace_back(axis.path, axis.values[static_cast<size_t>(place)]);
  }
  for (const RangeAxis& axis : space.ranges) result.emplace_back(axis.path, ValueAt(axis, draw.Next()));
  return result;
}

absl::StatusOr<std::vector<Assignment>> RandomTrials(const SweepSpace& space) {
  std::vector<Assignment> trials;
  std::set<Assignment> seen;
  for (int trial = 0; trial < space.random; ++trial) {
    for (int attempt = 0; static_cast<int>(trials.size()) == trial; ++attempt) {
      if (attempt == kDrawsOfATrial) {
        return Bad("--random ", space.random, ": only ", trial, " different trials were found; give --random ", trial,
                   ", or more values");
      }
      Assignment one = RandomTrial(space, trial, attempt);
      if (seen.insert(one).second) trials.push_back(std::move(one));
    }
  }
  return trials;
}

std::vector<Assignment> GridTrials(const std::vector<GridAxis>& grid) {
  std::vector<Assignment> trials(1);
  for (const GridAxis& axis : grid) {
    std::vector<Assignment> longer;
    for (const Assignment& beginning : trials) {
      for (const std::string& value : axis.values) {
        longer.push_back(beginning);
        longer.back().emplace_back(axis.path, value);
      }
    }
    trials = std::move(longer);
  }
  return trials;
}

}  // namespace

absl::StatusOr<GridAxis> ParseGrid(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) return Bad("--grid ", text, ": write it as FIELD=VALUE,VALUE");
  GridAxis axis;
  axis.path = text.substr(0, equals);
  auto values = SplitValues(text.substr(equals + 1));
  if (!values.ok()) return Annotate(values.status(), absl::StrCat("--grid ", text));
  std::set<std::string> seen;
  for (const std::string& value : *values) {
    axis.values.emplace_back(absl::StripAsciiWhitespace(value));
    if (axis.values.back().empty()) return Bad("--grid ", text, ": a value is missing between commas");
    if (!seen.insert(axis.values.back()).second)
      return Bad("--grid ", text, ": ", axis.values.back(), " is there twice");
  }
  if (axis.path == "name") return Bad("--grid name: trials are named by the sweep; leave it out");
  return axis;
}

absl::StatusOr<RangeAxis> ParseRange(const std::string& text, const v1::JobSpec& spec) {
  const size_t equals = text.find('=');
  const std::vector<std::string> parts =
      absl::StrSplit(equals == std::string::npos ? text : text.substr(equals + 1), ':');
  const bool form = equals != std::string::npos && equals > 0 && (parts.size() == 2 || parts.size() == 3);
  if (!form) return Bad("--range ", text, ": write it as FIELD=LOW:HIGH or FIELD=LOW:HIGH:log");
  RangeAxis axis;
  axis.path = text.substr(0, equals);
  const auto kind = NumberKindOf(axis.path, spec);
  if (!kind.ok()) return Annotate(kind.status(), absl::StrCat("--range ", text));
  if (*kind == NumberKind::kNone) return Bad("--range ", text, ": the field is no number; list values with --grid");
  axis.whole = *kind == NumberKind::kWhole;
  for (const auto& [word, to] : {std::pair(parts[0], &axis.low), std::pair(parts[1], &axis.high)}) {
    if (!absl::SimpleAtod(word, to) || !std::isfinite(*to))
      return Bad("--range ", text, ": \"", word, "\" is not a number");
    if (axis.whole && (*to != std::floor(*to) || std::abs(*to) > 0x1p53)) {
      return Bad("--range ", text, ": the field takes whole numbers, ", word, " is none");
    }
  }
  if (axis.low >= axis.high) return Bad("--range ", text, ": the low end must be below the high one");
  if (parts.size() == 3 && parts[2] != "log") return Bad("--range ", text, ": \"", parts[2], "\" is not \"log\"");
  axis.log = parts.size() == 3;
  if (axis.log && axis.low <= 0) return Bad("--range ", text, ": a logarithmic range begins above 0");
  return axis;
}

absl::StatusOr<std::vector<Assignment>> MakeTrials(const SweepSpace& space) {
  CAIRN_RETURN_IF_ERROR(CheckPaths(space));
  if (space.random > 0) return RandomTrials(space);
  if (Combinations(space.grid, kSweepTrialsMax) > kSweepTrialsMax) {
    return Bad("--grid: there are more than ", kSweepTrialsMax,
               " combinations; give fewer values, or --random N to try ", "some of them");
  }
  return GridTrials(space.grid);
}

std::vector<std::string> ShortNames(const Assignment& assignment) {
  const auto last = [](const std::string& path) { return path.substr(path.rfind('.') + 1); };
  std::vector<std::string> names;
  for (const auto& [path, value] : assignment) {
    const std::string name = last(path);
    const auto same =
        std::count_if(assignment.begin(), assignment.end(), [&](const auto& a) { return last(a.first) == name; });
    names.push_back(same == 1 ? name : path);
  }
  return names;
}

std::string AssignmentText(const Assignment& assignment) {
  const std::vector<std::string> names = ShortNames(assignment);
  std::string text;
  for (size_t i = 0; i < assignment.size(); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : " ", names[i], "=", assignment[i].second);
  }
  return text;
}

}  // namespace cairn
