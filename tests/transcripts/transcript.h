// Transcripts: a core driven by a script, with what it does written down. A file is comments (lines with #), and
// blocks:
//
//   train 2                                  a command, one line
//   ----
//   worker-0 says replica_report job 1 ...   what came of it, up to an empty line; written by the test itself
//
// Thread rule: none, a transcript belongs to its test.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "common/base/status.h"

namespace cairn {

// The words of a command. Errors name the word.
class Command {
 public:
  explicit Command(const std::string& line);

  const std::string& verb() const { return verb_; }
  const std::string& rest() const { return rest_; }  // all after the verb
  // The n-th word after the verb; `otherwise` where there is none.
  std::string Word(size_t n, const std::string& otherwise = "") const;
  // NAME=NUMBER among the words; `otherwise` where it is not named.
  absl::StatusOr<int64_t> Number(const std::string& name, int64_t otherwise) const;
  // The n-th word as a number.
  absl::StatusOr<int64_t> NumberAt(size_t n) const;

 private:
  std::string verb_;
  std::string rest_;
  std::vector<std::string> words_;
};

// Carries a command out and returns its output: lines, each with its end.
using RunCommand = std::function<absl::StatusOr<std::string>(const Command&)>;

// The text of a transcript with the outputs that `run` gives. Errors name the line.
absl::StatusOr<std::string> Replay(const std::string& text, const RunCommand& run);

}  // namespace cairn
