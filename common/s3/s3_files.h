// S3Files: the files of jobs in S3 roots: checkpoints, model files, weights.
//
// Thread-safe, as RemoteFiles says. Invariants: those of RemoteFiles.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "common/base/remote_files.h"
#include "common/base/roots.h"
#include "common/data/remote_data.h"
#include "common/s3/location.h"
#include "common/s3/s3_sessions.h"

namespace cairn {

class S3Files : public RemoteFiles {
 public:
  // Where files are written that are uploaded afterwards: a folder, and the name of the secret root that it is.
  struct Staging {
    std::string folder, root;
  };
  // data: fetches what is wanted as a file of this machine.
  S3Files(std::shared_ptr<RemoteData> data, Staging staging, Environment environment,
          S3Sessions::MakeTransport make_transport = nullptr);

  bool Has(absl::string_view path) const override;
  absl::StatusOr<std::vector<File>> List(const std::string& folder) override;
  absl::StatusOr<std::optional<File>> Look(const std::string& path) override;
  absl::Status Read(const std::string& path, uint64_t bytes_max, const Room& room) override;
  absl::StatusOr<std::string> ReadRange(const std::string& path, const File& file, uint64_t begin,
                                        uint64_t bytes) override;
  absl::StatusOr<std::shared_ptr<const LocalCopy>> Fetch(const std::string& path, absl::Duration wait_max) override;
  absl::Status TryToWrite(const std::string& folder, absl::Time until) override;
  absl::StatusOr<std::unique_ptr<RemoteUpload>> Create(const std::string& path, uint64_t bytes) override;
  absl::Status PutNew(const std::string& path, const std::string& bytes) override;
  absl::Status PutOver(const std::string& path, const std::string& version, const std::string& bytes) override;
  absl::Status Copy(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& path) override;
  absl::Status RemoveUnfinished(const std::string& folder,
                                const std::function<bool(absl::string_view below)>& which) override;
  absl::StatusOr<std::unique_ptr<StagedFile>> Stage(const std::string& path) override;
  std::shared_ptr<RemoteFiles> ForJob() override;
  void Stop() override;

 private:
  // What all jobs have learnt and count together.
  struct Known {
    std::atomic<uint64_t> staged{0};
    std::atomic<bool> warned_of_conditions{false}, warned_of_uploads{false};
    absl::Mutex mutex;
    std::map<std::string, bool> conditions ABSL_GUARDED_BY(mutex);  // by bucket: they are kept
  };
  struct Place {
    std::shared_ptr<const S3Session> session;
    S3Location at;
  };
  // Errors: INVALID_ARGUMENT: no path of an S3 root; PERMISSION_DENIED: of one that is only read.
  absl::StatusOr<Place> PlaceOf(const std::string& path, Access access);
  // Where nobody knows it yet: finds out whether If-None-Match is kept in this bucket, by the object that is there.
  absl::Status TryConditions(ObjectStore& store, const S3Location& there);
  // Whether it is; tries it beside the object.
  absl::StatusOr<bool> KeepsConditions(ObjectStore& store, const S3Location& at);
  // Of a server that cannot do what makes writing safer.
  void WarnOnce(std::atomic<bool>& warned, const absl::Status& why, const char* what) const;

  const std::shared_ptr<RemoteData> data_;
  const Staging staging_;
  const Environment environment_;
  const S3Sessions::MakeTransport make_transport_;
  std::shared_ptr<Known> known_ = std::make_shared<Known>();
  S3Sessions sessions_;
  absl::Mutex mutex_;
  std::vector<std::weak_ptr<RemoteFiles>> of_jobs_ ABSL_GUARDED_BY(mutex_);  // that ForJob has given
};

}  // namespace cairn
