#include "worker/checkpoint/remote_checkpoints.h"

#include <iterator>
#include <memory>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/log.h"
#include "common/model/checkpoint_name.h"
#include "worker/checkpoint/checkpoint_files.h"
#include "worker/checkpoint/writer_mark.h"
#include "worker/limits.h"

namespace cairn {
namespace {

constexpr const char* kTensorFiles[] = {kModelFile, kOptimizerFile};

// An attempt to write a checkpoint: its name and the nonce.
using Attempt = std::pair<std::string, std::string>;

// The name of a checkpoint's place as Cairn writes it: "step-5", "best"; not "step-05".
bool IsCheckpointName(absl::string_view name) {
  int64_t step = 0;
  absl::string_view digits = name;
  if (name == kBestCheckpoint) return true;
  return absl::ConsumePrefix(&digits, kStepPrefix) && absl::SimpleAtoi(digits, &step) && name == CheckpointName(step);
}

// Checkpoint and file of a path below the directory: "step-5", "manifest.json".
std::optional<std::pair<std::string, std::string>> PartsOf(absl::string_view below) {
  const size_t slash = below.find('/');
  if (slash == below.npos || !IsCheckpointName(below.substr(0, slash))) return std::nullopt;
  return std::pair(std::string(below.substr(0, slash)), std::string(below.substr(slash + 1)));
}

std::optional<Attempt> AttemptOfMark(absl::string_view below) {
  const auto parts = PartsOf(below);
  if (!parts || NonceOfMark(parts->second).empty()) return std::nullopt;
  return Attempt(parts->first, NonceOfMark(parts->second));
}

std::optional<Attempt> AttemptOfTensors(absl::string_view below) {
  const auto parts = PartsOf(below);
  if (!parts) return std::nullopt;
  for (const char* file : kTensorFiles) {
    if (const std::string nonce = NonceOf(file, parts->second); !nonce.empty()) return Attempt(parts->first, nonce);
  }
  return std::nullopt;
}

absl::Status MeetsAnother(const std::string& path) {
  return absl::AbortedError(absl::StrCat(path, ": another worker writes or removes this checkpoint at the same time; ",
                                         "give each job its own checkpoints.dir"));
}

}  // namespace

// ---- what is there ----

absl::StatusOr<CheckpointManifest> RemoteCheckpoints::Look(const std::string& name) {
  const std::string path = PathOf(name);
  absl::StatusOr<Buffer> bytes = ReadJobFile(FileOf(name, kManifestFile), kManifestBytesMax, &files_);
  if (absl::IsInvalidArgument(bytes.status())) return RecognizeCheckpoint(path, name, bytes.status());
  CAIRN_RETURN_IF_ERROR(bytes.status());
  return RecognizeCheckpoint(path, name, ParseManifest({reinterpret_cast<const char*>(bytes->data()), bytes->size()}));
}

absl::StatusOr<CheckpointManifest> RemoteCheckpoints::LookForOwn(const std::string& name) {
  CAIRN_ASSIGN_OR_RETURN(CheckpointManifest manifest, Look(name));
  CAIRN_RETURN_IF_ERROR(CheckOwner(PathOf(name), manifest, owner_));
  return manifest;
}

absl::StatusOr<bool> RemoteCheckpoints::Names(const std::string& name, const std::string& nonce) {
  const absl::StatusOr<CheckpointManifest> manifest = Look(name);
  if (absl::IsNotFound(manifest.status())) return false;
  CAIRN_RETURN_IF_ERROR(manifest.status());
  return FilesNonce(*manifest) == nonce;
}

absl::Status RemoteCheckpoints::Check(const std::string& name) { return LookForOwn(name).status(); }

absl::Time RemoteCheckpoints::BestKeptAt() {
  const auto found = files_.Look(FileOf(kBestCheckpoint, kManifestFile));
  return found.ok() && *found ? (*found)->changed : absl::InfinitePast();
}

// ---- marks ----

absl::Status RemoteCheckpoints::Mark(const std::string& name, const std::string& nonce) {
  const absl::Status status = files_.PutNew(FileOf(name, MarkName(nonce)), EncodeMark(owner_));
  return absl::IsAlreadyExists(status) ? absl::OkStatus() : status;  // of an earlier submission of this job
}

absl::Status RemoteCheckpoints::Unmark(const std::string& name, const std::string& nonce) {
  return files_.Remove(FileOf(name, MarkName(nonce)));
}

absl::StatusOr<bool> RemoteCheckpoints::IsOwnMark(const std::string& name, const std::string& nonce) {
  const absl::StatusOr<Buffer> mark = ReadJobFile(FileOf(name, MarkName(nonce)), kWriterMarkBytesMax, &files_);
  if (absl::IsNotFound(mark.status()) || absl::IsInvalidArgument(mark.status())) return false;
  CAIRN_RETURN_IF_ERROR(mark.status());
  return IsMarkOf(owner_, {reinterpret_cast<const char*>(mark->data()), mark->size()});
}

// ---- removing ----

absl::Status RemoteCheckpoints::RemoveTensors(const std::string& name, const std::string& nonce) {
  for (const char* file : kTensorFiles)
    CAIRN_RETURN_IF_ERROR(files_.Remove(FileOf(name, TensorsFileName(file, nonce))));
  return nonce.empty() ? absl::OkStatus() : Unmark(name, nonce);
}

absl::Status RemoteCheckpoints::RemoveCheckpoint(const std::string& name, const CheckpointManifest& manifest) {
  // By the mark the rest is found where this ends in its middle.
  if (!FilesNonce(manifest).empty()) CAIRN_RETURN_IF_ERROR(Mark(name, FilesNonce(manifest)));
  CAIRN_RETURN_IF_ERROR(files_.Remove(FileOf(name, kManifestFile)));
  return RemoveTensors(name, FilesNonce(manifest));
}

absl::Status RemoteCheckpoints::Remove(const std::string& name) {
  const absl::StatusOr<CheckpointManifest> own = LookForOwn(name);
  if (absl::IsNotFound(own.status())) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(own.status());
  return RemoveCheckpoint(name, *own);
}

absl::Status RemoteCheckpoints::RemoveAll() {
  CAIRN_RETURN_IF_ERROR(RemoveLeftovers());
  const auto files = files_.List(dir_);
  CAIRN_RETURN_IF_ERROR(files.status());
  absl::Status status;
  for (const RemoteFiles::File& file : *files) {
    const auto parts = PartsOf(file.below);
    if (parts && parts->second == kManifestFile) status.Update(Remove(parts->first));
  }
  return status;
}

absl::Status RemoteCheckpoints::RemoveAttempt(const std::string& name, const std::string& nonce) {
  CAIRN_ASSIGN_OR_RETURN(const bool before, Names(name, nonce));
  if (before) return Unmark(name, nonce);
  for (const char* file : kTensorFiles)
    CAIRN_RETURN_IF_ERROR(files_.Remove(FileOf(name, TensorsFileName(file, nonce))));
  // Its writer may be alive and have put the manifest meanwhile: without its files it is none.
  CAIRN_ASSIGN_OR_RETURN(const bool after, Names(name, nonce));
  if (after) CAIRN_RETURN_IF_ERROR(files_.Remove(FileOf(name, kManifestFile)));
  return Unmark(name, nonce);
}

absl::Status RemoteCheckpoints::RemoveLeftovers() {
  const auto files = files_.List(dir_);
  CAIRN_RETURN_IF_ERROR(files.status());
  std::set<Attempt> left;
  for (const RemoteFiles::File& file : *files) {
    const std::optional<Attempt> attempt = AttemptOfMark(file.below);
    if (!attempt) continue;
    CAIRN_ASSIGN_OR_RETURN(const bool own, IsOwnMark(attempt->first, attempt->second));
    if (own) left.insert(*attempt);
  }
  if (left.empty()) return absl::OkStatus();
  CAIRN_RETURN_IF_ERROR(files_.RemoveUnfinished(dir_, [&left](absl::string_view below) {
    const std::optional<Attempt> attempt = AttemptOfTensors(below);
    return attempt && left.contains(*attempt);
  }));
  for (const auto& [name, nonce] : left) {
    const absl::Status status = RemoveAttempt(name, nonce);
    // A manifest that cannot be read may name them: they stay.
    if (!status.ok() && !absl::IsFailedPrecondition(status)) return status;
  }
  return absl::OkStatus();
}

absl::Status RemoteCheckpoints::SetAside(const std::string& name, const CheckpointManifest& manifest) {
  const std::string aside = NameAside(name, manifest);
  for (const char* file : kTensorFiles) {
    const std::string stored = TensorsFileName(file, FilesNonce(manifest));
    CAIRN_RETURN_IF_ERROR(files_.Copy(FileOf(name, stored), FileOf(aside, stored)));
  }
  CAIRN_RETURN_IF_ERROR(files_.Copy(FileOf(name, kManifestFile), FileOf(aside, kManifestFile)));
  set_aside_.push_back(TellSetAside(PathOf(name), manifest, aside));
  return RemoveCheckpoint(name, manifest);
}

absl::StatusOr<std::optional<RemoteCheckpoints::Former>> RemoteCheckpoints::MakeRoom(const std::string& name) {
  CAIRN_ASSIGN_OR_RETURN(const std::optional<RemoteFiles::File> file, files_.Look(FileOf(name, kManifestFile)));
  if (!file) return std::nullopt;
  absl::StatusOr<CheckpointManifest> there = Look(name);
  if (absl::IsNotFound(there.status())) return std::nullopt;
  CAIRN_RETURN_IF_ERROR(there.status());
  if (owner_.Owns(*there)) return Former{*std::move(there), file->version};
  CAIRN_RETURN_IF_ERROR(SetAside(name, *there));
  return std::nullopt;
}

// ---- writing ----

absl::StatusOr<RemoteCheckpoints::Written> RemoteCheckpoints::WriteTensors(const std::string& name, const char* file,
                                                                           const std::vector<SafetensorView>& tensors,
                                                                           CheckpointManifest& manifest) {
  Written written{FileOf(name, TensorsFileName(file, FilesNonce(manifest))), "", 0};
  CheckpointFile& described = manifest.files[file];
  std::unique_ptr<RemoteUpload> upload;
  SafetensorsSink sink;
  sink.begin = [&](uint64_t bytes) -> absl::Status {
    written.bytes = bytes;
    CAIRN_ASSIGN_OR_RETURN(upload, files_.Create(written.path, bytes));
    return absl::OkStatus();
  };
  sink.write = [&](absl::string_view bytes) { return upload->Add(bytes); };
  const absl::Status status = WriteSafetensorsTo(sink, tensors, TensorsMetadata(manifest), &described.xxh3_128);
  if (absl::IsAborted(status)) return MeetsAnother(written.path);
  CAIRN_RETURN_IF_ERROR(status);
  absl::StatusOr<std::string> version = upload->Finish();
  if (absl::IsAborted(version.status())) return MeetsAnother(written.path);
  CAIRN_RETURN_IF_ERROR(version.status());
  written.version = *std::move(version);
  described.bytes = written.bytes;
  return written;
}

absl::StatusOr<RemoteCheckpoints::Written> RemoteCheckpoints::CopyTensors(const std::string& from,
                                                                          const std::string& to,
                                                                          const CheckpointFile& described) {
  CAIRN_RETURN_IF_ERROR(files_.Copy(from, to));
  CAIRN_ASSIGN_OR_RETURN(const std::optional<RemoteFiles::File> there, files_.Look(to));
  if (!there) return MeetsAnother(to);
  if (there->bytes == described.bytes) return Written{to, there->version, there->bytes};
  return absl::DataLossError(
      absl::StrCat(from, ": ", there->bytes, " bytes, but ", described.bytes, " were written: it is torn"));
}

absl::Status RemoteCheckpoints::CheckWritten(const std::vector<Written>& files) {
  for (const Written& file : files) {
    CAIRN_ASSIGN_OR_RETURN(const std::optional<RemoteFiles::File> there, files_.Look(file.path));
    if (!there || there->bytes != file.bytes || there->version != file.version) return MeetsAnother(file.path);
  }
  return absl::OkStatus();
}

absl::Status RemoteCheckpoints::PutManifest(const std::string& name, const std::string& manifest,
                                            const std::optional<Former>& former) {
  const std::string path = FileOf(name, kManifestFile);
  const absl::Status status = former ? files_.PutOver(path, former->version, manifest) : files_.PutNew(path, manifest);
  return absl::IsAlreadyExists(status) || absl::IsAborted(status) ? MeetsAnother(path) : status;
}

absl::Status RemoteCheckpoints::Publish(const std::string& name, const std::vector<Written>& files,
                                        const CheckpointManifest& manifest) {
  CAIRN_ASSIGN_OR_RETURN(const std::optional<Former> former, MakeRoom(name));
  const std::string former_nonce = former ? FilesNonce(former->manifest) : "";
  if (!former_nonce.empty()) CAIRN_RETURN_IF_ERROR(Mark(name, former_nonce));
  // After the former one was looked at: who has removed the files meanwhile has put another one.
  CAIRN_RETURN_IF_ERROR(CheckWritten(files));
  CAIRN_RETURN_IF_ERROR(PutManifest(name, EncodeManifest(manifest), former));
  // Another chief's sweep may have come between: who removes looks for a manifest afterwards, who writes for the files.
  if (const absl::Status status = CheckWritten(files); absl::IsAborted(status)) {
    CAIRN_ASSIGN_OR_RETURN(const bool own, Names(name, FilesNonce(manifest)));
    if (own) CAIRN_RETURN_IF_ERROR(files_.Remove(FileOf(name, kManifestFile)));
    return status;
  }
  if (!former) return absl::OkStatus();
  if (const absl::Status status = RemoveTensors(name, former_nonce); !status.ok())
    LogWarning("the files of the checkpoint that was replaced are left for the next writer: %s", status.message());
  return absl::OkStatus();
}

absl::StatusOr<std::string> RemoteCheckpoints::Put(const std::string& name, CheckpointManifest& manifest,
                                                   const WriteTensorFiles& write) {
  const std::string nonce = NewNonce();
  SetFilesNonce(nonce, manifest);
  const auto put = [&]() -> absl::Status {
    CAIRN_RETURN_IF_ERROR(Mark(name, nonce));
    CAIRN_ASSIGN_OR_RETURN(const std::vector<Written> files, write());
    return Publish(name, files, manifest);
  };
  const absl::Status status = put();
  if (status.ok()) {
    Unmark(name, nonce).IgnoreError();  // else the next writer does
    return PathOf(name);
  }
  // Where S3 is away what is left is for the next writer.
  if (!absl::IsUnavailable(status) && !absl::IsCancelled(status)) RemoveAttempt(name, nonce).IgnoreError();
  return Annotate(status, PathOf(name));
}

absl::StatusOr<std::string> RemoteCheckpoints::Write(CheckpointContents contents, int64_t now_unix_ms) {
  StampManifest(now_unix_ms, contents.manifest);
  const std::string name = CheckpointName(contents.manifest.step);
  CAIRN_RETURN_IF_ERROR(RemoveLeftovers());
  CAIRN_RETURN_IF_ERROR(MakeRoom(name).status());  // before the time of an upload
  return Put(name, contents.manifest, [&]() -> absl::StatusOr<std::vector<Written>> {
    std::vector<Written> files(std::size(kTensorFiles));
    CAIRN_ASSIGN_OR_RETURN(files[0], WriteTensors(name, kModelFile, ModelTensors(contents), contents.manifest));
    CAIRN_ASSIGN_OR_RETURN(files[1], WriteTensors(name, kOptimizerFile, OptimizerTensors(contents), contents.manifest));
    return files;
  });
}

absl::StatusOr<std::string> RemoteCheckpoints::KeepAsBest(int64_t step) {
  const std::string from = CheckpointName(step);
  CAIRN_ASSIGN_OR_RETURN(CheckpointManifest manifest, LookForOwn(from));
  const std::string nonce = FilesNonce(manifest);
  return Put(kBestCheckpoint, manifest, [&]() -> absl::StatusOr<std::vector<Written>> {
    std::vector<Written> files;
    for (const char* file : kTensorFiles) {
      const std::string to = FileOf(kBestCheckpoint, TensorsFileName(file, FilesNonce(manifest)));
      CAIRN_ASSIGN_OR_RETURN(files.emplace_back(),
                             CopyTensors(FileOf(from, TensorsFileName(file, nonce)), to, manifest.files.at(file)));
    }
    return files;
  });
}

}  // namespace cairn
