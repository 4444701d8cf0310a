#include "worker/checkpoint/checkpoint_reader.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/digest.h"
#include "common/model/checkpoint_name.h"
#include "common/model/graph.h"
#include "common/model/optimizer_variables.h"
#include "worker/checkpoint/checkpoint_files.h"

namespace cairn {
namespace {

std::string FileOf(const std::string& directory, const char* name) { return absl::StrCat(directory, "/", name); }

std::string TensorsPath(const std::string& directory, const char* file, const CheckpointManifest& manifest) {
  return absl::StrCat(directory, "/", TensorsFileName(file, FilesNonce(manifest)));
}

absl::StatusOr<CheckpointManifest> ReadManifest(const std::string& directory, RemoteFiles* remote) {
  const std::string path = FileOf(directory, kManifestFile);
  CAIRN_ASSIGN_OR_RETURN(const bool there, HasJobFile(path, remote));
  if (!there) return absl::NotFoundError(absl::StrCat(directory, ": holds no checkpoint: no ", kManifestFile));
  CAIRN_ASSIGN_OR_RETURN(const Buffer bytes, ReadJobFile(path, SIZE_MAX, remote));
  absl::StatusOr<CheckpointManifest> manifest =
      ParseManifest({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  if (!manifest.ok()) return Annotate(manifest.status(), directory);
  return manifest;
}

absl::Status CheckLength(const std::string& path, uint64_t bytes, const CheckpointFile& written) {
  if (bytes == written.bytes) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrFormat("%s: %d bytes, but %d were written: it is torn", path, bytes, written.bytes));
}

absl::StatusOr<SafetensorsFile> ReadShapes(const std::string& path, const CheckpointFile& written,
                                           RemoteFiles& remote) {
  const absl::StatusOr<std::optional<RemoteFiles::File>> found = remote.Look(path);
  if (!found.ok()) return Annotate(found.status(), path);
  if (!*found) return absl::DataLossError(absl::StrCat(path, ": is missing"));
  CAIRN_RETURN_IF_ERROR(CheckLength(path, (*found)->bytes, written));
  return ReadRemoteHeader(path, **found, SafetensorsIntegers::kRefuse, remote);
}

absl::StatusOr<SafetensorsFile> ReadTensors(const Checkpoint& checkpoint, const char* name, RemoteFiles* remote,
                                            TensorsRead what) {
  const std::string path = TensorsPath(checkpoint.path, name, checkpoint.manifest);
  const CheckpointFile& file = checkpoint.manifest.files.at(name);
  if (what == TensorsRead::kShapes && remote != nullptr && remote->Has(path)) return ReadShapes(path, file, *remote);
  CAIRN_ASSIGN_OR_RETURN(const bool there, HasJobFile(path, remote));
  if (!there) return absl::DataLossError(absl::StrCat(path, ": is missing"));
  CAIRN_ASSIGN_OR_RETURN(const Buffer bytes, ReadJobFile(path, SIZE_MAX, remote));
  CAIRN_RETURN_IF_ERROR(CheckLength(path, bytes.size(), file));
  Digest digest;
  digest.Add(bytes.data(), bytes.size());
  if (digest.Hex() != file.xxh3_128) {
    return absl::DataLossError(absl::StrFormat("%s: its checksum is %s, but %s was written: it was altered", path,
                                               digest.Hex(), file.xxh3_128));
  }
  return ParseSafetensors(bytes, path);
}

// Checks that the file holds exactly these tensors.
absl::Status CheckTensors(const std::string& path, const SafetensorsFile& file,
                          const std::map<std::string, Shape>& expected) {
  for (const Safetensor& tensor : file.tensors) {
    const auto it = expected.find(tensor.name);
    if (it == expected.end()) {
      return absl::DataLossError(absl::StrFormat("%s: tensor \"%s\" is not of the manifest's job", path, tensor.name));
    }
    if (tensor.shape != it->second || tensor.dtype != v1::FLOAT32) {
      return absl::DataLossError(absl::StrFormat("%s: tensor \"%s\" has shape %s, the manifest's job has %s", path,
                                                 tensor.name, ToString(tensor.shape), ToString(it->second)));
    }
  }
  if (file.tensors.size() == expected.size()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrFormat("%s: %d tensors, the manifest's job has %d", path, file.tensors.size(), expected.size()));
}

absl::Status CheckAgainstModel(const Checkpoint& c) {
  absl::StatusOr<Graph> graph = Graph::Build(c.manifest.spec.model());
  if (!graph.ok()) return absl::DataLossError(absl::StrCat(c.path, ": the model: ", graph.status().message()));
  std::map<std::string, Shape> variables, slots;
  for (const Variable& v : graph->variables()) {
    variables[v.name] = v.shape;
    if (v.kind != VariableKind::kTrainable) continue;
    for (const SlotTensor& slot : SlotTensorsOf(c.manifest.spec.optimizer(), v)) {
      slots[absl::StrCat(v.name, "/", slot.name)] = slot.shape;
    }
  }
  if (c.manifest.partitions.back().end != static_cast<uint64_t>(graph->space_size())) {
    return absl::DataLossError(absl::StrFormat("%s: the partitions end at %d, the model at %d", c.path,
                                               c.manifest.partitions.back().end, graph->space_size()));
  }
  CAIRN_RETURN_IF_ERROR(CheckTensors(TensorsPath(c.path, kModelFile, c.manifest), c.model, variables));
  return CheckTensors(TensorsPath(c.path, kOptimizerFile, c.manifest), c.optimizer, slots);
}

// A fault of S3 says nothing of the checkpoint, which may be read a moment later: it is no reason to take an older one.
bool IsPassing(const absl::Status& status, const std::string& path, const RemoteFiles* remote) {
  if (remote == nullptr || !remote->Has(path)) return false;
  switch (status.code()) {
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:  // a manifest of a later version
      return false;
    default: return !status.ok();
  }
}

struct Listed {
  std::string path;
  int64_t written = 0, step = 0;
  absl::Status status;
};

// The checkpoints in a directory, newest first. One whose manifest cannot be read counts as the newest.
absl::StatusOr<std::vector<Listed>> List(const std::string& directory, RemoteFiles* remote) {
  std::vector<Listed> listed;
  CAIRN_ASSIGN_OR_RETURN(const std::vector<std::string> names, StepsIn(directory, remote));
  for (const std::string& name : names) {
    Listed& one = listed.emplace_back();
    one.path = absl::StrCat(directory, "/", name);
    const absl::StatusOr<CheckpointManifest> manifest = ReadManifest(one.path, remote);
    if (IsPassing(manifest.status(), one.path, remote)) return manifest.status();
    one.status = manifest.status();
    one.written = manifest.ok() ? manifest->written_unix_ms : INT64_MAX;
    one.step = manifest.ok() ? manifest->step : 0;
  }
  std::sort(listed.begin(), listed.end(), [](const Listed& a, const Listed& b) {
    return std::tie(b.written, b.step, b.path) < std::tie(a.written, a.step, a.path);
  });
  return listed;
}

// How a checkpoint is looked for.
struct Search {
  const AcceptsCheckpoint& accepts;
  RemoteFiles* remote = nullptr;
  TensorsRead what = TensorsRead::kWhole;
};

absl::StatusOr<Checkpoint> ReadAccepted(const std::string& path, const Search& search) {
  CAIRN_ASSIGN_OR_RETURN(Checkpoint checkpoint, ReadCheckpoint(path, search.remote, search.what));
  if (search.accepts != nullptr) CAIRN_RETURN_IF_ERROR(search.accepts(checkpoint));
  return checkpoint;
}

absl::StatusOr<Checkpoint> OpenOne(const std::string& path, const Search& search, std::vector<std::string>& skipped) {
  CAIRN_ASSIGN_OR_RETURN(const bool is_one, HasJobFile(FileOf(path, kManifestFile), search.remote));
  if (is_one) {
    absl::StatusOr<Checkpoint> checkpoint = ReadAccepted(path, search);
    if (!checkpoint.ok()) skipped.push_back(std::string(checkpoint.status().message()));
    return checkpoint;
  }
  CAIRN_ASSIGN_OR_RETURN(const std::vector<Listed> listed, List(path, search.remote));
  absl::Status first;
  for (const Listed& one : listed) {
    absl::StatusOr<Checkpoint> checkpoint =
        one.status.ok() ? ReadAccepted(one.path, search) : absl::StatusOr<Checkpoint>(one.status);
    if (checkpoint.ok() || IsPassing(checkpoint.status(), one.path, search.remote)) return checkpoint;
    skipped.push_back(std::string(checkpoint.status().message()));
    if (first.ok()) first = checkpoint.status();
  }
  if (!first.ok()) return first;
  return absl::NotFoundError(
      absl::StrCat(path, ": holds no checkpoint: neither ", kManifestFile, " nor directories ", kStepPrefix, "<n>"));
}

}  // namespace

absl::StatusOr<Checkpoint> ReadCheckpoint(const std::string& directory, RemoteFiles* remote, TensorsRead what) {
  Checkpoint checkpoint;
  checkpoint.path = directory;
  CAIRN_ASSIGN_OR_RETURN(checkpoint.manifest, ReadManifest(directory, remote));
  CAIRN_ASSIGN_OR_RETURN(checkpoint.model, ReadTensors(checkpoint, kModelFile, remote, what));
  CAIRN_ASSIGN_OR_RETURN(checkpoint.optimizer, ReadTensors(checkpoint, kOptimizerFile, remote, what));
  CAIRN_RETURN_IF_ERROR(CheckAgainstModel(checkpoint));
  return checkpoint;
}

int64_t NewestWrittenUnixMs(const std::string& directory, RemoteFiles* remote) {
  const absl::StatusOr<std::vector<Listed>> listed = List(directory, remote);
  if (!listed.ok()) return 0;
  for (const Listed& one : *listed) {
    if (one.status.ok()) return one.written;
  }
  return 0;
}

absl::Status CheckWrittenBy(uint64_t job_id, const v1::JobSpec& spec, const Checkpoint& checkpoint) {
  const CheckpointManifest& manifest = checkpoint.manifest;
  if (manifest.job_id == job_id && manifest.spec.name() == spec.name()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("%s: is a checkpoint of another job now, %d (\"%s\"); give each its own checkpoints.dir",
                      checkpoint.path, manifest.job_id, manifest.spec.name()));
}

absl::StatusOr<FoundCheckpoint> OpenCheckpoint(const std::string& path, absl::Span<const std::string> fallbacks,
                                               const AcceptsCheckpoint& accepts, RemoteFiles* remote,
                                               TensorsRead what) {
  FoundCheckpoint found;
  const Search search{accepts, remote, what};
  absl::StatusOr<Checkpoint> checkpoint = OpenOne(path, search, found.skipped);
  const absl::Status first = checkpoint.status();
  std::string tried = path;
  for (size_t i = 0; i < fallbacks.size() && !checkpoint.ok(); ++i) {
    if (IsPassing(checkpoint.status(), tried, remote)) return checkpoint.status();
    tried = fallbacks[i];
    if (found.skipped.empty()) found.skipped.push_back(std::string(first.message()));
    checkpoint = OpenOne(fallbacks[i], search, found.skipped);
  }
  if (IsPassing(checkpoint.status(), tried, remote)) return checkpoint.status();
  if (!checkpoint.ok()) return first;
  found.checkpoint = *std::move(checkpoint);
  return found;
}

}  // namespace cairn
