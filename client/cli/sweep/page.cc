#include "client/cli/sweep/page.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/cli/sweep/page_parts.h"
#include "client/cli/sweep/record.h"

namespace cairn {
namespace {

constexpr char kPage[] = R"html(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'">
<title>Cairn sweep</title>
<style>
CSS</style>
</head>
<body>
<header><h1 id="title">Sweep</h1><span id="about" class="quiet"></span></header>
<main id="main"></main>
<script type="application/json" id="data">DATA</script>
<script>
JS</script>
</body>
</html>
)html";

// JSON of a text. "<" cannot end a script element then.
std::string Quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      absl::StrAppend(&quoted, "\\", std::string(1, c));
    } else if (static_cast<unsigned char>(c) >= 0x20) {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string DataOf(const std::string& job, const Sweep& sweep) {
  const SweepOptions& options = sweep.options();
  std::vector<std::string> trials, paths, rungs;
  std::set<std::string> seen;
  for (const Trial* trial : sweep.Ranking()) {
    trials.push_back(TrialJson(*trial, options.by));
    for (const auto& [path, value] : trial->parameters) {
      if (seen.insert(path).second) paths.push_back(Quoted(path));
    }
  }
  for (const int rung : options.rungs) rungs.push_back(absl::StrCat(rung));
  const std::string json = absl::StrCat(
      "{\"job\":", Quoted(job), ",\"by\":", Quoted(options.by),
      ",\"more_is_better\":", options.more_is_better ? "true" : "false", ",\"rungs\":[", absl::StrJoin(rungs, ","),
      "],\"parameters\":[", absl::StrJoin(paths, ","), "],\n\"trials\":[\n", absl::StrJoin(trials, ",\n"), "]}");
  return absl::StrReplaceAll(json, {{"<", "\\u003c"}});
}

}  // namespace

std::string SweepPage(const std::string& job, const Sweep& sweep) {
  return absl::StrReplaceAll(
      kPage, {{"CSS", std::string(kSweepPageCss)}, {"DATA", DataOf(job, sweep)}, {"JS", std::string(kSweepPageJs)}});
}

}  // namespace cairn
