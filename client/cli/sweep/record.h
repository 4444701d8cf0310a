// The folder of a sweep: what it is (sweep.json), its trials (trials.jsonl), the page (index.html), and a lock.
//
//   sweep.json    written once, before anything is submitted
//   trials.jsonl  a JSON object a line for each trial; written whole whenever one changes (common/base/files.h)
//
// One thread. Invariant: what a sweep is about to do stands in trials.jsonl before it does it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "client/cli/sweep/definition.h"
#include "client/cli/sweep/trial.h"
#include "common/base/files.h"
#include "common/base/status.h"

namespace cairn {

class SweepFolder {
 public:
  // Creates it if it is missing, and locks it. Errors: FAILED_PRECONDITION: another `cairn sweep` runs in it; those of
  // the system.
  static absl::StatusOr<SweepFolder> Open(const std::string& path);

  const std::string& path() const { return path_; }
  // nullopt: no sweep began here. Errors: INVALID_ARGUMENT: the file is damaged.
  absl::StatusOr<std::optional<SweepDefinition>> ReadDefinition() const;
  absl::Status Write(const SweepDefinition& definition) const;
  // Fills in what is stored of these trials, if anything is. Errors: INVALID_ARGUMENT names the line.
  absl::Status ReadTrials(std::vector<Trial>* trials) const;
  // trials.jsonl, then the page.
  absl::Status Write(const SweepDefinition& definition, const Sweep& sweep) const;

 private:
  SweepFolder(std::string path, FileDescriptor lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  absl::StatusOr<std::string> Read(const std::string& name) const;
  absl::Status WriteFile(const std::string& name, const std::string& text) const;

  std::string path_;
  FileDescriptor lock_;
};

// {"trial", "parameters", "state", "by", "score", "job", "epochs", "figures", "curve", "reason", ...}, one line.
// curve: [epoch, figure of --by] of each epoch.
std::string TrialJson(const Trial& trial, const std::string& by);

// Why the two cannot be the same sweep; empty: they are.
std::string DifferenceOf(const SweepDefinition& stored, const SweepDefinition& given);

}  // namespace cairn
