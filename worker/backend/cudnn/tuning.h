// Choosing the fastest of several engines or algorithms by time, once for a kind of device and a shape.
//
// A choice by time may be another one the next time or on the next machine, and two engines may differ in the last
// bits. So deterministic jobs have no Tuner: what they take is a pure function of device, libraries and shape
// (machine.h, invariant 2).
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status.h"

namespace cairn::cudnn {

// What was measured, kept in a file that the workers of a machine share. Thread-safe. Invariants:
//   1. The file is replaced as a whole: a reader sees all of one version.
//   2. A file that is torn, of another program or too large is as good as none, and said so in one line; it is replaced
//      by the first Put.
//   3. What the file says is only ever compared with the names of what the library offers.
class TuningFile {
 public:
  // path: "" keeps nothing beyond this process. Folders are made when the first choice is written.
  explicit TuningFile(std::string path);

  std::optional<std::string> Find(const std::string& key) const;
  // microseconds: for people who read the file. A file that cannot be written is said once; the choice counts in this
  // process all the same.
  void Put(const std::string& key, const std::string& choice, double microseconds);

 private:
  struct Entry {
    std::string choice;
    double microseconds = 0;
  };
  using Entries = std::map<std::string, Entry>;
  // The grammar: a line with the format's name, one with the checksum of what follows, then `key \t choice \t
  // microseconds` lines.
  static absl::StatusOr<Entries> Parse(const std::string& text);
  static std::string Text(const Entries& entries);
  static absl::StatusOr<std::string> Read(const std::string& path);
  absl::Status Write(const std::string& text) const;

  const std::string path_;
  mutable absl::Mutex mutex_;
  Entries entries_ ABSL_GUARDED_BY(mutex_);
  bool unwritable_ ABSL_GUARDED_BY(mutex_) = false;
};

// Of one kind of device. Thread-safe: one thread measures at a time.
class Tuner {
 public:
  // device: what the times are of: model, driver, libraries. The file outlives the tuner.
  Tuner(TuningFile& file, std::string device) : file_(file), device_(std::move(device)) {}

  // The place in `names` of the candidate that is the fastest at `what`; names are in the order of the library's
  // heuristics, not empty. microseconds(i) runs candidate i; one that fails is not taken. 0 where nothing could be
  // measured.
  size_t Choose(const std::string& what, const std::vector<std::string>& names,
                const std::function<absl::StatusOr<double>(size_t)>& microseconds);

 private:
  TuningFile& file_;
  const std::string device_;
  absl::Mutex measuring_;
};

}  // namespace cairn::cudnn
