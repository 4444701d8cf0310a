// CsvLog: writes the file of Keras' CSVLogger: one line per epoch, "epoch" and then the figures in order of name.
//
// One caller at a time. Blocks on the disk only: anything but a regular file is refused. Each epoch is in the file
// once, even if another worker wrote the earlier ones and was killed, if it still writes them, or if a write failed:
// the file is locked, and its lines tell which epochs it has. A partial line is truncated. Rows that were confirmed
// before an asynchronous job fell back stay as they were.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "cairn/v1/callback.pb.h"
#include "cairn/v1/job.pb.h"
#include "cairn/v1/job_status.pb.h"
#include "common/base/status.h"

namespace cairn {

class CsvLog {
 public:
  // submitted: when the job was. A file that was last written before is another job's, and is begun anew. This compares
  // the coordinator's clock with that of the file's server: where the latter is behind by more than the job has run,
  // a second writer begins the file anew too.
  CsvLog(v1::JobSpec spec, v1::CsvLogger options, absl::Time submitted)
      : spec_(std::move(spec)), options_(std::move(options)), submitted_(submitted) {}

  // `epochs`: in order, from the first one that may be missing in the file; epoch 0 truncates another job's file unless
  // `append` is set. Epochs without figures (before the checkpoint that the job resumed from) are skipped. Errors name
  // the file and the system's reason.
  absl::Status Write(absl::Span<const v1::EpochResult> epochs);

 private:
  using Epochs = std::vector<const v1::EpochResult*>;
  // What is missing in the file: `text`, after its first `keep` bytes. ends_here: then the last of the epochs is the
  // file's last row.
  struct Missing {
    size_t keep = 0;
    std::string text;
    bool ends_here = true;
  };
  absl::StatusOr<Missing> Find(int fd, bool anew, const Epochs& epochs);
  Missing FindRows(const std::string& text, bool replaces, const Epochs& epochs) const;
  void ChooseColumns(const v1::EpochResult& first);
  std::string Row(const v1::EpochResult& epoch) const;
  std::string Rows(const Epochs& epochs, size_t from) const;
  std::string Line(const std::vector<std::string>& cells) const;

  const v1::JobSpec spec_;
  const v1::CsvLogger options_;
  const absl::Time submitted_;
  std::vector<std::string> columns_;  // after "epoch"
  int64_t size_ = -1;                 // of the file after the last write; -1: not known
  int32_t next_ = 0;                  // epochs before this one are in those bytes
};

}  // namespace cairn
