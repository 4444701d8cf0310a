// Remote files in memory, for tests: the root "out:". A call whose number is fail_at fails, as if S3 were away. Every
// file that is created is written in parts: who removes the unfinished ones ends that.
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/digest.h"
#include "common/base/remote_files.h"

namespace cairn {

class FakeRemoteFiles : public RemoteFiles {
 public:
  std::map<std::string, std::string> files;  // by path
  std::set<std::string> unfinished;          // paths of uploads that nobody ended
  std::vector<std::string> done;             // "put PATH", "read PATH", "copy PATH", ...: in order
  std::function<void(const std::string& what)> before;
  std::function<bool(const std::string& what)> fails;
  uint64_t ranged = 0;  // bytes that were read by ranges
  int calls = 0, fail_at = -1;
  absl::StatusCode fails_with = absl::StatusCode::kUnavailable;
  bool dies = false;  // what is given up when it fails stays, as if the process were killed

  bool Has(absl::string_view path) const override { return absl::StartsWith(path, "out:"); }
  absl::StatusOr<std::vector<File>> List(const std::string& folder) override {
    CAIRN_RETURN_IF_ERROR(Call("list", folder));
    std::vector<File> found;
    for (const auto& [path, bytes] : files) {
      if (absl::StartsWith(path, folder + "/"))
        found.push_back({path.substr(folder.size() + 1), bytes.size(), Of(bytes)});
    }
    return found;
  }
  absl::StatusOr<std::optional<File>> Look(const std::string& path) override {
    CAIRN_RETURN_IF_ERROR(Call("look", path));
    const auto it = files.find(path);
    if (it == files.end()) return std::optional<File>();
    return std::optional<File>(File{"", it->second.size(), Of(it->second), absl::FromUnixSeconds(calls)});
  }
  absl::Status Read(const std::string& path, uint64_t bytes_max, const Room& room) override {
    CAIRN_RETURN_IF_ERROR(Call("read", path));
    const auto it = files.find(path);
    if (it == files.end()) return absl::NotFoundError(path);
    if (it->second.size() > bytes_max) return absl::InvalidArgumentError(path);
    std::copy(it->second.begin(), it->second.end(), room(it->second.size()));
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> ReadRange(const std::string& path, const File& file, uint64_t begin,
                                        uint64_t bytes) override {
    CAIRN_RETURN_IF_ERROR(Call("range", path));
    const auto it = files.find(path);
    if (it == files.end() || Of(it->second) != file.version) return absl::FailedPreconditionError(path);
    if (begin > it->second.size() || bytes > it->second.size() - begin) return absl::InvalidArgumentError(path);
    ranged += bytes;
    return it->second.substr(begin, bytes);
  }
  absl::StatusOr<std::shared_ptr<const LocalCopy>> Fetch(const std::string& path, absl::Duration) override {
    return absl::UnimplementedError(path);
  }
  absl::Status TryToWrite(const std::string& folder, absl::Time) override { return Call("try", folder); }
  absl::StatusOr<std::unique_ptr<RemoteUpload>> Create(const std::string& path, uint64_t) override {
    CAIRN_RETURN_IF_ERROR(Call("create", path));
    unfinished.insert(path);
    return std::make_unique<Upload>(*this, path);
  }
  absl::Status PutNew(const std::string& path, const std::string& bytes) override {
    CAIRN_RETURN_IF_ERROR(Call("put", path));
    if (files.contains(path)) return absl::AlreadyExistsError(path);
    files[path] = bytes;
    return absl::OkStatus();
  }
  absl::Status PutOver(const std::string& path, const std::string& version, const std::string& bytes) override {
    CAIRN_RETURN_IF_ERROR(Call("replace", path));
    if (!files.contains(path) || Of(files[path]) != version) return absl::AbortedError(path);
    files[path] = bytes;
    return absl::OkStatus();
  }
  absl::Status Copy(const std::string& from, const std::string& to) override {
    CAIRN_RETURN_IF_ERROR(Call("copy", to));
    if (!files.contains(from)) return absl::NotFoundError(from);
    files[to] = std::string(files[from]);
    return absl::OkStatus();
  }
  absl::Status Remove(const std::string& path) override {
    CAIRN_RETURN_IF_ERROR(Call("remove", path));
    files.erase(path);
    return absl::OkStatus();
  }
  absl::Status RemoveUnfinished(const std::string& folder,
                                const std::function<bool(absl::string_view below)>& which) override {
    CAIRN_RETURN_IF_ERROR(Call("sweep", folder));
    std::erase_if(unfinished, [&](const std::string& path) {
      return absl::StartsWith(path, folder + "/") && which(absl::string_view(path).substr(folder.size() + 1));
    });
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<StagedFile>> Stage(const std::string& path) override {
    return absl::UnimplementedError(path);
  }
  std::shared_ptr<RemoteFiles> ForJob() override { return {std::shared_ptr<void>(), this}; }
  void Stop() override {}

 private:
  class Upload : public RemoteUpload {
   public:
    Upload(FakeRemoteFiles& in, std::string path) : in_(in), path_(std::move(path)) {}
    ~Upload() override {
      if (!in_.dies) in_.unfinished.erase(path_);
    }
    absl::Status Add(absl::string_view bytes) override {
      CAIRN_RETURN_IF_ERROR(in_.Call("add", path_));
      bytes_.append(bytes.data(), bytes.size());
      return absl::OkStatus();
    }
    absl::StatusOr<std::string> Finish() override {
      CAIRN_RETURN_IF_ERROR(in_.Call("finish", path_));
      if (in_.unfinished.erase(path_) == 0) return absl::AbortedError(absl::StrCat(path_, ": the upload was ended"));
      in_.files[path_] = bytes_;
      return Of(bytes_);
    }

   private:
    FakeRemoteFiles& in_;
    const std::string path_;
    std::string bytes_;
  };

  static std::string Of(const std::string& bytes) {
    Digest digest;
    digest.Add(bytes.data(), bytes.size());
    return digest.Hex();
  }
  absl::Status Call(const std::string& what, const std::string& path) {
    if (before) before(absl::StrCat(what, " ", path));
    if (calls == fail_at) dead_ = true;
    ++calls;
    const bool failed = (dead_ && fail_at >= 0) || (fails && fails(absl::StrCat(what, " ", path)));
    if (failed) return absl::Status(fails_with, absl::StrCat(path, ": S3 is away"));
    dead_ = false;
    done.push_back(absl::StrCat(what, " ", path));
    return absl::OkStatus();
  }
  bool dead_ = false;  // until fail_at is below 0 again
};

}  // namespace cairn
