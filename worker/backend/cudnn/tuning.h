// Chooses the fastest of several engines or algorithms by measured time, once for each kind of device and shape.
//
// A choice by time may differ the next time or on another machine, and two engines may differ in the last bits. So
// deterministic jobs have no Tuner: their choice is a pure function of device, libraries and shape (machine.h,
// invariant 2).
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

// The choices so far, in a file that the workers of a machine share. Thread-safe. Invariants:
//   1. The file is replaced as a whole: a reader sees one complete version.
//   2. A file that is torn, of another program or too large is ignored, with one line in the log; the first Put
//      replaces it.
//   3. The contents of the file are only compared with the names that the library offers.
class TuningFile {
 public:
  // path: "": nothing is kept beyond this process. Folders are created when the first choice is written.
  explicit TuningFile(std::string path);

  std::optional<std::string> Find(const std::string& key) const;
  // microseconds: for people who read the file. If the file cannot be written, this is logged once; the choice still
  // counts in this process.
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

// The tuner of one kind of device. Thread-safe: one thread measures at a time.
class Tuner {
 public:
  // device: all that times depend on: model, driver, libraries. The file outlives the tuner.
  Tuner(TuningFile& file, std::string device) : file_(file), device_(std::move(device)) {}

  // Returns the index of the candidate that is the fastest at `what`. names: those of the candidates, at least one, in
  // the order of the library's heuristics. microseconds(i) runs candidate i; one that fails is not chosen. Returns 0 if
  // nothing could be measured.
  size_t Choose(const std::string& what, const std::vector<std::string>& names,
                const std::function<absl::StatusOr<double>(size_t)>& microseconds);

 private:
  TuningFile& file_;
  const std::string device_;
  absl::Mutex measuring_;
};

}  // namespace cairn::cudnn
