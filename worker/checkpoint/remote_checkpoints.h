// RemoteCheckpoints: the checkpoints of one job below a prefix of S3, which knows neither folders nor renames.
//
//   DIR/step-<n>/writing-<nonce>.json      put first, removed last: writer_mark.h
//   DIR/step-<n>/model-<nonce>.safetensors, optimizer-<nonce>.safetensors    put, and looked at again, before
//   DIR/step-<n>/manifest.json             names them; with it the checkpoint exists
//
// Thread rule and invariants: those of JobCheckpoints. And:
//   3. Each attempt to write has a nonce of its own: no writer replaces data that another's manifest names.
//   4. What an attempt of this job has left below DIR, which its mark tells, the job's next writer removes, unless a
//      manifest names it. Another chief of this job that still writes gets an error for it (ABORTED).
//   5. A manifest is put where there is none, or in place of one of this job, by one request: there is always one.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/checkpoint/job_checkpoints.h"

namespace cairn {

class RemoteCheckpoints : public JobCheckpoints {
 public:
  // files outlives this.
  RemoteCheckpoints(std::string dir, CheckpointOwner owner, RemoteFiles& files)
      : dir_(std::move(dir)), owner_(std::move(owner)), files_(files) {}

  absl::StatusOr<std::string> Write(CheckpointContents contents, int64_t now_unix_ms) override;
  absl::StatusOr<std::string> KeepAsBest(int64_t step) override;
  absl::Time BestKeptAt() override;
  absl::Status Open() override { return absl::OkStatus(); }
  absl::Status Check(const std::string& name) override;
  absl::Status Remove(const std::string& name) override;
  absl::Status RemoveAll() override;

 private:
  struct Written {
    std::string path, version;
    uint64_t bytes = 0;
  };
  using WriteTensorFiles = std::function<absl::StatusOr<std::vector<Written>>()>;

  std::string PathOf(const std::string& name) const { return dir_ + "/" + name; }
  std::string FileOf(const std::string& name, const std::string& file) const { return dir_ + "/" + name + "/" + file; }
  // The checkpoint's manifest. Errors: NOT_FOUND; FAILED_PRECONDITION: it cannot be recognized.
  absl::StatusOr<CheckpointManifest> Look(const std::string& name);
  absl::StatusOr<CheckpointManifest> LookForOwn(const std::string& name);
  // Whether the manifest that stands there names the files of this nonce.
  absl::StatusOr<bool> Names(const std::string& name, const std::string& nonce);

  absl::Status Mark(const std::string& name, const std::string& nonce);
  absl::Status Unmark(const std::string& name, const std::string& nonce);
  // Whether the mark is one of this job.
  absl::StatusOr<bool> IsOwnMark(const std::string& name, const std::string& nonce);
  absl::Status RemoveTensors(const std::string& name, const std::string& nonce);
  absl::Status RemoveCheckpoint(const std::string& name, const CheckpointManifest& manifest);
  // What an attempt has put there, unless a manifest names it; then its mark.
  absl::Status RemoveAttempt(const std::string& name, const std::string& nonce);
  absl::Status RemoveLeftovers();

  struct Former {
    CheckpointManifest manifest;
    std::string version;  // of its file, or of one before: which is then not replaced
  };
  // The manifest of this job that is to be replaced; another job's checkpoint is kept under another name.
  absl::StatusOr<std::optional<Former>> MakeRoom(const std::string& name);
  absl::Status SetAside(const std::string& name, const CheckpointManifest& manifest);
  // Gives the manifest a nonce, has its files written, and puts it.
  absl::StatusOr<std::string> Put(const std::string& name, CheckpointManifest& manifest, const WriteTensorFiles& write);
  absl::StatusOr<Written> WriteTensors(const std::string& name, const char* file,
                                       const std::vector<SafetensorView>& tensors, CheckpointManifest& manifest);
  absl::StatusOr<Written> CopyTensors(const std::string& from, const std::string& to, const CheckpointFile& described);
  // The files are still those that were written.
  absl::Status CheckWritten(const std::vector<Written>& files);
  absl::Status Publish(const std::string& name, const std::vector<Written>& files, const CheckpointManifest& manifest);
  // Where there is none, or in place of the former one.
  absl::Status PutManifest(const std::string& name, const std::string& manifest, const std::optional<Former>& former);

  const std::string dir_;
  const CheckpointOwner owner_;
  RemoteFiles& files_;
};

}  // namespace cairn
