#include "client/cli/usage_error.h"

#include <CLI/CLI.hpp>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/model/nearest.h"

namespace cairn {
namespace {

// The command that was given, below `app`: "cairn nodes drain".
struct Given {
  const CLI::App* app;
  std::string name;
};

Given GivenCommand(const CLI::App& app) {
  Given given = {&app, app.get_name()};
  for (std::vector<CLI::App*> below = app.get_subcommands(); !below.empty(); below = given.app->get_subcommands()) {
    given.app = below.back();
    absl::StrAppend(&given.name, " ", given.app->get_name());
  }
  return given;
}

std::string DidYouMean(const std::string& word, const std::vector<std::string>& names, const std::string& before) {
  const std::string nearest = Nearest(word, names);
  return nearest.empty() ? "" : absl::StrCat("; did you mean `", before, nearest, "`?");
}

std::vector<std::string> CommandsOf(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

// Flags of the command and of those that it is a part of, without dashes.
std::vector<std::string> FlagsOf(const CLI::App* app) {
  std::vector<std::string> names;
  for (; app != nullptr; app = app->get_parent()) {
    for (const CLI::Option* option : app->get_options()) {
      names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
    }
  }
  return names;
}

}  // namespace

std::string UsageError(const CLI::App& app, const CLI::ParseError& error) {
  const Given given = GivenCommand(app);
  const std::string help = absl::StrCat("; `", given.name, " --help` says what there is");
  const std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
  for (const std::string& word : unknown) {
    if (word.find_first_not_of('-') == std::string::npos || word[0] != '-') continue;
    const std::string flag = word.substr(0, word.find('='));
    const std::string hint = DidYouMean(flag.substr(flag.find_first_not_of('-')), FlagsOf(given.app), "--");
    return absl::StrCat("`", given.name, "` has no flag \"", flag, "\"", hint.empty() ? help : hint);
  }
  if (!unknown.empty()) {
    const std::vector<std::string> commands = CommandsOf(*given.app);
    if (commands.empty()) return absl::StrCat("`", given.name, "` takes no argument \"", unknown[0], "\"", help);
    const std::string hint = DidYouMean(unknown[0], commands, given.name + " ");
    return absl::StrCat("there is no command \"", given.name, " ", unknown[0], "\"", hint.empty() ? help : hint);
  }
  return absl::StrCat("`", given.name, "`: ", error.what(), help);
}

}  // namespace cairn
