// CsvLog: writes the file of Keras' CSVLogger: one line per epoch, "epoch" and then the figures in order of name.
//
// One caller at a time. Blocks on the disk only: anything but a regular file is refused. Each epoch is in the file
// once, even if another worker wrote the earlier ones and was killed, or a write failed: the last line tells which
// epoch was written last; a partial line is truncated.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "cairn/v1/callback.pb.h"
#include "cairn/v1/job.pb.h"
#include "cairn/v1/job_status.pb.h"
#include "common/base/status.h"

namespace cairn {

class CsvLog {
 public:
  CsvLog(v1::JobSpec spec, v1::CsvLogger options) : spec_(std::move(spec)), options_(std::move(options)) {}

  // `epochs`: in order, from the first one that may be missing in the file; epoch 0 truncates the file unless `append`
  // is set. Epochs without figures (before the checkpoint that the job resumed from) are skipped. Errors name the
  // file and the system's reason.
  absl::Status Write(absl::Span<const v1::EpochResult> epochs);

 private:
  absl::Status Begin(absl::Span<const v1::EpochResult> epochs);
  std::string Row(const v1::EpochResult& epoch) const;
  std::string Line(const std::vector<std::string>& cells) const;

  const v1::JobSpec spec_;
  const v1::CsvLogger options_;
  std::vector<std::string> columns_;  // after "epoch"
  bool begun_ = false;
  int32_t next_ = 0;  // epochs before this one are in the file
};

}  // namespace cairn
