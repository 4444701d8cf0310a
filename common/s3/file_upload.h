// S3FileUpload: writes one object whose bytes come one after the other: by one request if it fits into a part, else in
// parts, several on their way at the same time.
//
// Used by one thread; runs threads of its own until it ends. Invariants:
//   1. At most kS3UploadsMax + 1 parts are in memory.
//   2. The object appears with Finish; where that does not succeed, or is not called, the upload is aborted.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/remote_files.h"
#include "common/s3/location.h"
#include "common/s3/object_store.h"
#include "common/s3/s3_sessions.h"

namespace cairn {

class S3FileUpload : public RemoteUpload {
 public:
  // An object of so many bytes. Errors: those of BeginUpload; RESOURCE_EXHAUSTED: more than S3 takes.
  static absl::StatusOr<std::unique_ptr<RemoteUpload>> Begin(std::shared_ptr<const S3Session> session, S3Location at,
                                                             uint64_t bytes);
  ~S3FileUpload() override;
  absl::Status Add(absl::string_view bytes) override;
  absl::StatusOr<std::string> Finish() override;

 private:
  struct Part {
    int number = 0;
    std::string bytes;
  };

  S3FileUpload(std::shared_ptr<const S3Session> session, S3Location at, uint64_t bytes)
      : session_(std::move(session)), at_(std::move(at)), bytes_(bytes) {}
  bool in_parts() const { return !upload_.id.empty(); }
  // Waits until there is room for it.
  absl::Status Send();
  void Work();
  // Waits for the threads: until all parts have arrived, or one has failed.
  absl::Status Join();

  const std::shared_ptr<const S3Session> session_;
  const S3Location at_;
  const uint64_t bytes_;
  S3Upload upload_;  // without an id: by one request
  uint64_t added_ = 0;
  std::string filling_;
  std::vector<std::thread> threads_;
  bool finished_ = false;

  absl::Mutex mutex_;
  std::deque<Part> waiting_ ABSL_GUARDED_BY(mutex_);
  size_t under_way_ ABSL_GUARDED_BY(mutex_) = 0;
  bool no_more_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status failed_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> etags_ ABSL_GUARDED_BY(mutex_);  // by number - 1
};

}  // namespace cairn
