// Progress: shows a running job as Keras does: one bar per epoch on a terminal, lines elsewhere.
//
//   Epoch 2/5
//   [==============>...............] 450/938 - loss: 0.3012 - accuracy: 0.8891 - 7,120 images/s - 12s left
//
// A pure function of the statuses it is given, without a terminal or a clock. Not thread-safe. Invariants:
//   1. Every epoch's result is printed once, in order, even if statuses were missed.
//   2. A bar is never wider than the terminal, so that the next one can overwrite it.
#pragma once

#include <set>
#include <string>

#include "absl/time/time.h"
#include "cairn/v1/job_status.pb.h"

namespace cairn {

struct ProgressOptions {
  bool terminal = false;  // bars that overwrite each other; else whole lines only
  int width = 80;         // of the terminal, columns
  absl::TimeZone zone = absl::LocalTimeZone();
  bool colours = false;  // of the line that says how the job ended
};

class Progress {
 public:
  explicit Progress(const ProgressOptions& options) : options_(options) {}

  // What to write for this status; may be empty.
  std::string Update(const v1::JobStatus& job);
  // An extra line, such as a lost coordinator.
  std::string Note(const std::string& text);
  // The terminal was resized.
  void set_width(int width) { options_.width = width; }

 private:
  std::string Line(const std::string& text);  // a line that stays
  std::string Bar(const std::string& text);   // a line that the next one replaces
  std::string StateLine(const v1::JobStatus& job);
  std::string CheckpointLines(const v1::JobStatus& job);
  std::string ValidationLines(const v1::JobStatus& job);
  std::string EpochResults(const v1::JobStatus& job);
  std::string NoteLines(const v1::JobStatus& job);
  std::string EventLines(const v1::JobStatus& job);
  std::string DegradedLine(const v1::JobStatus& job);
  std::string RunningEpoch(const v1::JobStatus& job);
  int CellsBeside(const std::string& rest) const;  // cells of a bar on the same line
  std::string EpochHead(const v1::JobStatus& job, int epoch);

  ProgressOptions options_;
  bool bar_open_ = false;  // the cursor is at the end of a bar
  v1::JobState state_ = v1::JOB_STATE_UNSPECIFIED;
  std::string reason_;
  int epochs_printed_ = 0;
  int64_t checkpoints_until_ = 0;  // unix ms: checkpoints written up to then were shown
  v1::CallbackNote last_note_;     // the last one printed
  v1::JobEvent last_event_;        // likewise
  bool began_ = false;             // a status has arrived
  std::string best_noted_, checkpoint_error_;
  std::set<int64_t> validations_told_;  // by step
  int head_printed_ = -1;               // epoch whose "Epoch 2/5" is on the terminal
};

}  // namespace cairn
