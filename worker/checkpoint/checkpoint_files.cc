#include "worker/checkpoint/checkpoint_files.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "common/base/files.h"
#include "common/formats/plain_file.h"
#include "common/formats/torch_layout.h"
#include "common/formats/weights.h"
#include "common/model/checkpoint_name.h"
#include "worker/checkpoint/checkpoint_manifest.h"
#include "worker/limits.h"

namespace cairn {
namespace {

bool IsRemote(const std::string& path, const RemoteFiles* remote) { return remote != nullptr && remote->Has(path); }

// The folder of a manifest directly below a folder: "step-5" of "step-5/manifest.json".
std::optional<std::string> FolderOfManifest(absl::string_view below) {
  if (!absl::ConsumeSuffix(&below, absl::StrCat("/", kManifestFile)) || absl::StrContains(below, '/'))
    return std::nullopt;
  return std::string(below);
}

}  // namespace

absl::StatusOr<Buffer> ReadJobFile(const std::string& path, size_t bytes_max, RemoteFiles* remote) {
  if (!IsRemote(path, remote)) return ReadFileBytes(path, bytes_max);
  Buffer bytes;
  const absl::Status status = remote->Read(path, bytes_max, [&bytes](uint64_t size) {
    bytes = Buffer::Allocate(size);
    return reinterpret_cast<char*>(bytes.mutable_data());
  });
  if (!status.ok()) return Annotate(status, path);
  return bytes;
}

absl::StatusOr<SafetensorsFile> ReadRemoteHeader(const std::string& path, const RemoteFiles::File& file,
                                                 SafetensorsIntegers integers, RemoteFiles& remote) {
  const auto read = [&](uint64_t begin, uint64_t bytes) { return remote.ReadRange(path, file, begin, bytes); };
  return ReadSafetensorsHeader(read, file.bytes, path, integers);
}

absl::StatusOr<bool> HasJobFile(const std::string& path, RemoteFiles* remote) {
  if (!IsRemote(path, remote)) return IsThere(path);
  const auto found = remote->Look(path);
  if (!found.ok()) return Annotate(found.status(), path);
  return found->has_value();
}

absl::StatusOr<bool> IsJobFolder(const std::string& path, RemoteFiles* remote) {
  if (!IsRemote(path, remote)) return IsFolder(path);
  const auto files = remote->List(path);
  if (!files.ok()) return Annotate(files.status(), path);
  return std::any_of(files->begin(), files->end(), [](const RemoteFiles::File& file) {
    return file.below == kManifestFile || FolderOfManifest(file.below).has_value();
  });
}

absl::StatusOr<std::vector<std::string>> StepsIn(const std::string& folder, RemoteFiles* remote) {
  std::vector<std::string> names;
  if (IsRemote(folder, remote)) {
    const auto files = remote->List(folder);
    if (!files.ok()) return Annotate(files.status(), folder);
    if (files->empty()) return absl::NotFoundError(absl::StrCat(folder, ": there is nothing in S3"));
    for (const RemoteFiles::File& file : *files) {
      if (std::optional<std::string> name = FolderOfManifest(file.below)) names.push_back(*std::move(name));
    }
  } else {
    const absl::StatusOr<std::vector<FolderEntry>> entries = ListFolder(folder);
    if (absl::IsNotFound(entries.status())) return entries.status();
    if (!entries.ok()) return absl::FailedPreconditionError(entries.status().message());
    for (const FolderEntry& entry : *entries) names.push_back(entry.name);
  }
  std::erase_if(names, [](const std::string& name) { return !absl::StartsWith(name, kStepPrefix); });
  if (names.size() > kCheckpointsListedMax) names.resize(kCheckpointsListedMax);
  return names;
}

absl::StatusOr<SafetensorsFile> LoadJobWeights(const std::string& path, const Graph& graph, RemoteFiles* remote,
                                               absl::Duration fetch_max) {
  if (!IsRemote(path, remote)) return LoadWeights(path, graph);
  CAIRN_ASSIGN_OR_RETURN(const bool there, HasJobFile(path, remote));
  if (!there) return absl::NotFoundError(absl::StrCat(path, ": there is no file of this name in S3, nor a checkpoint"));
  const absl::StatusOr<std::shared_ptr<const LocalCopy>> copy = remote->Fetch(path, fetch_max);
  if (!copy.ok()) return Annotate(copy.status(), path);
  const std::string& local = (*copy)->path();
  absl::StatusOr<SafetensorsFile> file = LoadWeights(local, graph);
  if (file.ok()) return file;
  return absl::Status(file.status().code(), absl::StrReplaceAll(file.status().message(), {{local, path}}));
}

absl::StatusOr<SafetensorsFile> LoadJobWeightShapes(const std::string& path, const Graph& graph, RemoteFiles* remote,
                                                    absl::Duration fetch_max) {
  if (IsRemote(path, remote) && absl::EndsWithIgnoreCase(path, ".safetensors")) {
    const auto found = remote->Look(path);
    if (!found.ok()) return Annotate(found.status(), path);
    if (*found) {
      CAIRN_ASSIGN_OR_RETURN(SafetensorsFile header,
                             ReadRemoteHeader(path, **found, SafetensorsIntegers::kLeave, *remote));
      if (!IsTorchLayout(header, graph)) return header;
    }
  }
  return LoadJobWeights(path, graph, remote, fetch_max);
}

}  // namespace cairn
