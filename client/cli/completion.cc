#include "client/cli/completion.h"

#include <CLI/CLI.hpp>
#include <functional>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace cairn {
namespace {

// A command with what can follow it.
struct Command {
  std::string path;  // below the program: "nodes drain"; "" of the program itself
  std::string parent;
  std::string name, help;
  std::vector<std::string> commands;
  std::vector<const CLI::Option*> flags;
  std::vector<std::string> words;  // what its arguments can be, where they are few
  bool takes_job = false;          // its first argument is a job
  bool takes_file = false;
};

bool IsPath(const std::string& argument) {
  static const auto* const paths =
      new std::set<std::string>{"FILE", "PATH",    "DIR", "IN",    "OUT",    "MODEL",   "DATA",
                                "dir",  "tls-dir", "job", "model", "output", "weights", "data"};
  return paths->contains(argument);
}

void AddArgument(const CLI::App& program, const CLI::Option& option, Command* command) {
  const std::string& name = option.get_name();
  if (name == "SHELL") command->words = {"bash", "zsh", "fish"};
  if (name == "JOB") command->takes_job = true;
  if (IsPath(name) || (name == "NAME" && command->path == "models")) command->takes_file = true;
  if (name != "COMMAND") return;
  for (const CLI::App* sub : program.get_subcommands([](const CLI::App*) { return true; }))
    command->words.push_back(sub->get_name());
}

std::vector<Command> CommandsOf(const CLI::App& app) {
  std::vector<Command> all;
  const std::function<void(const CLI::App&, const std::string&, const std::string&)> visit =
      [&](const CLI::App& at, const std::string& path, const std::string& parent) {
        Command command{path, parent, at.get_name(), at.get_description(), {}, {}, {}};
        for (const CLI::Option* option : at.get_options()) {
          if (option->get_positional()) {
            AddArgument(app, *option, &command);
          } else {
            command.flags.push_back(option);
          }
        }
        const auto below = at.get_subcommands([](const CLI::App*) { return true; });
        for (const CLI::App* sub : below) command.commands.push_back(sub->get_name());
        all.push_back(std::move(command));
        for (const CLI::App* sub : below) {
          visit(*sub, path.empty() ? sub->get_name() : absl::StrCat(path, " ", sub->get_name()), path);
        }
      };
  visit(app, "", "");
  return all;
}

std::vector<std::string> FlagNames(const Command& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.flags) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

bool TakesValue(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

// Works in bash, and in zsh with bashcompinit.
std::string BashFunction(const std::vector<Command>& commands) {
  std::string paths, cases;
  std::set<std::string> with_value, with_path;
  for (const Command& command : commands) {
    if (!command.path.empty()) absl::StrAppend(&paths, paths.empty() ? "" : " | ", "\" ", command.path, "\"");
    std::vector<std::string> words = command.commands;
    words.insert(words.end(), command.words.begin(), command.words.end());
    for (const std::string& flag : FlagNames(command)) words.push_back(flag);
    for (const std::string& flag : FlagNames(commands[0])) {
      if (!command.path.empty() && flag != "--help" && flag != "--version") words.push_back(flag);
    }
    absl::StrAppend(&cases, "    \"", command.path.empty() ? "" : " ", command.path, "\") words=\"",
                    absl::StrJoin(words, " "), "\"", command.takes_job ? " jobs=1" : "",
                    command.takes_file ? " files=1" : "", " ;;\n");
    for (const CLI::Option* option : command.flags) {
      if (!TakesValue(*option)) continue;
      for (const std::string& name : option->get_lnames()) (IsPath(name) ? with_path : with_value).insert("--" + name);
    }
  }
  return absl::StrReplaceAll(R"sh(_cairn() {
  local current=${COMP_WORDS[COMP_CWORD]} path="" words="" jobs="" files="" i
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$path ${COMP_WORDS[i]}" in
      PATHS) path="$path ${COMP_WORDS[i]}" ;;
    esac
  done
  case "$path" in
CASES  esac
  case "${COMP_WORDS[COMP_CWORD - 1]}" in
    PATH_FLAGS) words="" jobs="" files=1 ;;
    VALUE_FLAGS) words="" jobs="" files="" ;;
  esac
  if [[ -n $jobs && $current != -* ]]; then
    words="$words $(cairn jobs --names 2> /dev/null)"
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  if [[ -n $files && $current != -* ]]; then
    COMPREPLY+=($(compgen -f -- "$current"))
  fi
}
complete -o filenames -F _cairn cairn
)sh",
                             {{"PATHS", paths},
                              {"CASES", cases},
                              {"PATH_FLAGS", absl::StrJoin(with_path, " | ")},
                              {"VALUE_FLAGS", absl::StrJoin(with_value, " | ")}});
}

std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

std::string FishScript(const std::vector<Command>& commands) {
  std::string script = "complete -c cairn -f\n";
  for (const Command& command : commands) {
    std::string seen;
    for (const absl::string_view word : absl::StrSplit(command.path, ' ', absl::SkipEmpty()))
      absl::StrAppend(&seen, seen.empty() ? "" : "; and ", "__fish_seen_subcommand_from ", word);
    const std::string when = command.path.empty() ? "__fish_use_subcommand" : seen;
    for (const Command& sub : commands) {
      if (sub.path.empty() || sub.parent != command.path) continue;
      absl::StrAppend(&script, "complete -c cairn -n ", Quoted(when), " -a ", sub.name, " -d ", Quoted(sub.help), "\n");
    }
    const std::string condition = command.path.empty() ? "" : absl::StrCat(" -n ", Quoted(seen));
    for (const CLI::Option* option : command.flags) {
      for (const std::string& name : option->get_lnames()) {
        absl::StrAppend(&script, "complete -c cairn", condition, " -l ", name,
                        TakesValue(*option) ? (IsPath(name) ? " -r -F" : " -x") : "", " -d ",
                        Quoted(option->get_description()), "\n");
      }
    }
    if (command.takes_job)
      absl::StrAppend(&script, "complete -c cairn", condition, " -a '(cairn jobs --names 2> /dev/null)'\n");
    if (command.takes_file) absl::StrAppend(&script, "complete -c cairn", condition, " -F\n");
    if (!command.words.empty())
      absl::StrAppend(&script, "complete -c cairn", condition, " -a '", absl::StrJoin(command.words, " "), "'\n");
  }
  return script;
}

}  // namespace

absl::StatusOr<std::string> CompletionScript(const CLI::App& app, const std::string& shell) {
  const std::vector<Command> commands = CommandsOf(app);
  if (shell == "bash") {
    return "# Put it into /etc/bash_completion.d/cairn, or: source <(cairn completion bash)\n" + BashFunction(commands);
  }
  if (shell == "zsh") {
    return "#compdef cairn\n# Or: source <(cairn completion zsh)\nautoload -U +X bashcompinit && bashcompinit\n" +
           BashFunction(commands);
  }
  if (shell == "fish") {
    return "# Put it into ~/.config/fish/completions/cairn.fish\n" + FishScript(commands);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("there is no completion for the shell \"", shell, "\"; use bash, zsh or fish"));
}

}  // namespace cairn
